"""The spool of a process without a recorder, and children that it forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rlprobe import environment

# Rows wait a fifth of a second: a fork finds some that are not written.
FORKS = """
import os, sys
from rlprobe.taps import spool
from rlprobe.taps.streams import Stream

stream = Stream("test", 0)
run = spool.open_run(0, stream)
for step in range(300):
    run.row("log", stream, {"loss": 1.0}, step, axes=False)
    if step % 10 == 0:
        if os.fork() == 0:
            sys.exit()
        os.wait()
"""
WORKS = """
import multiprocessing
from rlprobe.taps import spool
from rlprobe.taps.streams import Stream

def work():
    stream = Stream("test", 0)
    run = spool.open_run(0, stream)
    run.row("log", stream, {"loss": 1.0}, 7, axes=False)

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
"""


def spooled(code: str, status: Path) -> list[list[int]]:
    """The steps in each spool that a program leaves, each with its end."""
    status.mkdir()
    environ = {environment.STATUS: str(status), environment.RUN: str(status / "run")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environ)
    spools = []
    for path in sorted(status.glob("spool-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[-1] == {"lost": 0, "end": True}
        spools.append([line["step"] for line in lines if "step" in line])
    return spools


def test_forked_children_leave_the_rows_of_their_parent_alone(tmp_path: Path) -> None:
    assert spooled(FORKS, tmp_path / "status") == [list(range(300))]


def test_a_child_of_multiprocessing_writes_its_rows_at_its_end(tmp_path: Path) -> None:
    assert spooled(WORKS, tmp_path / "status") == [[7]]
