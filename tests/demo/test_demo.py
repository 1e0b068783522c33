"""The demo: real, repeatable, and its fault is found at the step at which it was put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.demo import training
from rlprobe.demo.run import fresh_directory, record
from rlprobe.errors import UsageError
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_hard_prompts_are_found_at_their_step(tmp_path: Path, seed: int) -> None:
    record(tmp_path / "run", seed=seed)
    (run,) = open_runs(tmp_path / "run")
    report = scan(run)
    root = report.roots()[0]
    assert (root.detector, root.variant) == ("ZERO_VARIANCE", "too_hard")
    assert abs(root.first_bad_step - training.HARD_FROM) <= 1
    restore = report.incidents[0].restore
    assert restore is not None
    assert restore.step < training.HARD_FROM


def test_before_the_hard_prompts_the_run_is_healthy(tmp_path: Path) -> None:
    record(tmp_path / "run", steps=training.HARD_FROM - 1)
    (run,) = open_runs(tmp_path / "run")
    assert scan(run).verdict == "pass"
    reward = run.steps.series("reward_mean")
    assert reward is not None
    assert reward.values[-10:].mean() > reward.values[:10].mean() + 0.3, "it learns"


def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    losses = []
    for name in ("a", "b"):
        record(tmp_path / name, seed=5, steps=20)
        series = open_runs(tmp_path / name)[0].steps.series("loss")
        assert series is not None
        losses.append(series.values.tolist())
    assert losses[0] == losses[1]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("y")
    with pytest.raises(UsageError, match="not empty"):
        fresh_directory(tmp_path)
