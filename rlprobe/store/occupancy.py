"""Whether another run is being recorded into a directory: two at once would overtake each other.

A launch belongs to a run where it is the same job: ranks of one launch, a job that its scheduler
starts again, what a process that records starts itself. Who cannot be seen (another machine) is
taken for dead, as after any kind of death.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe.store import json_object, layout
from rlprobe.store import processes as process_files
from rlprobe.store.json_object import Fields
from rlprobe.store.living import ancestors
from rlprobe.store.processes import Process, alive

TRAINER = "trainer"
_LOOKED_AT = 3  # newest attempts that may still be living
UNNAMED = "world."  # begins the name of a launch that only tells how many processes it has


class OccupiedError(Exception):
    """Another run is being recorded into this directory."""

    def __init__(self, run_dir: Path, process: Process) -> None:
        super().__init__(f"process {process.pid} of another run is recording into '{run_dir}'")
        self.process = process


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who wants to open an attempt."""

    launch: str
    rank: int
    role: str


def check(run_dir: Path, latest: int, applicant: Applicant) -> None:
    """Raise OccupiedError if a process of another run still records one of the last attempts."""
    for number in range(latest, max(0, latest - _LOOKED_AT), -1):
        launch, members = _attempt(run_dir, number)
        for process in members:
            if _is_other(launch, process, applicant) and alive(process) and _is_foreign(process):
                raise OccupiedError(run_dir, process)


def _is_foreign(process: Process) -> bool:
    """Whether a process neither started this one nor was started by it."""
    own = os.getpid()
    ours = {own, *ancestors(own)}
    return process.pid not in ours and own not in ancestors(process.pid)


def _is_other(launch: str, process: Process, applicant: Applicant) -> bool:
    """Whether a process that has not ended belongs to another run than who comes now."""
    if process.status is not None:
        return False
    if launch == applicant.launch:  # two at the same place of one launch are two runs
        trains = process.role == applicant.role == TRAINER
        return trains and process.rank == applicant.rank
    return launch.startswith(UNNAMED) or _job(launch) != _job(applicant.launch)


def _job(launch: str) -> str:
    """A launch without the number of its restart."""
    job, dot, restart = launch.rpartition(".")
    return job if dot and restart.isdigit() else launch


def is_of(run_dir: Path, launch: str) -> bool:
    """Whether the newest attempt is of this launch, or nothing was ever recorded here."""
    folder = run_dir / layout.ATTEMPTS
    numbers = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]
    if numbers:
        return _attempt(run_dir, max(numbers))[0] == launch
    # another rank of ours may be about to open it: its folders are there, and no attempt yet
    own = {*schema.TABLES, layout.ATTEMPTS}
    return not run_dir.exists() or all(entry.name in own for entry in run_dir.iterdir())


def _attempt(run_dir: Path, number: int) -> tuple[str, tuple[Process, ...]]:
    """Whose launch an attempt is, and its processes; who opened it where none has a file yet."""
    raw: dict[str, Any] = {}
    try:
        raw = json_object.read(run_dir / layout.ATTEMPTS / f"{number:04d}.json", run_dir)
    except (OSError, ValueError):
        return "", ()
    members = process_files.processes(run_dir, number)
    if not members:
        opener = process_files.process_from(Fields({**raw, "rank": 0, "status": None}))
        members = () if opener is None else (opener,)
    return Fields(raw).text("launch") or "", members
