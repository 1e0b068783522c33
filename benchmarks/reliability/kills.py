"""kill -9 at random moments: of a recorder, of `compact`, of the launcher and of what it runs.

A victim tells over a pipe what it was promised (an event or a flush that returned); after its death
the recording must be readable, whole, and hold all of that.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rlprobe.recorder.recorder import Recorder
from rlprobe.store import compaction
from rlprobe.store.recording import Recording

LOST, UNREADABLE, REPEATED, HARMED, HELD = "LOST", "UNREADABLE", "REPEATED", "HARMED", "held"
_LONGEST = 0.12  # seconds that a victim lives at most
_SCRIPT = """
import os, sys, time
from rlprobe import Recorder
acks = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with Recorder(os.environ["RLPROBE_RUN"], flush_seconds=0.05) as recorder:
    for step in range(400):
        recorder.step(step, loss=1.0)
        if step % 20 == 7:
            recorder.nan_detected(step)
            os.write(acks, f"event {step}\\n".encode())
        if step % 50 == 0:
            print("step", step, flush=True)
        time.sleep(0.001)
os.write(acks, b"done 0\\n")
"""


@dataclass
class Promises:
    """What a victim was told to be on disk."""

    events: set[int] = field(default_factory=set)
    rows: int = 0  # all steps below
    done: bool = False

    def hear(self, text: str) -> None:
        """Take what was told; a line that was cut by the death was not."""
        for line in text.rpartition("\n")[0].splitlines():
            kind, _, number = line.partition(" ")
            if kind == "event":
                self.events.add(int(number))
            elif kind == "rows":
                self.rows = max(self.rows, int(number))
            elif kind == "done":
                self.done = True


def judged(run_dir: Path, promises: Promises) -> str:
    """What became of a recording, against what was promised of its last attempt."""
    try:
        recording = Recording(run_dir)
        attempt = recording.info.attempts[-1].number
        steps = recording.steps.step[recording.steps.attempt == attempt].tolist()
        events = {
            event.step
            for event in recording.events
            if event.kind == "nan_detected" and event.attempt == attempt
        }
        for name in recording.steps.names:
            recording.steps.load(name)
        problems = recording.problems
    except Exception as error:
        return f"{UNREADABLE}: {type(error).__name__}: {error}"
    if problems:
        return f"{UNREADABLE}: {problems[0].message}"
    if len(steps) != len(set(steps)):
        return REPEATED
    if missing := promises.events - events:
        return f"{LOST}: event of step {min(missing)}"
    if missing := set(range(promises.rows)) - set(steps):
        return f"{LOST}: row of step {min(missing)}"
    return HELD


# --- victims ---------------------------------------------------------------------------------


def kill_recorder(random: Random, folder: Path) -> str:
    """A process that records steps, rollouts and events; its directory may hold an earlier one."""
    run_dir = folder / "run"
    outcome = HELD
    for _ in range(random.choice((1, 1, 2))):
        promises = _killed(lambda acks: _record(run_dir, acks), random.uniform(0, _LONGEST))
        outcome = judged(run_dir, promises) if (run_dir / "run.json").exists() else HELD
        if outcome != HELD:
            break
    return outcome


def _record(run_dir: Path, acks: int) -> None:
    recorder = Recorder(run_dir, flush_seconds=0.01)
    for step in range(1_000_000):
        recorder.step(step, loss=1.0, reward_mean=0.5)
        if step % 97 == 0:
            recorder.samples(step, prompts=["p"] * 4, completions=["c"] * 4, rewards=[0.5] * 4)
        if step % 61 == 13:
            recorder.nan_detected(step)
            os.write(acks, f"event {step}\nrows {step + 1}\n".encode())
        if step % 151 == 50:
            recorder.flush()
            os.write(acks, f"rows {step + 1}\n".encode())
        if step % 10 == 0:
            time.sleep(0.0005)


def kill_compact(random: Random, folder: Path) -> str:
    """`compact` over what writers left behind; afterwards it is run to its end."""
    run_dir = folder / "run"
    shutil.copytree(_left_behind(), run_dir)
    promises = Promises(events=set(range(0, _ROWS, 10)), rows=_ROWS)
    _killed(lambda _: compaction.compact(run_dir), random.uniform(0, 0.05))
    outcome = judged(run_dir, promises)
    if outcome == HELD:
        compaction.compact(run_dir)
        outcome = judged(run_dir, promises)
    return outcome


_ROWS = 120


@functools.cache
def _left_behind() -> Path:
    """A recording of many small shards whose writer died."""
    parent = Path(tempfile.mkdtemp(prefix="rlprobe-kills-"))
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    folder = parent / "run"

    def record(acks: int) -> None:
        recorder = Recorder(folder, flush_seconds=60)
        for step in range(_ROWS):
            recorder.step(step, loss=1.0)
            if step % 10 == 0:
                recorder.nan_detected(step)
        recorder.flush()
        os.write(acks, b"done 0\n")
        time.sleep(60)

    assert _killed(record, 60, until_done=True).done
    return folder


def _killed(
    victim: Callable[[int], object], seconds: float, *, until_done: bool = False
) -> Promises:
    """Run a function in a child, kill it after some seconds; what it was promised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            victim(writer)
        os._exit(0)
    os.close(writer)
    end, parts = time.monotonic() + seconds, bytearray()
    while (rest := end - time.monotonic()) > 0:
        if not select.select([reader], [], [], rest)[0]:
            break
        piece = os.read(reader, 65_536)
        if not piece:
            break
        parts += piece
        if until_done and b"done" in parts:
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(reader, 65_536):
        parts += piece
    os.close(reader)
    promises = Promises()
    promises.hear(parts.decode())
    return promises


def kill_launcher(random: Random, folder: Path) -> str:
    """`rlprobe record` dies; what it runs goes on to its end, prints on, and is recorded."""
    launcher, acks = _launched(folder)
    time.sleep(random.uniform(0.0, 1.2))
    launcher.kill()
    launcher.wait()
    if not acks.exists() and not _appears(acks, 2.0):
        return HELD  # killed before it had started the command
    promises = _heard(acks)
    end = time.monotonic() + 20
    while not promises.done and time.monotonic() < end:
        time.sleep(0.05)
        promises = _heard(acks)
    if not promises.done:
        return f"{HARMED}: the command ended with its launcher"
    return judged(folder / "run", promises)


def kill_command(random: Random, folder: Path) -> str:
    """What `rlprobe record` runs is killed; the launcher says so with its exit code."""
    launcher, acks = _launched(folder)
    if not _appears(acks, 20.0):
        launcher.kill()
        return f"{HARMED}: the command did not start"
    time.sleep(random.uniform(0.0, 0.4))
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    code = launcher.wait(30)
    promises = _heard(acks)
    if code != (0 if promises.done else 128 + signal.SIGKILL):
        return f"{HARMED}: exit code {code}"
    outcome = judged(folder / "run", promises)
    if outcome == HELD and not promises.done:
        ended = Recording(folder / "run").info.attempts[-1].ended
        return HELD if ended == "killed" else f"{LOST}: how it ended ({ended})"
    return outcome


def _launched(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    script, acks = folder / "train.py", folder / "acks"
    script.write_text(_SCRIPT)
    command = [sys.executable, str(script), str(acks)]
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "rlprobe", "record", "--run", str(folder / "run"), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return launcher, acks


def _appears(path: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists():
            return True
        time.sleep(0.01)
    return False


def _heard(acks: Path) -> Promises:
    promises = Promises()
    promises.hear(acks.read_text())
    return promises


VICTIMS = {
    "recorder": kill_recorder,
    "compact": kill_compact,
    "launcher": kill_launcher,
    "command": kill_command,
}


def campaign(kind: str, count: int, first: int = 0) -> Counter[str]:
    """So many kills of one kind: how often what was promised held, and what else happened."""
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(prefix="rlprobe-kills-") as name:
            outcome = VICTIMS[kind](Random(f"{kind} {seed}"), Path(name))
        outcomes[outcome.partition(":")[0]] += 1
        if outcome != HELD:
            print(f"{kind}, seed {seed}: {outcome}", flush=True)
    return outcomes
