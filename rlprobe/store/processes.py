"""The processes of an attempt: what each says of itself, whether it lives, how it all ended."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlprobe.errors import InputError
from rlprobe.store import admission, json_object, layout
from rlprobe.store.json_object import Fields
from rlprobe.store.living import lives
from rlprobe.values import Problem

ENDS = frozenset({"completed", "crashed", "halted", "killed"})  # what a process says of its end
LAUNCHER_RANK = -1  # the `rlprobe record` process itself; -1 - r where each rank r has one
WORKER_RANK = -(1 << 19)  # of every process that is neither a rank nor a launcher
MOST_RANK = 1 << 20
_MOST_PID = 1 << 22

Note = Callable[[Problem], None]


def pass_over(problem: Problem) -> None:
    """For who has nobody to tell."""


def leads(rank: int) -> bool:
    """Whether a process writes what all of them have in common: rank 0, or a launcher."""
    return WORKER_RANK < rank <= 0


def launches(rank: int) -> bool:
    """Whether a process is a launcher."""
    return WORKER_RANK < rank < 0


@dataclass(frozen=True, slots=True)
class Process:
    """One recording process of an attempt, as its file tells."""

    rank: int
    role: str
    host: str
    pid: int
    born: float
    started: float
    status: str | None
    ended: float | None
    health: Mapping[str, Any]


def processes(run_dir: Path, attempt: int, note: Note = pass_over) -> tuple[Process, ...]:
    """The processes that recorded an attempt; `note` is told of those that cannot be read."""
    folder = run_dir / layout.ATTEMPTS / f"{attempt:04d}"
    why = admission.directory_problem(folder, run_dir)
    if why:
        note(Problem(str(folder), f"left out: {why}", layout.ATTEMPTS))
        return ()
    read = (read_process(path, note) for path in sorted(folder.glob("r*.json")))
    return tuple(process for process in read if process is not None)


def process_of(run_dir: Path, attempt: int, rank: int, writer: str) -> Process | None:
    """The process that wrote shards under this name, if its file is there and readable."""
    return read_process(process_path(run_dir, attempt, rank, writer))


def process_path(run_dir: Path, attempt: int, rank: int, writer: str) -> Path:
    """Where a process tells of itself."""
    return run_dir / layout.ATTEMPTS / f"{attempt:04d}" / f"r{rank:05d}-{writer}.json"


def read_process(path: Path, note: Note = pass_over) -> Process | None:
    """One process's file; None if it cannot be read."""
    try:
        raw = json_object.read(path, path.parents[2])
    except FileNotFoundError:
        return None
    except (ValueError, InputError) as error:
        note(Problem(str(path), f"left out: {error}", layout.ATTEMPTS))
        return None
    fields = Fields(raw)
    process = process_from(fields, path.name)
    if process is None or fields.unfit:
        named = ", ".join(fields.unfit) or "rank or status"
        note(Problem(str(path), f"{named}: not what it should be", layout.ATTEMPTS))
    return process


def process_from(fields: Fields, name: str = "") -> Process | None:
    """What a process's file says of it, and its file's name of its role; None if it is none."""
    rank = fields.count("rank", -MOST_RANK, MOST_RANK)
    status = fields.text("status")
    if rank is None or "status" in fields.unfit or status not in (None, *ENDS):
        return None
    return Process(
        rank=rank,
        role=name.partition("-")[2].partition(".")[0] if rank >= 0 else "",
        host=fields.text("host") or "",
        pid=fields.count("pid", 1, _MOST_PID) or 0,
        born=fields.number("born") or 0.0,
        started=fields.number("started") or 0.0,
        status=status,
        ended=fields.number("ended"),
        health=fields.members("health"),
    )


def alive(process: Process) -> bool | None:
    """Whether a process still runs; None if it ran on another machine."""
    if process.host != socket.gethostname() or not process.pid:
        return None
    return lives(process.pid, process.born)


def attempt_end(members: tuple[Process, ...]) -> str:
    """How an attempt ended, from what its processes left behind."""
    statuses = [process.status for process in members]
    for status in ("crashed", "killed", "halted"):
        if status in statuses:
            return status
    open_ended = [process for process in members if process.status is None]
    if members and not open_ended:
        return "completed"
    lives = [alive(process) for process in open_ended]
    if any(lives):
        return "running"
    return "unknown" if not members or None in lives else "vanished"
