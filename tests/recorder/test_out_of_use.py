"""A recorder that goes out of use unclosed: its rows are written, and its thread ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.recorder import lifecycle
from rlprobe.store.recording import Recording

IN_A_FUNCTION = """
import sys, time
from rlprobe import Recorder
def train():
    recorder = Recorder(sys.argv[1], flush_seconds=float(sys.argv[2]))
    for step in range(500):
        recorder.step(step, loss=1.0)
    recorder.checkpoint(500, "ckpt/500")
train()
"""


def run(path: Path, *, flush_seconds: float = 60.0, code: str = "") -> tuple[int, Recording]:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FUNCTION + code, str(path), str(flush_seconds)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, Recording(path)


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rlprobe-writer"]


def wait_for_no_writers() -> None:
    deadline = time.monotonic() + 10
    while writers():
        assert time.monotonic() < deadline, writers()
        time.sleep(0.01)


@pytest.mark.parametrize("flush_seconds", [60.0, 0.05])
def test_its_rows_are_written(tmp_path: Path, flush_seconds: float) -> None:
    code, recording = run(tmp_path, flush_seconds=flush_seconds)
    assert code == 0
    assert recording.steps.step.tolist() == list(range(500))
    kinds = [event.kind for event in recording.events]
    assert kinds == ["run_started", "checkpoint", "run_ended"]
    assert recording.info.attempts[0].ended == "completed"


def test_what_the_process_dies_of_is_its_end(tmp_path: Path) -> None:
    code, recording = run(tmp_path, code="raise RuntimeError('CUDA out of memory')")
    assert code == 1
    assert len(recording.steps) == 500
    assert recording.info.attempts[0].ended == "crashed"
    assert recording.events[-1].message == "RuntimeError: CUDA out of memory"


def test_its_rows_are_on_disk_before_the_process_ends(tmp_path: Path) -> None:
    kill = """
import glob, os
deadline = time.monotonic() + 20
while not glob.glob(sys.argv[1] + "/steps/*.parquet") and time.monotonic() < deadline:
    time.sleep(0.05)
os.kill(os.getpid(), 9)
"""
    code, recording = run(tmp_path, code=kill)
    assert code == -9
    assert len(recording.steps) == 500


def test_its_thread_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, signals=False, flush_seconds=60)
    recorder.step(1, loss=1.0)
    del recorder
    gc.collect()
    wait_for_no_writers()
    recording = Recording(tmp_path)
    assert recording.steps.step.tolist() == [1]
    assert recording.info.attempts[0].ended == "running"


def test_many_leave_neither_threads_nor_themselves(tmp_path: Path) -> None:
    watched = len(lifecycle._watched)
    for number in range(20):
        recorder = Recorder(tmp_path / str(number), signals=False, flush_seconds=60)
        recorder.step(number, loss=1.0)
    del recorder
    gc.collect()
    wait_for_no_writers()
    assert len(lifecycle._watched) <= watched + 1
    for number in range(20):
        recording = Recording(tmp_path / str(number))
        assert recording.steps.step.tolist() == [number]
        if number < 18:  # the last but one was in use when the last began
            assert recording.info.attempts[0].ended == "completed"
            assert "without close()" in recording.events[-1].message
    with Recorder(tmp_path / "last", signals=False):
        pass
    wait_for_no_writers()
    for number in range(20):
        assert Recording(tmp_path / str(number)).info.attempts[0].ended == "completed"
    assert len(lifecycle._watched) <= watched


def test_a_closed_one_is_forgotten(tmp_path: Path) -> None:
    watched = len(lifecycle._watched)
    for number in range(5):
        with Recorder(tmp_path / str(number), signals=False) as recorder:
            recorder.step(1, loss=1.0)
    assert len(lifecycle._watched) <= watched
    wait_for_no_writers()
