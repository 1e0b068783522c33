"""What cannot be written waits in memory within a limit; what goes first is worth least."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe import Recorder, SamplePolicy
from rlprobe.errors import UsageError
from rlprobe.recorder.backlog import Backlog
from rlprobe.recorder.buffer import Buffer
from rlprobe.recorder.health import Health
from rlprobe.store.recording import Recording

MB = 1024 * 1024


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Disk:
    """The sink of a recorder, which can be full or hang."""

    def __init__(self, recorder: Recorder) -> None:
        self.sink = recorder._sink
        self.works = self.sink.write
        self.gate = threading.Event()

    def fill(self) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        self.sink.write = full  # type: ignore[method-assign, assignment]

    def hang(self) -> None:
        def hanging(*given: Any) -> None:
            self.gate.wait(60)
            self.works(*given)

        self.sink.write = hanging  # type: ignore[method-assign, assignment]

    def mend(self) -> None:
        self.sink.write = self.works  # type: ignore[method-assign]
        self.gate.set()


def test_rollouts_go_first_then_rows_and_events_stay(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, signals=False, flush_seconds=60, backlog_bytes=MB)
    disk = Disk(recorder)
    recorder.flush()
    disk.fill()
    for step in range(100):
        recorder.step(step, loss=1.0)
        recorder.event("mine", step=step)
        recorder.samples(step, prompts=["p"], completions=["x" * 50_000])
        recorder.flush()
        assert recorder._writer.backlog.bytes + recorder._buffer.waiting() < 1.1 * MB
    disk.mend()
    recorder.close()
    run = Recording(tmp_path)
    assert len(run.steps) == 100
    assert sum(event.kind == "mine" for event in run.events) == 100
    dropped = next(event for event in run.events if event.kind == "recorder_dropped")
    kept = run.sample_steps()
    assert 0 < len(kept) < 100
    assert kept[-1] == 99, "the newest are kept"
    assert f"{100 - len(kept)} dropped samples rows" in run.info.health
    assert dropped.data["dropped_samples_rows"] == 100 - len(kept)


def test_the_oldest_rows_go_and_the_loss_is_told_as_soon_as_a_write_works(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, signals=False, flush_seconds=60, backlog_bytes=100_000)
    disk = Disk(recorder)
    recorder.flush()
    disk.fill()
    for step in range(2000):
        recorder.step(step, loss=1.0)
        if step % 20 == 19:
            recorder.flush()
    assert recorder.nan_detected(2000, "loss") is False
    disk.mend()
    assert recorder.flush() is True
    run = Recording(tmp_path)  # of a process that lives on
    steps = run.steps.step.tolist()
    assert steps == list(range(2000 - len(steps), 2000))
    assert 50 < len(steps) < 400
    dropped = [event for event in run.events if event.kind == "recorder_dropped"]
    assert dropped[0].data["dropped_steps_rows"] == 2000 - len(steps)
    assert f"{2000 - len(steps):,} dropped steps rows" in run.info.health
    assert "nan_detected" in [event.kind for event in run.events]
    recorder.close()


def test_while_the_disk_hangs_training_makes_room_itself(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, signals=False, flush_seconds=0.01, backlog_bytes=MB)
    disk = Disk(recorder)
    recorder.flush()
    disk.hang()
    recorder.event("mine", step=0)
    time.sleep(0.1)  # the writer hangs with this row
    slowest = 0.0
    for step in range(20_000):
        begin = time.perf_counter()
        recorder.step(step, loss=1.0, rewards=np.zeros(4))
        slowest = max(slowest, time.perf_counter() - begin)
    assert recorder._buffer.waiting() < MB
    disk.mend()
    recorder.close()
    run = Recording(tmp_path)
    steps = run.steps.step.tolist()
    assert steps[-1] == 19_999
    assert f"{20_000 - len(steps):,} dropped steps rows" in run.info.health
    assert "mine" in [event.kind for event in run.events]
    assert slowest < 1.0


def test_a_large_value_counts_with_its_size() -> None:
    buffer = Buffer(Health(), limit=10 * MB)
    for step in range(10):
        buffer.push_sized(buffer.rows, ("steps", step, 0.0, {}), 4 * MB)
        assert buffer.waiting() <= 10 * MB
    assert [row[1] for row in buffer.drain()] == [8, 9]
    assert buffer.waiting() == 0


def test_the_newest_event_is_never_dropped() -> None:
    buffer = Buffer(Health(), limit=1000)
    for step in range(5):
        buffer.push_sized(buffer.events, ("events", step, 0.0, {}), 5000)
    assert [row[1] for row in buffer.drain()] == [4]


def test_an_event_that_is_dropped_is_not_called_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path, signals=False, flush_seconds=60, backlog_bytes=10_000)
    recorder.flush()
    request = recorder._writer.request

    def crowded(*given: Any, **named: Any) -> Any:
        for step in range(50):  # of another thread, before the writer's gets to it
            recorder.event("mine", step=step)
        return request(*given, **named)

    monkeypatch.setattr(recorder._writer, "request", crowded)
    monkeypatch.setattr(recorder._buffer.wake, "call", lambda: None)
    assert recorder.nan_detected(1, "loss") is False
    monkeypatch.undo()
    recorder.close()
    run = Recording(tmp_path)
    assert "nan_detected" not in [event.kind for event in run.events]
    assert "dropped events rows" in run.info.health


def test_single_rows_can_be_taken_out_of_a_backlog() -> None:
    backlog = Backlog()
    for number in range(6):
        backlog.add("steps", number, 10)
    backlog.discard("steps", {1, 3})
    assert backlog.oldest("steps", 1000) == [0, 2, 4, 5]
    assert (backlog.bytes, backlog.counts()) == (40, {"steps": 4})
    assert backlog.oldest("steps", 25) == [0, 2]
    assert backlog.oldest("steps", 5) == [0], "one at least"


def test_a_limit_must_be_above_0(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'0' bytes"):
        Recorder(tmp_path, backlog_bytes=0)


def test_memory_stays_bounded_while_nothing_can_be_written(tmp_path: Path) -> None:
    recorder = Recorder(
        tmp_path,
        signals=False,
        flush_seconds=0.05,
        backlog_bytes=16 * MB,
        samples=SamplePolicy(text="full", groups=64),
    )
    disk = Disk(recorder)
    recorder.samples(0, prompts=["p"], completions=["x" * MB])
    recorder.flush()  # whatever is loaded and set up with the first shard
    disk.fill()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for step in range(100):
        texts = [f"{step} {index} " + "x" * 250_000 for index in range(8)]
        recorder.samples(step, prompts=["p"] * 8, completions=texts, group_size=8)
        time.sleep(0.005)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    disk.mend()
    recorder.close()
    assert grown < 100, f"{grown:.0f} MB for a limit of 16 MB"


def test_a_loss_is_said_on_stderr_once(tmp_path: Path) -> None:
    code = """
import sys
from rlprobe import Recorder
recorder = Recorder(sys.argv[1], backlog_bytes=100_000, flush_seconds=60)
def full(*_): raise OSError(28, "No space left on device")
recorder._sink.write, works = full, recorder._sink.write
for step in range(3000):
    recorder.step(step, loss=1.0)
    if step % 500 == 0: recorder.flush()
recorder._sink.write = works
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("rows of steps are dropped") == 1
    assert done.stderr.count("No space left on device") == 1
