"""A plain Hugging Face Trainer is not called TRL, whatever its log is read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe import naming
from rlprobe.importers import plain_trainer

Screen = Callable[..., str]
PLAIN = {"loss": 1.5, "grad_norm": 0.7, "learning_rate": 1e-5, "epoch": 0.1}
EVAL = {"eval_loss": 1.4, "eval_runtime": 1.0, "eval_accuracy": 0.5, "epoch": 0.2}
OF_TRL = {
    "SFT": {"mean_token_accuracy": 0.5, "num_tokens": 100.0, "entropy": 1.0},
    "GRPO": {"reward": 0.5, "reward_std": 0.1, "frac_reward_zero_std": 0.1, "kl": 0.01},
    "DPO": {"rewards/chosen": 0.1, "rewards/rejected": 0.0, "logps/chosen": -10.0},
    "custom": {"completions/mean_length": 10.0},
}


def history(more: dict[str, float]) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for step in range(1, 21):
        rows.append({"step": step, **PLAIN, **more, "loss": 1 / step})
        if step % 5 == 0:
            rows.append({"step": step, **EVAL})
    return rows


def write(path: Path, rows: list[dict[str, float]]) -> Path:
    if path.name == "trainer_state.json":
        path.write_text(json.dumps({"global_step": 20, "log_history": rows}))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("".join(f"{row}\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["trainer_state.json", "log.jsonl", "train.log"])
def test_of_a_plain_trainer(name: str, tmp_path: Path, screen: Screen) -> None:
    log = write(tmp_path / name, history({}))
    report = json.loads(screen("scan", log, "--format", "json"))
    assert report["run"]["framework"] == "transformers"
    assert naming.every()["transformers"].canonical("learning_rate") == "lr"
    run_dir = tmp_path / "imported"
    screen("import", log, "--run", run_dir)
    assert "TRL" not in screen("scan", run_dir)
    assert " transformers " in screen("ls", tmp_path)


@pytest.mark.parametrize("trainer", OF_TRL)
def test_of_trl(trainer: str, tmp_path: Path, screen: Screen) -> None:
    log = write(tmp_path / "trainer_state.json", history(OF_TRL[trainer]))
    report = json.loads(screen("scan", log, "--format", "json"))
    assert report["run"]["framework"] == "trl"


def test_names_with_a_prefix_of_a_tracker() -> None:
    assert plain_trainer.told_apart("trl", ["train/loss", "train/epoch", "eval/loss"]) == (
        "transformers"
    )
    assert plain_trainer.told_apart("trl", ["train/loss", "train/kl", "train/epoch"]) == "trl"
    assert plain_trainer.told_apart("verl", ["loss"]) == "verl"
    assert plain_trainer.told_apart(None, ["loss"]) is None
