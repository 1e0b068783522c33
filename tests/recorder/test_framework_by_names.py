"""`framework="auto"`: whose names the metrics have is told by the names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.errors import UsageError
from rlprobe.recorder.encode import MetricRow, one_per_step
from rlprobe.store.recording import Recording


def test_the_names_tell_the_framework_and_the_algorithm(tmp_path: Path) -> None:
    with Recorder(tmp_path, framework="auto") as recorder:
        recorder.step(1, **{"actor/entropy": 0.5, "critic/score/mean": 0.25, "mine": 1.0})
    run = Recording(tmp_path)
    assert run.info.framework == "verl"
    assert run.steps.load("entropy")[0].tolist() == [0.5]
    assert run.steps.load("reward_mean")[0].tolist() == [0.25]
    assert run.steps.load("mine")[0].tolist() == [1.0]


def test_names_that_come_one_by_one_are_known_together(tmp_path: Path) -> None:
    with Recorder(tmp_path, framework="auto") as recorder:
        for name, value in (("losses/policy_loss", 2.0), ("charts/SPS", 10.0), ("kl", 0.1)):
            recorder.step(5, **{name: value})
    run = Recording(tmp_path)
    assert run.info.framework == "cleanrl"
    assert run.steps.step.tolist() == [5]
    assert run.steps.load("policy_loss")[0].tolist() == [2.0]


def test_plain_names_stay_plain(tmp_path: Path) -> None:
    with Recorder(tmp_path, framework="auto") as recorder:
        recorder.step(1, loss=1.0, something=2.0)
    run = Recording(tmp_path)
    assert run.info.framework is None
    assert {"loss", "something"} <= set(run.steps.names)


def test_a_framework_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="automatic"):
        Recorder(tmp_path, framework="automatic")


def test_rows_of_a_step_in_a_row_are_one_and_the_last_value_counts() -> None:
    rows: list[MetricRow] = [
        (1, 0.5, {"a": 1.0}),
        (2, 1.0, {"a": 2.0, "b": 3.0}),
        (2, 1.5, {"a": None, "c": 4.0}),
        (2, 2.0, {"b": 5.0}),
        (1, 2.5, {"d": 6.0}),
    ]
    copies = [dict(row[2]) for row in rows]
    assert one_per_step(rows) == [
        (1, 0.5, {"a": 1.0}),
        (2, 1.0, {"a": 2.0, "b": 5.0, "c": 4.0}),
        (1, 2.5, {"d": 6.0}),
    ]
    assert [row[2] for row in rows] == copies  # a batch that could not be written is tried again
