"""Processes that are no trainers: a table of their own, and no rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.store import manifest
from rlprobe.store.recording import Recording
from rlprobe.store.sql import query


def recorded(tmp_path: Path) -> Recording:
    with (
        Recorder(tmp_path, launch="one", rank=0, world_size=2, framework="trl") as trainer,
        Recorder(tmp_path, launch="one", role="rollout") as first,
        Recorder(tmp_path, launch="one", role="rollout") as second,
        Recorder(tmp_path, launch="one", role="reward") as reward,
    ):
        trainer.step(1, loss=0.5)
        first.step(1, loss=7.0, queue=3)
        second.rank_step(2, queue=float("nan"))
        reward.step(1, latency=0.25)
    return Recording(tmp_path)


def test_workers_are_no_ranks_and_no_attempts_of_their_own(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    assert len(run.info.attempts) == 1
    assert run.info.world_size == 2
    assert run.info.framework == "trl"
    assert run.steps.step.tolist() == [1]
    assert run.steps.load("loss")[0].tolist() == [0.5]
    assert len(run.ranks) == 0
    assert run.info.attempts[0].ended == "completed"
    assert manifest.latest_attempt(tmp_path) == 1


def test_what_they_report_is_a_table_of_its_own(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    rows = query(run, "select role, step, metrics from workers order by role, step").rows
    roles = [(role, step) for role, step, _ in rows]
    assert roles == [("reward", 1), ("rollout", 1), ("rollout", 2)]
    assert dict(rows[0][2]) == {"latency": 0.25}
    assert dict(rows[1][2]) == {"loss": 7.0, "queue": 3.0}
    assert str(dict(rows[2][2])["queue"]) == "nan"


def test_a_scan_says_that_they_were_not_judged(tmp_path: Path) -> None:
    notes = recorded(tmp_path).info.notes
    assert notes == (
        "not judged: 1 row of 1 reward worker, 2 rows of 1 rollout worker (table `workers`)",
    )


def test_a_number_that_is_none_costs_itself(tmp_path: Path) -> None:
    with Recorder(tmp_path, role="rollout") as worker:
        worker.step(1, queue="long", depth=2)
        with pytest.warns(RuntimeWarning, match="no number"):
            worker.flush()
    rows = query(Recording(tmp_path), "select metrics from workers").rows
    assert [dict(row[0]) for row in rows] == [{"depth": 2.0}]
