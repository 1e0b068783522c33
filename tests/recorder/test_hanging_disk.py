"""A disk that hangs holds nothing up for longer than it may, and loses nothing that can be kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.store.recording import Recording

SLACK = 5.0  # seconds, for a busy machine; the disk hangs for 60
LIMIT = 1.0  # the least that anybody is patient


class HangingDisk:
    """`fsync` and renames that do not return until the disk is mended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._works = threading.Event()
        self._works.set()
        self.entered = threading.Event()
        sync, replace = os.fsync, Path.replace

        def hanging_sync(descriptor: int) -> None:
            self._wait()
            sync(descriptor)

        def hanging_replace(path: Path, to: Path) -> Path:
            self._wait()
            return replace(path, to)

        monkeypatch.setattr(os, "fsync", hanging_sync)
        monkeypatch.setattr(Path, "replace", hanging_replace)

    def _wait(self) -> None:
        if not self._works.is_set():
            self.entered.set()
            self._works.wait(60)

    def hang(self) -> None:
        self._works.clear()

    def mend(self) -> None:
        self._works.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hanging = HangingDisk(monkeypatch)
        yield hanging
        hanging.mend()


@pytest.fixture
def stuck(tmp_path: Path, disk: HangingDisk) -> Iterator[Recorder]:
    """A recorder whose writer hangs in the middle of a flush."""
    recorder = Recorder(tmp_path, signals=False, flush_seconds=0.05)
    recorder.step(0, loss=0.0)
    recorder.flush()
    disk.hang()
    recorder.step(1, loss=1.0)
    assert disk.entered.wait(10)
    yield recorder
    disk.mend()
    recorder.close()


def seconds(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def test_a_fork_does_not_wait_for_the_disk(stuck: Recorder) -> None:
    assert seconds(fork) < SLACK


def test_what_does_not_wait_returns_at_once(stuck: Recorder) -> None:
    begin = time.monotonic()
    for step in range(100):
        stuck.step(step, loss=1.0)
    assert time.monotonic() - begin < SLACK
    assert seconds(lambda: stuck.checkpoint(5, "ckpt")) < SLACK
    assert seconds(lambda: stuck.event("mine", "x")) < SLACK
    assert seconds(lambda: stuck.last_step) < SLACK


def test_what_waits_does_so_with_a_limit_and_only_once(
    stuck: Recorder, disk: HangingDisk, tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert seconds(lambda: stuck.describe(config={"a": 1})) < LIMIT + SLACK
        answers = []
        for step in range(20):  # the disk is known to hang: nobody is patient any more
            begin = time.monotonic()
            answers.append(stuck.nan_detected(step, "loss"))
            assert time.monotonic() - begin < SLACK
        assert seconds(stuck.flush) < SLACK
        assert seconds(stuck.close) < SLACK
    assert answers == [False] * 20
    said = [str(warning.message) for warning in caught]
    assert sum("did not answer" in text for text in said) == 1
    assert sum("'nan_detected' is recorded in memory" in text for text in said) == 1
    assert sum("not all of the recording" in text for text in said) == 1

    disk.mend()  # the process lives on: its writer catches up
    deadline = time.monotonic() + 20
    while Recording(tmp_path).info.attempts[0].ended != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run = Recording(tmp_path)
    assert run.steps.step.tolist() == [0, 1]
    assert [event.kind for event in run.events].count("nan_detected") == 20
    assert run.info.settings == {"a": 1}


def test_the_lock_is_free_while_the_disk_is_waited_for(stuck: Recorder) -> None:
    lock = stuck._writer._lock
    assert lock.acquire(timeout=1)
    lock.release()


def test_a_child_of_a_stuck_parent_records(
    stuck: Recorder, disk: HangingDisk, tmp_path: Path
) -> None:
    child = os.fork()
    if child == 0:
        disk.mend()
        stuck.rank_step(7, loss=1.0)
        os._exit(0 if stuck.flush() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert Recording(tmp_path).ranks.step.tolist() == [7]


def test_a_merge_does_not_hold_up_a_durable_event(tmp_path: Path, disk: HangingDisk) -> None:
    with Recorder(tmp_path, signals=False, flush_seconds=0.05) as recorder:
        for step in range(30):
            recorder.step(step, loss=1.0)
            assert recorder.nan_detected(step, "loss") is True
        assert Recording(tmp_path).steps.step.tolist() == list(range(30))


CODE = """
import os, sys, time
from rlprobe import Recorder
recorder = Recorder(sys.argv[1], flush_seconds=0.2)
recorder.step(0, loss=1.0)
recorder.flush()
real = os.fsync
os.fsync = lambda descriptor: (time.sleep(60), real(descriptor))
recorder.step(1, loss=1.0)
time.sleep(0.5)
print("up", flush=True)
"""


@pytest.mark.parametrize(
    ("last", "number", "code"),
    [
        ("time.sleep(60)", signal.SIGTERM, -signal.SIGTERM),
        ("time.sleep(60)", signal.SIGINT, -signal.SIGINT),
        ("sys.exit(7)", None, 7),
        ("raise ValueError('x')", None, 1),
        ("recorder.close(); sys.exit(5)", None, 5),
    ],
)
def test_the_process_ends_in_time_with_its_own_code(
    tmp_path: Path, last: str, number: int | None, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE + last, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    process.stdout.readline()
    begin = time.monotonic()
    if number is not None:
        process.send_signal(number)
    _, said = process.communicate(timeout=40)
    assert time.monotonic() - begin < 2 * LIMIT + 2 * SLACK
    assert process.returncode == code
    assert "did not answer" in said


def test_a_signal_while_a_durable_event_waits_is_handled(tmp_path: Path) -> None:
    code = CODE + (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "import threading\n"
        "threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()\n"
        "recorder.nan_detected(1, 'loss')\n"
        "sys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        timeout=40,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 9
