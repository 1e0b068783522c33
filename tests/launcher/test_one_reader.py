"""What `record` reads from output is what `scan` reads from the same text: rows and messages."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from rlprobe import diagnose
from rlprobe.cli import main
from rlprobe.importers import open_runs
from rlprobe.recorder import replacing
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording
from rlprobe.store.run import Run
from rlprobe.values import Event
from tests.launcher import console_logs

# Prints a file in pieces of any size, now and then with a pause: as output comes.
PRINTS = """
import random, sys, time
rng, content = random.Random(int(sys.argv[2])), open(sys.argv[1], "rb").read()
while content:
    size = rng.choice((1, 7, 50, 400, 3000))
    sys.stdout.buffer.write(content[:size])
    sys.stdout.buffer.flush()
    content = content[size:]
    if rng.random() < 0.02:
        time.sleep(0.6)
"""
OF_THE_LAUNCHER = {"run_started", "run_ended", "crash", "halted"}
SEVERAL = {"two trainings"}


def record(name: str, folder: Path, seed: int) -> tuple[Path, Recording]:
    """A log, and what recording a command that prints it leaves."""
    log = folder / "train.log"
    log.write_text(console_logs.text_of(name))
    words = [sys.executable, "-c", PRINTS, str(log), str(seed)]
    assert main(["record", "--run", str(folder / "run"), *words]) == 0
    return log, Recording(folder / "run")


def columns(frame: Frame) -> dict[str, Any]:
    """Steps and values of all metrics that were logged, by rank."""
    logged: dict[str, Any] = {}
    for name in frame.names:
        for rank, one in frame.series_by_rank(name).items():
            values = map(repr, one.values.tolist())
            logged[f"{name} of {rank}"] = list(zip(one.steps.tolist(), values, strict=True))
    return logged


def spans(run: Run) -> list[tuple[int | None, int | None]]:
    """From which step to which each attempt came."""
    return [(one.first_step, one.last_step) for one in run.info.attempts]


def findings(run: Run) -> list[tuple[str, int, int | None]]:
    """What a scan finds in a run."""
    report = diagnose(run)
    return [(one.detector, one.first_bad_step, one.resolved_by) for one in report.findings]


def told(events: tuple[Event, ...]) -> list[Any]:
    """Events of the output, in an order of their own."""
    every = [
        (one.attempt, one.kind, one.step, one.rank, one.message, sorted(map(str, one.data.items())))
        for one in events
        if one.kind not in OF_THE_LAUNCHER
    ]
    return sorted(every, key=repr)


@pytest.mark.parametrize("name", sorted(set(console_logs.LOGS) - SEVERAL))
def test_recording_reads_what_scanning_reads(name: str, tmp_path: Path) -> None:
    log, recorded = record(name, tmp_path, seed=random.Random(name).randrange(1000))
    (scanned,) = open_runs(log)
    assert len(scanned.steps)
    assert columns(recorded.steps) == columns(scanned.steps)
    assert columns(recorded.ranks) == columns(scanned.ranks)
    assert spans(recorded) == spans(scanned)
    assert told(recorded.events) == told(scanned.events)
    assert recorded.info.notes == scanned.info.notes
    assert recorded.info.unread == scanned.info.unread
    assert recorded.info.unmapped == scanned.info.unmapped
    assert recorded.info.algorithm == scanned.info.algorithm
    assert (recorded.info.framework or "generic") == (scanned.info.framework or "generic")
    assert not recorded.problems
    assert findings(recorded) == findings(scanned)


def test_rows_keep_their_times_where_their_steps_change(tmp_path: Path) -> None:
    """Rows that got their steps from a bar as it was seen, and get others in the end."""
    _, recorded = record("dicts of the Trainer beside its bar", tmp_path, seed=1)
    times = recorded.steps.time
    assert recorded.steps.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert (times[1:] >= times[:-1]).all()
    (started,) = [one.time for one in recorded.events if one.kind == "run_started"]
    (ended,) = [one for one in recorded.events if one.kind == "run_ended"]
    assert started <= times[0] <= times[-1] <= ended.time
    assert ended.step == 6


def test_a_message_keeps_the_time_at_which_it_came(tmp_path: Path) -> None:
    _, recorded = record("a collective that timed out", tmp_path, seed=1)
    (event,) = [one for one in recorded.events if one.kind == "collective_timeout"]
    (started,) = [one for one in recorded.events if one.kind == "run_started"]
    assert (event.rank, event.step) == (1, 4)
    assert started.time < event.time <= started.time + 60


def test_several_trainings_of_a_command_are_one_recording_and_that_is_said(tmp_path: Path) -> None:
    _, recorded = record("two trainings", tmp_path, seed=2)
    assert "2 trainings in this output, recorded as one" in recorded.info.notes
    assert len(recorded.steps) == 8


def test_a_launch_that_died_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    """What it logged before it was overtaken is not lost to the rows that came after."""
    _, recorded = record("a launch that died and was resumed", tmp_path, seed=2)
    first, second = recorded.info.attempts
    assert (first.ended, second.ended) == ("crashed", "completed")
    (crash,) = [one for one in recorded.events if one.kind == "crash"]
    assert (crash.attempt, crash.step) == (1, 7)
    assert crash.message == "RuntimeError: the loss is not finite"
    (ended,) = [one for one in recorded.events if one.kind == "run_ended"]
    assert (ended.attempt, ended.step) == (2, 11)
    resolved = {(one.detector, one.resolved_by) for one in diagnose(recorded).findings}
    assert resolved == {("NONFINITE_METRIC", 2), ("CRASH", 2)}


def test_a_failure_is_the_launchers_to_tell(tmp_path: Path) -> None:
    """The log's own end is the end of another process: the launcher sees its command's."""
    log = tmp_path / "train.log"
    lines = [f"step {step} | loss 0.{step}" for step in range(1, 6)]
    lines += ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
    log.write_text("\n".join([*lines, "ValueError: of another process", ""]))
    assert main(["record", "--run", str(tmp_path / "run"), "cat", str(log)]) == 0
    recorded = Recording(tmp_path / "run")
    assert [one.kind for one in recorded.events] == ["run_started", "run_ended"]
    assert len(recorded.steps) == 5


def test_what_came_as_a_scan_has_it_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[str] = []
    monkeypatch.setattr(replacing, "replace", lambda recorder, tables: again.extend(tables))
    record("Stable-Baselines3 tables", tmp_path, seed=3)
    assert again == []
