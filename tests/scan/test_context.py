"""The run as detectors see it: one line through the attempts."""

from __future__ import annotations

from pathlib import Path

from rlprobe import Recorder
from rlprobe.scan.context import Context
from rlprobe.store.recording import Recording


def recorded(path: Path, attempts: list[tuple[int, int]]) -> Context:
    for number, (first, last) in enumerate(attempts, start=1):
        with Recorder(path) as recorder:
            for step in range(first, last + 1):
                recorder.step(step, loss=float(number))
                recorder.rank_step(step, loss=float(number))
            recorder.checkpoint(last, f"c{last}")
    return Context(Recording(path))


def test_the_latest_attempt_is_the_line(tmp_path: Path) -> None:
    context = recorded(tmp_path, [(1, 150), (101, 120)])
    loss = context.series("loss")
    assert loss is not None
    assert (context.first_step, context.last_step, context.interval) == (1, 120, 1)
    assert loss.values[99] == 1.0
    assert loss.values[100] == 2.0
    assert list(context.rank_series("loss")[0].values) == list(loss.values)


def test_events_of_steps_that_were_rolled_back_are_off_the_line(tmp_path: Path) -> None:
    context = recorded(tmp_path, [(1, 150), (101, 120)])
    assert [event.step for event in context.events("checkpoint")] == [120]


def test_attempts_that_follow_each_other_are_all_on_the_line(tmp_path: Path) -> None:
    context = recorded(tmp_path, [(1, 10), (11, 20), (21, 30)])
    loss = context.series("loss")
    assert loss is not None
    assert len(loss) == 30
    assert [event.step for event in context.events("checkpoint")] == [10, 20, 30]


def test_three_attempts_that_go_further_back_each_time(tmp_path: Path) -> None:
    context = recorded(tmp_path, [(1, 30), (21, 40), (11, 15)])
    loss = context.series("loss")
    assert loss is not None
    assert list(loss.steps) == list(range(1, 16))
    assert set(loss.values[10:]) == {3.0}


def test_the_interval_is_the_usual_distance(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        for step in (10, 20, 30, 31, 40, 50):
            recorder.step(step, loss=1.0)
    assert Context(Recording(tmp_path)).interval == 10
