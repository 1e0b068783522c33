"""run.json and the attempts: what the run is, who records it, how each launch ended.

The processes of one launch must agree on an attempt's number without locks or a server. The first
of them creates `attempts/0001.json` (exclusively) with the launch's key; the others find it and
claim their own rank in `attempts/0001/`. A rank that finds itself already claimed belongs to a new
launch, even where the launcher's environment is the same as last time.
"""

from __future__ import annotations

import json
import math
import os
import platform
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlprobe import schema
from rlprobe._version import __version__
from rlprobe.errors import InputError, NewerFormatError
from rlprobe.store import checksum, files, layout
from rlprobe.values import Attempt

ENDS = frozenset({"completed", "crashed", "halted", "killed"})  # what a process says of its end
LAUNCHER_RANK = -1  # the `rlprobe record` process itself


@dataclass(frozen=True, slots=True)
class Process:
    """One recording process of an attempt, as its file tells."""

    rank: int
    host: str
    pid: int
    born: float
    started: float
    status: str | None
    ended: float | None
    health: Mapping[str, Any]


def claim_attempt(run_dir: Path, launch: str, rank: int, writer: str, world_size: int) -> int:
    """Join the attempt of this launch, or open the next one; returns its number."""
    folder = run_dir / layout.ATTEMPTS
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        number = latest_attempt(run_dir)
        if number and _joins(folder, number, launch, rank):
            break
        number += 1
        text = checksum.sealed_json(
            {"launch": launch, "started": time.time(), "world_size": world_size}
        )
        if files.create_exclusive(folder / f"{number:04d}.json", text):
            break
    (folder / f"{number:04d}").mkdir(exist_ok=True)
    write_process(run_dir, number, rank, writer, started=time.time())
    return number


def add_attempt(run_dir: Path, attempt: Attempt, writer: str) -> None:
    """Write down an attempt of a run that happened elsewhere, with what is known of its end."""
    folder = run_dir / layout.ATTEMPTS
    (folder / f"{attempt.number:04d}").mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"launch": "imported", "world_size": attempt.world_size}
    if not math.isnan(attempt.started):
        content["started"] = attempt.started
    files.write_atomic(folder / f"{attempt.number:04d}.json", checksum.sealed_json(content))
    if attempt.ended in ENDS:
        started = 0.0 if math.isnan(attempt.started) else attempt.started
        write_process(run_dir, attempt.number, 0, writer, started=started, status=attempt.ended)


def _joins(folder: Path, number: int, launch: str, rank: int) -> bool:
    try:
        known = json.loads((folder / f"{number:04d}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    claims = folder / f"{number:04d}"
    taken = claims.is_dir() and any(claims.glob(f"r{rank:05d}-*.json"))
    return known.get("launch") == launch and not taken


def latest_attempt(run_dir: Path) -> int:
    """Number of the newest attempt; 0 if there is none."""
    numbers = [int(path.stem) for path in _attempt_files(run_dir)]
    return max(numbers, default=0)


def _attempt_files(run_dir: Path) -> list[Path]:
    folder = run_dir / layout.ATTEMPTS
    return sorted(path for path in folder.glob("*.json") if path.stem.isdigit())


def write_process(
    run_dir: Path,
    attempt: int,
    rank: int,
    writer: str,
    *,
    started: float,
    status: str | None = None,
    health: Mapping[str, Any] | None = None,
) -> None:
    """Write this process's own file: at the start without a status, at the end with one."""
    content = {
        "rank": rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "born": process_birth(os.getpid()),
        "started": started,
        "status": status,
        "ended": time.time() if status else None,
        "health": dict(health or {}),
    }
    path = process_path(run_dir, attempt, rank, writer)
    files.write_atomic(path, checksum.sealed_json(content))


def process_birth(pid: int) -> float:
    """When a process began, in clock ticks since boot; 0 where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return float(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0


def processes(run_dir: Path, attempt: int) -> tuple[Process, ...]:
    """The processes that recorded an attempt; unreadable files are passed over."""
    folder = run_dir / layout.ATTEMPTS / f"{attempt:04d}"
    read = (read_process(path) for path in sorted(folder.glob("r*.json")))
    return tuple(process for process in read if process is not None)


def process_of(run_dir: Path, attempt: int, rank: int, writer: str) -> Process | None:
    """The process that wrote shards under this name, if its file is there and readable."""
    return read_process(process_path(run_dir, attempt, rank, writer))


def process_path(run_dir: Path, attempt: int, rank: int, writer: str) -> Path:
    """Where a process tells of itself."""
    return run_dir / layout.ATTEMPTS / f"{attempt:04d}" / f"r{rank:05d}-{writer}.json"


def read_process(path: Path) -> Process | None:
    """One process's file; None if it cannot be read."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Process(**{name: raw[name] for name in Process.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def alive(process: Process) -> bool | None:
    """Whether a process still runs; None if it ran on another machine."""
    if process.host != socket.gethostname():
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process_birth(process.pid) == process.born


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


def attempts(run_dir: Path) -> tuple[Attempt, ...]:
    """Every attempt, oldest first, without its steps."""
    return tuple(_attempt(run_dir, path) for path in _attempt_files(run_dir))


def _attempt(run_dir: Path, path: Path) -> Attempt:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raw = {}
    number = int(path.stem)
    members = processes(run_dir, number)
    started = float(raw.get("started", math.nan))
    # Who came first may have been a launcher, which does not know how many will follow.
    world = max(int(raw.get("world_size", 1)), *(member.rank + 1 for member in members), 1)
    return Attempt(number, ended=attempt_end(members), started=started, world_size=world)


def health(run_dir: Path) -> dict[str, int]:
    """What the recorders of all attempts lost, summed by kind."""
    totals: dict[str, int] = {}
    for path in _attempt_files(run_dir):
        for process in processes(run_dir, int(path.stem)):
            for kind, count in process.health.items():
                if isinstance(count, int) and count:
                    totals[kind] = totals.get(kind, 0) + count
    return totals


def read(run_dir: Path) -> dict[str, Any]:
    """The manifest; {} if it is missing or torn (the tables still tell most).

    Raises:
        NewerFormatError: written by a newer rlprobe.
    """
    path = run_dir / layout.MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(raw, dict):
        return {}
    version = raw.get("format_version", 0)
    if isinstance(version, int) and version > schema.FORMAT_VERSION:
        raise NewerFormatError(
            f"Couldn't read recording '{run_dir}': format {version}, this rlprobe knows "
            f"{schema.FORMAT_VERSION}",
            hint="Upgrade rlprobe.",
        )
    return raw


def update(run_dir: Path, changes: Mapping[str, Any]) -> None:
    """Merge changes into the manifest, creating it if need be. Only rank 0 or a launcher calls it.

    None never overwrites what is known; `config` and `environment` are merged key by key.
    """
    content = read(run_dir) or {
        "format_version": schema.FORMAT_VERSION,
        "id": f"{run_dir.name}-{uuid.uuid4().hex[:8]}",
        "created": time.time(),
        "rlprobe_version": __version__,
    }
    for key, value in changes.items():
        if key in {"config", "environment"}:
            content[key] = {**content.get(key, {}), **(value or {})}
        elif value is not None:
            content[key] = value
    content["attempts"] = [
        {
            "number": a.number,
            "started": None if math.isnan(a.started) else a.started,
            "world_size": a.world_size,
            "ended": a.ended,
        }
        for a in attempts(run_dir)
    ]
    text = checksum.sealed_json(content, indent=1)
    files.write_atomic(run_dir / layout.MANIFEST, text + "\n")


def environment() -> dict[str, Any]:
    """What is worth knowing about the machine and its packages, cheaply."""
    packages = ("torch", "transformers", "trl", "accelerate", "deepspeed", "vllm")
    loaded = {
        name: getattr(sys.modules[name], "__version__", "?")
        for name in packages
        if name in sys.modules
    }
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": loaded,
    }


def prepare(run_dir: Path) -> None:
    """Create the run directory's folders.

    Raises:
        InputError: the path is a file, or the directory cannot be written.
    """
    try:
        for table in schema.TABLES:
            (run_dir / table).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"Couldn't record into '{run_dir}': {reason}", hint="Choose a directory you can write."
        ) from error
