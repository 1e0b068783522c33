"""However a process ends, what it recorded is on disk. Real processes, really ended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlprobe.store.recording import Recording
from rlprobe.values import Event

START = """
import os, signal, sys, time
from rlprobe import Recorder
recorder = Recorder(sys.argv[1], flush_seconds=float(sys.argv[2]))
"""


def run(code: str, path: Path, *, flush_seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START + code, str(path), str(flush_seconds)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def start(code: str, path: Path, *, flush_seconds: float = 60.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + code, str(path), str(flush_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def steps(recording: Recording) -> list[int]:
    series = recording.steps.series("loss")
    return [] if series is None else [int(step) for step in series.steps]


def events(recording: Recording, kind: str) -> list[Event]:
    return [event for event in recording.events if event.kind == kind]


def test_exit_without_close(tmp_path: Path) -> None:
    assert run("recorder.step(1, loss=1.0)", tmp_path).returncode == 0
    recording = Recording(tmp_path)
    assert steps(recording) == [1]
    assert recording.info.attempts[0].ended == "completed"


def test_uncaught_exception(tmp_path: Path) -> None:
    code = """
hook = sys.excepthook
recorder.step(9, loss=1.0)
raise ValueError("no such prompt")
"""
    done = run(code, tmp_path)
    assert done.returncode == 1
    assert "ValueError: no such prompt" in done.stderr
    recording = Recording(tmp_path)
    assert steps(recording) == [9]
    crash = events(recording, "crash")[0]
    assert (crash.step, crash.data["exception"]) == (9, "ValueError")
    assert recording.info.attempts[0].ended == "crashed"


def test_an_earlier_excepthook_still_runs(tmp_path: Path) -> None:
    code = """
import sys, importlib
from rlprobe.recorder import lifecycle
lifecycle._installed["excepthook"] = lambda *a: print("mine", a[1])
raise ValueError("x")
"""
    assert run(code, tmp_path).stdout == "mine x\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal(tmp_path: Path, number: signal.Signals) -> None:
    code = "recorder.step(4, loss=1.0); print('up', flush=True); time.sleep(60)"
    process = start(code, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number
    recording = Recording(tmp_path)
    assert steps(recording) == [4]
    assert events(recording, "halted")[0].data["signal"] == number
    assert recording.info.attempts[0].ended == "halted"


def test_an_earlier_signal_handler_still_runs_and_may_go_on(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
from rlprobe.recorder import lifecycle
lifecycle._install_signals()
os.kill(os.getpid(), signal.SIGTERM)
recorder.step(5, loss=1.0)
recorder.close()
"""
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert steps(Recording(tmp_path)) == [5]


def test_signals_in_the_middle_of_flushes_lose_nothing(tmp_path: Path) -> None:
    code = """
print('up', flush=True)
step = 0
while True:
    step += 1
    recorder.step(step, loss=1.0)
    recorder.flush()
    print(step, flush=True)
"""
    process = start(code, tmp_path)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    told = [int(line) for line in output.split()]
    recorded = steps(Recording(tmp_path))
    assert process.returncode == -signal.SIGTERM
    assert recorded == list(range(1, len(recorded) + 1))
    assert len(recorded) >= max(told, default=19)


def test_fork_does_not_write_the_parents_rows_twice(tmp_path: Path) -> None:
    code = """
recorder.step(1, loss=1.0)
child = os.fork()
if child == 0:
    recorder.rank_step(1, loss=5.0)
    recorder.flush()
    os._exit(0)
os.waitpid(child, 0)
recorder.step(2, loss=2.0)
"""
    assert run(code, tmp_path).returncode == 0
    recording = Recording(tmp_path)
    assert steps(recording) == [1, 2]
    assert len(recording.steps) == 2
    assert len(recording.ranks) == 1
    assert len(events(recording, "run_ended")) == 1


def test_workers_of_multiprocessing_write_their_own_rows(tmp_path: Path) -> None:
    code = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
def work(n):
    recorder.rank_step(n, loss=float(n))
recorder.step(1, loss=1.0)
context = multiprocessing.get_context("fork")
workers = [context.Process(target=work, args=(n,)) for n in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
"""
    assert run(code, tmp_path).returncode == 0
    recording = Recording(tmp_path)
    assert sorted(recording.ranks.step.tolist()) == [0, 1, 2, 3]
    assert steps(recording) == [1]


def test_the_end_of_a_child_is_not_the_runs(tmp_path: Path) -> None:
    code = """
with recorder:
    recorder.step(1, loss=1.0)
    child = os.fork()
    if child == 0:
        recorder.rank_step(2, loss=1.0)
    else:
        os.waitpid(child, 0)
        recorder.step(3, loss=1.0)
"""
    assert run(code, tmp_path).returncode == 0
    recording = Recording(tmp_path)
    assert steps(recording) == [1, 3]
    assert recording.ranks.step.tolist() == [2]
    assert len(events(recording, "run_ended")) == 1


def test_a_signal_during_a_fork_is_handled_after_it(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
from rlprobe.recorder import lifecycle
lifecycle._install_signals()
lifecycle._each("before_fork")
os.kill(os.getpid(), signal.SIGTERM)
print("forking", flush=True)
lifecycle._after_fork_in_parent()
recorder.step(5, loss=1.0)
"""
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "forking\nmine\n")
    recording = Recording(tmp_path)
    assert steps(recording) == [5]
    assert len(events(recording, "halted")) == 1


def test_an_interrupted_close_is_finished_at_exit(tmp_path: Path) -> None:
    code = """
recorder.step(1, loss=1.0)
real, slow = os.fsync, [True]
def sync(descriptor):
    if slow: time.sleep(0.5)
    real(descriptor)
os.fsync = sync
import threading
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    recorder.close()
except KeyboardInterrupt:
    print("interrupted", flush=True)
slow.clear()
"""
    done = run(code, tmp_path)
    assert done.returncode == -signal.SIGINT or "interrupted" in done.stdout, done.stderr
    recording = Recording(tmp_path)
    assert steps(recording) == [1]
    assert recording.info.attempts[0].ended in {"completed", "halted"}


def test_a_nan_event_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    code = """
recorder.step(1, loss=1.0)
recorder.nan_detected(1, "gradient", nan_count=3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(code, tmp_path).returncode == -signal.SIGKILL
    recording = Recording(tmp_path)
    assert steps(recording) == [1]
    assert events(recording, "nan_detected")[0].data["nan_count"] == 3
    assert recording.info.attempts[0].ended == "vanished"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_recorder_made_in_a_worker_is_written(tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import multiprocessing, sys
from rlprobe import Recorder

def work(path):
    recorder = Recorder(path, flush_seconds=60)
    recorder.step(1, loss=1.0)
    if "failing" in path:
        raise ValueError("no such prompt")

if __name__ == "__main__":
    worker = multiprocessing.get_context({method!r}).Process(target=work, args=(sys.argv[1],))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
""")
    for name, ended in (("run", "completed"), ("failing", "crashed")):
        command = [sys.executable, str(script), str(tmp_path / name)]
        done = subprocess.run(command, check=False, timeout=60, capture_output=True)
        assert done.returncode == (name == "failing")
        recording = Recording(tmp_path / name)
        assert steps(recording) == [1]
        assert recording.info.attempts[0].ended == ended


def test_a_live_run_is_running_and_readable(tmp_path: Path) -> None:
    code = "recorder.step(1, loss=1.0); print('up', flush=True); time.sleep(60)"
    process = start(code, tmp_path, flush_seconds=0.05)
    assert process.stdout is not None
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not steps(Recording(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    recording = Recording(tmp_path)
    ended = recording.info.attempts[0].ended
    process.kill()
    process.communicate()
    assert steps(recording) == [1]
    assert ended == "running"


LOOP = """
step = 0
while True:
    step += 1
    recorder.step(step, loss=float(step), t=time.time())
    if step % 50 == 0:
        recorder.nan_detected(step, "gradient", nan_count=step)
        print(step, time.time(), flush=True)
    time.sleep(0.0005)
"""
FLUSH_SECONDS = 0.2


def kill_once(path: Path, delay: float) -> None:
    process = start(LOOP, path, flush_seconds=FLUSH_SECONDS)
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(delay)
    killed = time.time()
    os.kill(process.pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=30)
    returned = [int(line.split()[0]) for line in (first + output).splitlines()]

    recording = Recording(path)
    recorded = steps(recording)
    found = {event.step for event in events(recording, "nan_detected")}
    assert recording.problems == ()
    assert recorded == list(range(1, len(recorded) + 1)), "a hole, or a row twice"
    assert set(returned) <= found, "a nan_detected whose call had returned is missing"
    times = recording.steps.series("t")
    assert times is not None
    slack = 2.0  # a busy machine may be late with a flush
    assert killed - times.values[-1] < FLUSH_SECONDS + slack
    assert recording.info.attempts[0].ended == "vanished"


def test_kill_9_at_a_few_random_moments(tmp_path: Path) -> None:
    moments = random.Random(1)
    for index in range(4):
        kill_once(tmp_path / str(index), moments.uniform(0.0, 1.0))


@pytest.mark.integration
def test_kill_9_at_50_random_moments(tmp_path: Path) -> None:
    moments = random.Random(2)
    for index in range(50):
        kill_once(tmp_path / str(index), moments.uniform(0.0, 2.5))
