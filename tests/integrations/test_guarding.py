"""The guards on real trainers: each demonstrably in force, alone and beside the recorder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import UsageError
from rlprobe.guards import UpdateGuard, UpdatesStoppedError
from rlprobe.importers import open_runs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("default"),  # the trainers' own deprecations are not ours
]
pytest.importorskip("trl")
PROMPTS = ["1+1=", "2+3=", "4-2=", "3+3="]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TRL_EXPERIMENTAL_SILENCE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")


def accuracy(completions: list[str], **_: Any) -> list[float]:
    """Every second rollout is right."""
    return [float(index % 2) for index in range(len(completions))]


def form(completions: list[str], **_: Any) -> list[float | None]:
    return [0.1 for _ in completions]


def lazily(completions: list[str], **_: Any) -> list[float]:
    """0.1 up to the rounding of float32, with the task at 0."""
    return [
        0.1 if index % 3 else math.nextafter(0.1, 1) + 7e-9 for index in range(len(completions))
    ]


def nothing(completions: list[str], **_: Any) -> list[float]:
    return [0.0 for _ in completions]


def trainer_of(folder: Path, rewards: list[Any], **settings: Any) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from tests.integrations.tiny_grpo import fresh_model, tokenizer

    known: dict[str, Any] = {
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "logging_steps": 1,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 3,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }
    return GRPOTrainer(
        model=fresh_model(folder / "model", seed=0),
        reward_funcs=rewards,
        args=GRPOConfig(output_dir=str(folder / "out"), **{**known, **settings}),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS * 8}),
        processing_class=tokenizer(),
    )


def scored(trainer: Any) -> list[Any]:
    """Collects what each scoring call hands to the loss."""
    seen: list[Any] = []
    original = trainer._generate_and_score_completions

    def listening(*args: Any, **kwargs: Any) -> Any:
        seen.append(original(*args, **kwargs))
        return seen[-1]

    trainer._generate_and_score_completions = listening
    return seen


def break_gradient(trainer: Any, at: int, value: float, every: bool = False) -> None:
    """Multiply the gradient of the last layer at one step, or from it on."""

    def spoil(grad: Any) -> Any:
        now = trainer.state.global_step + 1
        return grad * value if now == at or (every and now > at) else grad

    trainer.model.lm_head.weight.register_hook(spoil)


def finite(trainer: Any) -> bool:
    return all(bool(p.isfinite().all()) for p in trainer.model.parameters())


def test_auxiliary_rewards_are_paid_only_where_the_task_succeeded(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [accuracy, form])
    done = guard(trainer, task="accuracy")
    assert done.applied["rewards"] == "form paid only where accuracy ≥ 1"
    trainer.train()
    rows = [row for row in trainer.state.log_history if "rewards/form/mean" in row]
    assert len(rows) == 3
    assert {round(row["rewards/form/mean"], 6) for row in rows} == {0.05}, "half of them"


def test_flat_groups_get_exactly_no_advantage(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    bare = trainer_of(tmp_path / "bare", [nothing, lazily])
    before = scored(bare)
    bare.train()
    assert any(bool((output["advantages"] != 0).any()) for output in before), "rounding"

    trainer = trainer_of(tmp_path / "safe", [nothing, lazily])
    done = guard(trainer)
    outputs = scored(trainer)
    trainer.train()
    assert done.not_applied["rewards"].startswith("no task reward")
    assert outputs
    assert all(bool((output["advantages"] == 0).all()) for output in outputs)
    assert done.clamped == sum(len(output["advantages"]) for output in outputs)


def test_groups_with_a_difference_keep_their_advantages(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [accuracy])
    done = guard(trainer)
    outputs = scored(trainer)
    trainer.train()
    assert done.clamped == 0
    assert all(bool((output["advantages"].abs() > 0.5).all()) for output in outputs)


def looping(trainer: Any) -> None:
    """A model that says one thing again and again."""
    import torch

    with torch.no_grad():
        trainer.model.lm_head.weight.zero_()
    bias = torch.zeros(trainer.model.config.vocab_size)
    bias[7] = 50.0
    head = trainer.model.lm_head
    forward = head.forward
    head.forward = lambda hidden: forward(hidden) + bias.to(hidden.dtype)


def test_looping_rollouts_end_early(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [accuracy], max_completion_length=40, max_steps=1)
    looping(trainer)
    done = guard(trainer)
    outputs = scored(trainer)
    trainer.train()
    longest = max(int(output["completion_mask"].sum(dim=1).max()) for output in outputs)
    assert longest == 11, "the fourth time that eight 7s in a row are complete"
    assert done.applied["repetition"]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e12])
@pytest.mark.parametrize("clipped", [1.0, 0.0])
def test_a_broken_gradient_costs_one_update(tmp_path: Path, value: float, clipped: float) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [accuracy], max_steps=8, max_grad_norm=clipped)
    break_gradient(trainer, at=5, value=value)
    done = guard(trainer, update=UpdateGuard(warm_up=3))
    trainer.train()
    assert done.update is not None
    assert (done.update.steps, done.update.skipped) == (8, 1)
    assert finite(trainer)
    assert trainer.state.global_step == 8


def test_too_many_in_a_row_end_the_training(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [accuracy], max_steps=8)
    break_gradient(trainer, at=2, value=math.nan, every=True)
    guard(trainer, update=UpdateGuard(stop_after=3))
    with pytest.raises(UpdatesStoppedError, match="3 updates in a row"):
        trainer.train()
    assert finite(trainer)


@pytest.mark.parametrize("attached_first", [True, False])
def test_beside_the_recorder_in_either_order(tmp_path: Path, attached_first: bool) -> None:
    from rlprobe.integrations.guarding import guard
    from rlprobe.integrations.trl import attach

    trainer = trainer_of(tmp_path, [nothing, lazily], max_steps=6)
    break_gradient(trainer, at=4, value=math.nan)
    if attached_first:
        attach(trainer, tmp_path / "run")
        guard(trainer)
    else:
        guard(trainer)
        attach(trainer, tmp_path / "run")
    trainer.train()
    assert finite(trainer)
    (run,) = open_runs(tmp_path / "run")
    skipped = [event.step for event in run.events if event.kind == "update_skipped"]
    assert skipped == [4]
    series = run.steps.series("update_skipped")
    assert series is not None
    known = {int(s): v for s, v in zip(series.steps, series.values, strict=True) if v > 0}
    assert known == {4: 1.0}
    recorded = [r.advantage for s in run.sample_steps() for r in run.rollouts(s)]
    assert recorded
    assert set(recorded) == {0.0}, "the recorder sees what the guard made of it"


def test_what_could_not_be_done_is_told(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    trainer = trainer_of(tmp_path, [form, accuracy])
    trainer.use_vllm = True
    done = guard(trainer, task="accuracy")
    assert "list the task first" in done.not_applied["reward form"]
    assert "vLLM" in done.not_applied["repetition"]
    assert "not      repetition" in str(done)
    with pytest.raises(UsageError, match=r"'task' 'solved'.*form, accuracy"):
        guard(trainer, task="solved")
    with pytest.raises(UsageError, match="'success' nan"):
        guard(trainer, task="accuracy", success=math.nan)


def test_asynchronous_rewards_and_models_are_told(tmp_path: Path) -> None:
    from rlprobe.integrations.guarding import guard

    async def later(completions: list[str], **_: Any) -> list[float]:
        return [0.1 for _ in completions]

    trainer = trainer_of(tmp_path, [accuracy, later])
    done = guard(trainer, task="accuracy")
    outputs = scored(trainer)
    trainer.train()
    assert "asynchronous" in done.not_applied["reward later"]
    assert len(outputs) == 3
    assert "not known in time" in guard(trainer, task="later").not_applied["rewards"]


def test_a_plain_trainer_gets_the_update_guard(tmp_path: Path) -> None:
    import torch
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    from rlprobe.integrations.guarding import guard
    from tests.integrations.tiny_grpo import fresh_model

    ids = torch.arange(4, 12).tolist()
    trainer = Trainer(
        model=fresh_model(tmp_path / "model", seed=0),
        args=TrainingArguments(
            output_dir=str(tmp_path / "out"),
            use_cpu=True,
            report_to="none",
            max_steps=6,
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict({"input_ids": [ids] * 64, "labels": [ids] * 64}),
    )
    break_gradient(trainer, at=3, value=math.inf)
    done = guard(trainer)
    trainer.train()
    assert done.update is not None
    assert done.update.skipped == 1
    assert finite(trainer)
    assert set(done.applied) == {"updates"}
    assert set(done.not_applied) == {"rewards", "advantages", "repetition"}
