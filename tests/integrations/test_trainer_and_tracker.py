"""A script whose Trainer is recorded, and that tells a tracker things of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlprobe.store.recording import Recording
from tests.integrations.conftest import ENVIRONMENT
from tests.launcher import processes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
TRAIN = """
import sys
from pathlib import Path
sys.path.append({folder!r})
from tiny_grpo import Faults, fresh_model, trainer_of
from transformers import TrainerCallback
import wandb

class Mine(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        wandb.log({{"mine/margin": state.global_step / 4, "loss": -1.0}})

wandb.init(project="mine", mode="offline")
for row in range({before}):
    wandb.log({{"mine/rows": float(row)}}, step=row)
model = fresh_model(Path("model"), 0)
trainer = trainer_of(
    model, Faults("none"), Mine(), output_dir="out", max_steps=6, logging_steps=1, save_steps=100
)
trainer.train()
wandb.log({{"mine/final": 1.0}})
"""


def recorded(tmp_path: Path, *, before: int) -> list[str]:
    script = TRAIN.format(folder=str(Path(__file__).parent), before=before)
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [*processes.RECORD, "--run", "run", sys.executable, "train.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line for line in done.stderr.splitlines() if line.startswith("rlprobe:")]


def values(run: Recording, name: str) -> dict[int, float]:
    numbers, logged = run.steps.load(name)
    return {
        int(step): float(number)
        for step, number in zip(run.steps.step[logged], numbers[logged], strict=True)
    }


def test_what_a_script_tells_a_tracker_belongs_to_the_trainers_steps(tmp_path: Path) -> None:
    said = recorded(tmp_path, before=2)
    assert [line for line in said if "recorded in" in line] == [
        "rlprobe: 6 rows from the Trainer and wandb.log, 6 steps with rollouts; recorded in run"
    ]
    run = Recording(tmp_path / "run")
    assert len(run.info.attempts) == 1
    assert values(run, "mine/margin") == {step: step / 4 for step in range(1, 7)}
    assert values(run, "mine/rows") == {1: 1.0}
    assert values(run, "mine/final") == {6: 1.0}
    losses = values(run, "loss")
    assert sorted(losses) == list(range(1, 7))
    assert not np.isin(-1.0, list(losses.values()))  # the Trainer's own counts


def test_many_rows_before_it_are_a_run_of_their_own(tmp_path: Path) -> None:
    recorded(tmp_path, before=30)
    first, second = Recording(tmp_path / "run"), Recording(tmp_path / "run-2")
    assert values(first, "mine/rows") == {step: float(step) for step in range(30)}
    assert second.info.algorithm == "GRPO"
    assert len(values(second, "loss")) == 6
