"""`attach` on trainers in this process: a bare Trainer, copies, failures, a second `train`."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlprobe import environment
from rlprobe.integrations import _run_dirs as run_dirs
from rlprobe.integrations.trl import attach
from rlprobe.store.recording import Recording
from rlprobe.taps import slots

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("default")]


@functools.cache
def _kinds() -> Any:
    """Classes that need torch, made when they are needed: collecting tests does not import it."""
    import torch
    import transformers

    class Regression(torch.nn.Module):  # type: ignore[misc]
        """A model of one layer, which the bare Trainer can train."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, y: Any) -> dict[str, Any]:
            return {"loss": ((self.layer(x).squeeze(-1) - y) ** 2).mean()}

    class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
        """Rows of numbers; one of them may be NaN."""

        def __init__(self, bad: int | None = None) -> None:
            generator = torch.Generator().manual_seed(1)
            self.x = torch.randn(64, 4, generator=generator)
            if bad is not None:
                self.x[bad] = float("nan")

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": self.x[index], "y": self.x[index].sum()}

    class AtStep(transformers.TrainerCallback):  # type: ignore[misc]
        """Calls a function at the end of a step."""

        def __init__(self, step: int, action: Callable[..., Any]) -> None:
            self.step = step
            self.action = action

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == self.step:
                self.action(**kwargs)

    return SimpleNamespace(Regression=Regression, Rows=Rows, AtStep=AtStep)


Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    for name in (environment.RUN, environment.STATUS, environment.LAUNCH, "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def trainer(bad_row: int | None = None, callbacks: Any = None, **options: Any) -> Any:
        import transformers

        kinds = _kinds()
        known = {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 10,
            "logging_steps": 1,
            "per_device_train_batch_size": 4,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "learning_rate": 1e-3,
        }
        args = transformers.TrainingArguments(**{**known, **options})
        return transformers.Trainer(
            model=kinds.Regression(),
            args=args,
            train_dataset=kinds.Rows(bad_row),
            eval_dataset=kinds.Rows(),
            callbacks=callbacks,
        )

    return trainer


def at_step(step: int, action: Callable[..., Any]) -> Any:
    """A callback that acts at the end of a step."""
    return _kinds().AtStep(step, action)


def _raise(error: BaseException) -> Callable[..., Any]:
    def action(**kwargs: Any) -> None:
        raise error

    return action


def _events(run_dir: Path, kind: str) -> list[Any]:
    return [event for event in Recording(run_dir).events if event.kind == kind]


def test_a_bare_trainer(make: Make, tmp_path: Path, screen: Callable[..., str]) -> None:
    trainer = make(eval_strategy="steps", eval_steps=5, label_names=["y"])
    recorder = attach(trainer, tmp_path / "run")
    trainer.train()
    recording = Recording(recorder.run_dir)
    assert recording.info.attempts[0].ended == "completed"
    assert recording.info.framework == "transformers"
    assert "Hugging Face Trainer steps 1-" in " ".join(screen("scan", tmp_path / "run").split())
    rows = 'select count(*), count(distinct step), count("eval/loss") from steps'
    assert screen("query", tmp_path / "run", rows).splitlines()[1].split() == ["10", "10", "2"]
    loss = recording.steps.series("loss")
    assert loss is not None
    logged = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
    assert dict(zip(loss.steps.tolist(), loss.values.tolist(), strict=True)) == logged
    evaluation = recording.steps.series("eval/loss")
    assert evaluation is not None
    assert evaluation.steps.tolist() == [5, 10]
    assert recording.sample_steps() == ()
    assert not _events(recorder.run_dir, "probe_disabled")


def test_attaching_twice_is_attaching_once(make: Make, tmp_path: Path) -> None:
    trainer = make()
    assert attach(trainer, tmp_path / "run") is attach(trainer, tmp_path / "other")
    trainer.train()
    assert len(Recording(tmp_path / "run").steps) == 10
    assert not (tmp_path / "other").exists()


def test_the_default_directory_is_in_the_output_directory(make: Make, tmp_path: Path) -> None:
    recorder = attach(make())
    assert recorder.run_dir == tmp_path / "out" / "rlprobe"
    recorder.close()


def test_the_launchers_directory_wins(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status").mkdir()
    monkeypatch.setenv("RLPROBE_RUN", str(tmp_path / "launched"))
    monkeypatch.setenv("RLPROBE_STATUS", str(tmp_path / "status"))
    recorder = attach(make(), tmp_path / "own")
    assert recorder.run_dir == tmp_path / "launched"
    assert len(list((tmp_path / "status").glob("attached-*"))) == 1
    recorder.close()


def test_every_training_of_a_launch_is_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SFTTrainer(SimpleNamespace):
        pass

    class GRPOTrainer(SimpleNamespace):
        pass

    def trained(kind: type[SimpleNamespace], out: str) -> str:
        trainer = kind(args=SimpleNamespace(output_dir=out))
        return run_dirs.of_trainer(tmp_path / "run", trainer).name

    def new_process() -> None:
        monkeypatch.setattr(run_dirs, "_trained", {})
        monkeypatch.setattr(slots, "_own", [])

    for status in (tmp_path, tmp_path / "not there"):
        monkeypatch.setenv("RLPROBE_STATUS", str(status))
        new_process()
        assert trained(SFTTrainer, "a") == "run"
        assert trained(GRPOTrainer, "b") == "run-2"
        assert trained(GRPOTrainer, "b") == "run-2"
        assert trained(GRPOTrainer, "c") == "run-3"
    monkeypatch.setenv("RLPROBE_STATUS", str(tmp_path))
    new_process()
    assert trained(GRPOTrainer, "at 12:01") == "run-2"  # restarted


def test_the_true_loss_where_the_trainer_hides_a_nan(make: Make, tmp_path: Path) -> None:
    trainer = make(bad_row=9, gradient_accumulation_steps=2, max_steps=8, max_grad_norm=0.0)
    attach(trainer, tmp_path / "run")
    trainer.train()
    recording = Recording(tmp_path / "run")
    loss, logged = recording.steps.series("loss"), recording.steps.series("loss_logged")
    assert loss is not None
    assert logged is not None
    bad = [step for step, v in zip(loss.steps, loss.values, strict=True) if math.isnan(v)]
    assert bad
    assert set(bad) <= set(logged.steps.tolist())
    shown = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
    assert dict(zip(logged.steps.tolist(), logged.values.tolist(), strict=True)) == {
        step: shown[step] for step in logged.steps.tolist()
    }
    sources = {
        event.data["source"]: event.step for event in _events(tmp_path / "run", "nan_detected")
    }
    assert sources["loss"] == bad[0]
    assert sources["gradient"] == bad[0]
    assert sources["weight"] == bad[0]


def test_an_exception_is_a_crash(make: Make, tmp_path: Path) -> None:
    trainer = make(callbacks=[at_step(4, _raise(ValueError("broken")))])
    attach(trainer, tmp_path / "run")
    with pytest.raises(ValueError, match="broken"):
        trainer.train()
    (crash,) = _events(tmp_path / "run", "crash")
    assert crash.step == 4
    assert crash.data["exception"] == "ValueError"
    assert Recording(tmp_path / "run").info.attempts[0].ended == "crashed"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)])
def test_an_interrupt_is_a_halt(make: Make, tmp_path: Path, error: BaseException) -> None:
    trainer = make(callbacks=[at_step(4, _raise(error))])
    attach(trainer, tmp_path / "run")
    with pytest.raises(type(error)):
        trainer.train()
    assert len(_events(tmp_path / "run", "halted")) == 1
    assert Recording(tmp_path / "run").info.attempts[0].ended == "halted"


def test_a_probe_that_fails_is_switched_off(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("rlprobe.integrations._nonfinite.WeightWatch.measure", fail)
    trainer = make()
    recorder = attach(trainer, tmp_path / "run")
    trainer.train()
    events = _events(recorder.run_dir, "probe_disabled")
    assert {event.data["probe"] for event in events} == {"weight", "weight_norm"}
    assert all("ours" in event.message for event in events)
    assert len(Recording(recorder.run_dir).steps) == 10


def test_training_again_is_a_new_attempt(make: Make, tmp_path: Path) -> None:
    trainer = make()
    attach(trainer, tmp_path / "run")
    trainer.train()
    trainer.train()
    recording = Recording(tmp_path / "run")
    assert [attempt.ended for attempt in recording.info.attempts] == ["completed"] * 2
    assert [(recording.steps.attempt == number).sum() for number in (1, 2)] == [10, 10]


def test_copies_and_pickles_are_not_recorded(make: Make, tmp_path: Path) -> None:
    trainer = make()
    attach(trainer, tmp_path / "run")
    (callback,) = [c for c in trainer.callback_handler.callbacks if hasattr(c, "session")]
    assert copy.deepcopy(callback).session is None
    assert pickle.loads(pickle.dumps(callback)).session is None
    other = copy.copy(trainer)
    for name in ("train", "training_step"):
        rebuilt = pickle.loads(pickle.dumps(trainer.__dict__[name].__reduce__()[1][1]))
        assert rebuilt == name
        assert copy.deepcopy(trainer.__dict__[name], {id(trainer): other}) is not None
    trainer.train()
    assert len(Recording(tmp_path / "run").steps) == 10


def test_a_jump_of_the_learning_rate(make: Make, tmp_path: Path) -> None:
    def raise_rate(optimizer: Any, lr_scheduler: Any, **kwargs: Any) -> None:
        lr_scheduler.base_lrs = [rate * 20 for rate in lr_scheduler.base_lrs]

    trainer = make(callbacks=[at_step(5, raise_rate)], lr_scheduler_type="constant")
    attach(trainer, tmp_path / "run")
    trainer.train()
    (event,) = _events(tmp_path / "run", "lr_changed")
    assert event.step == 7  # the schedule takes the new base at its next step
    assert event.data["after"] == pytest.approx(20 * event.data["before"])


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup", "polynomial"])
def test_schedules_do_not_jump(make: Make, tmp_path: Path, schedule: str) -> None:
    trainer = make(lr_scheduler_type=schedule, warmup_steps=3, max_steps=16)
    attach(trainer, tmp_path / "run")
    trainer.train()
    assert not _events(tmp_path / "run", "lr_changed")


def test_a_checkpoint_of_the_model_alone_lacks_the_rest(make: Make, tmp_path: Path) -> None:
    trainer = make(save_strategy="steps", save_steps=5, save_only_model=True, ignore_data_skip=True)
    attach(trainer, tmp_path / "run")
    trainer.train()
    first = _events(tmp_path / "run", "checkpoint")[0]
    assert first.step == 5
    assert first.data["has"] == ["model", "trainer_state"]
    assert first.data["lacks"] == ["optimizer", "scheduler", "rng", "data_cursor"]


def test_the_closing_row_is_no_step(make: Make, tmp_path: Path) -> None:
    trainer = make(max_steps=7, logging_steps=5)
    attach(trainer, tmp_path / "run")
    trainer.train()
    recording = Recording(tmp_path / "run")
    assert not {"train_runtime", "train_loss", "total_flos"} & set(recording.steps.names)
    (summary,) = _events(tmp_path / "run", "summary")
    assert summary.data["train_loss"] > 0
    grad_norm = recording.steps.series("grad_norm")
    assert grad_norm is not None
    assert grad_norm.steps.tolist() == list(range(1, 8))
