"""A disk that hangs for minutes: how long fork, signals, `describe` and such make training wait.

Each is done in turn, in a process whose writer hangs in `fsync`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter

FLUSH_SECONDS = 0.5
_SLACK = 1.0  # seconds for what is no waiting: a busy machine, the end of the process
IN_TIME, LATE, WRONG = "in time", "LATE", "WRONG END"

_START = f"""
import os, signal, sys, threading, time
from rlprobe import Recorder
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
hangs = threading.Event()
real = os.fsync
def fsync(descriptor):
    if armed:
        hangs.set(); time.sleep(600)
    real(descriptor)
armed = False
os.fsync = fsync
recorder = Recorder(sys.argv[1], flush_seconds={FLUSH_SECONDS})
recorder.step(0, loss=1.0)
recorder.flush()
armed = True
for step in range(1, 2000):
    recorder.step(step, loss=1.0)
hangs.wait(20)
begin = time.monotonic()
print("begun", flush=True)
"""
_END = """
print("took", time.monotonic() - begin, flush=True)
os._exit(0)
"""
# What is done, and the exit code that it has where nobody records.
ACTIONS = {
    "fork": ("if os.fork() == 0: os._exit(0)\nos.wait()", 0),
    "describe": ("recorder.describe(config={'beta': 0.1})", 0),
    "nan_detected": ("recorder.nan_detected(2000)", 0),
    "flush": ("recorder.flush()", 0),
    "close": ("recorder.close()", 0),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15),
    "SIGINT": ("signal.raise_signal(signal.SIGINT); time.sleep(60)", -2),
    "exit": ("sys.exit(7)", 7),
    "exception": ("raise RuntimeError('out of memory')", 1),
}


def attempt(action: str) -> str:
    """Do it once; whether it was in time."""
    code, expected = ACTIONS[action]
    with tempfile.TemporaryDirectory(prefix="rlprobe-waits-") as name:
        process = subprocess.Popen(
            [sys.executable, "-c", _START + code + _END, name + "/run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        begin = time.monotonic()
        try:
            rest, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return LATE
        took = float(rest.split()[1]) if rest else time.monotonic() - begin
    if process.returncode != expected:
        return f"{WRONG}: {process.returncode}"
    return IN_TIME if took <= FLUSH_SECONDS + _SLACK else f"{LATE}: {took:.1f} s"


def campaign(count: int, first: int = 0) -> Counter[str]:
    """Attempts in turn over all that may wait."""
    outcomes: Counter[str] = Counter()
    names = list(ACTIONS)
    for number in range(first, first + count):
        action = names[number % len(names)]
        outcome = attempt(action)
        outcomes[outcome.partition(":")[0]] += 1
        if outcome != IN_TIME:
            print(f"{action}: {outcome}", flush=True)
    return outcomes
