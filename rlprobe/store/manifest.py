"""run.json and the attempts: what the run is, who records it, how each launch ended.

The processes of one launch must agree on an attempt's number without locks or a server. The first
of them creates `attempts/0001.json` (exclusively) with the launch's key; the others find it and
claim their own rank in `attempts/0001/`. A rank that finds itself already claimed belongs to a new
launch, even where the launcher's environment is the same as last time.
"""

from __future__ import annotations

import math
import os
import platform
import re
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlprobe import environment as names
from rlprobe import redaction, schema
from rlprobe._version import __version__
from rlprobe.errors import InputError, NewerFormatError
from rlprobe.store import admission, checksum, files, json_object, layout, modes, occupancy
from rlprobe.store import processes as process_files
from rlprobe.store.json_object import Fields
from rlprobe.store.living import process_birth
from rlprobe.store.processes import (
    ENDS,
    MOST_RANK,
    WORKER_RANK,
    Note,
    attempt_end,
    pass_over,
    process_path,
)
from rlprobe.values import Attempt, Problem

LAUNCHER_RANK = process_files.LAUNCHER_RANK
processes = process_files.processes
_RESERVED = 2048  # bytes of a process's file at its start: its end fits in on a full disk
_MOST_KINDS = 50  # of what recorders lost
_ATTEMPT = re.compile("[0-9]{4,9}")  # the stem of an attempt's file


def claim_attempt(run_dir: Path, launch: str, rank: int, writer: str, world_size: int) -> int:
    """Join the attempt of this launch, or open the next one; returns its number.

    Raises:
        OccupiedError: another run is being recorded here.
    """
    applicant = occupancy.Applicant(launch, rank, writer.partition(".")[0])
    folder = run_dir / layout.ATTEMPTS
    modes.make_directory(folder)
    while True:
        number = latest_attempt(run_dir)
        if number and _joins(folder, number, launch, rank):
            break
        occupancy.check(run_dir, number, applicant)
        number += 1
        if _create_attempt(folder, number, launch, world_size):
            break
    modes.make_directory(folder / f"{number:04d}")
    write_process(run_dir, number, rank, writer, started=time.time())
    return number


def reopen_attempt(
    run_dir: Path, number: int, launch: str, rank: int, writer: str, world_size: int
) -> None:
    """Make an attempt's files again, after somebody deleted them under a living process."""
    _create_attempt(_folder_of_attempt(run_dir, number), number, launch, world_size)
    write_process(run_dir, number, rank, writer, started=time.time())


def add_attempt(run_dir: Path, attempt: Attempt, writer: str) -> None:
    """Write down an attempt of a run that happened elsewhere, with what is known of its end."""
    folder = _folder_of_attempt(run_dir, attempt.number)
    content: dict[str, Any] = {"launch": "imported", "world_size": attempt.world_size}
    if not math.isnan(attempt.started):
        content["started"] = attempt.started
    files.write_atomic(folder / f"{attempt.number:04d}.json", checksum.sealed_json(content))
    if attempt.ended in ENDS:
        started = 0.0 if math.isnan(attempt.started) else attempt.started
        write_process(run_dir, attempt.number, 0, writer, started=started, status=attempt.ended)


def _create_attempt(folder: Path, number: int, launch: str, world_size: int) -> bool:
    """Create an attempt's own file; False if somebody was first."""
    content = {"launch": launch, "started": time.time(), "world_size": world_size, **_ourselves()}
    return files.create_exclusive(folder / f"{number:04d}.json", checksum.sealed_json(content))


def _folder_of_attempt(run_dir: Path, number: int) -> Path:
    """The folder of all attempts, with that of this one made in it."""
    folder = run_dir / layout.ATTEMPTS
    for directory in (run_dir, folder, folder / f"{number:04d}"):
        modes.make_directory(directory)
    return folder


def _joins(folder: Path, number: int, launch: str, rank: int) -> bool:
    try:
        known = json_object.read(folder / f"{number:04d}.json", folder.parent)
    except (OSError, ValueError):
        return False
    claims = folder / f"{number:04d}"
    taken = rank != WORKER_RANK and claims.is_dir() and any(claims.glob(f"r{rank:05d}-*.json"))
    return known.get("launch") == launch and not taken


def latest_attempt(run_dir: Path) -> int:
    """Number of the newest attempt; 0 if there is none."""
    numbers = [int(path.stem) for path in _attempt_files(run_dir)]
    return max(numbers, default=0)


def _attempt_files(run_dir: Path) -> list[Path]:
    folder = run_dir / layout.ATTEMPTS
    if admission.directory_problem(folder, run_dir):
        return []
    return sorted(path for path in folder.glob("*.json") if _is_number(path.stem))


def _is_number(stem: str) -> bool:
    return _ATTEMPT.fullmatch(stem) is not None and stem == f"{int(stem):04d}"


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
        **_ourselves(),
        "started": started,
        "status": status,
        "ended": time.time() if status else None,
        "health": dict(health or {}),
    }
    path = process_path(run_dir, attempt, rank, writer)
    text = checksum.sealed_json(content)
    if status is None:
        text = text.ljust(_RESERVED)
    try:
        files.write_atomic(path, text)
    except OSError:
        if not (path.is_file() and files.overwrite(path, text)):
            raise


def _ourselves() -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "born": process_birth(pid)}


def attempts(run_dir: Path, note: Note = pass_over) -> tuple[Attempt, ...]:
    """Every attempt, oldest first, without its steps; `note` is told of what cannot be read."""
    folder = run_dir / layout.ATTEMPTS
    why = admission.directory_problem(folder, run_dir)
    if why:
        note(Problem(str(folder), f"left out: {why}", layout.ATTEMPTS))
    return tuple(_attempt(run_dir, path, note) for path in _attempt_files(run_dir))


def _attempt(run_dir: Path, path: Path, note: Note) -> Attempt:
    raw: dict[str, Any] = {}
    try:
        raw = json_object.read(path, run_dir)
    except (OSError, ValueError, InputError) as error:
        note(Problem(str(path), f"left out: {error}", layout.ATTEMPTS))
    fields = Fields(raw)
    number = int(path.stem)
    members = processes(run_dir, number, note)
    started = fields.number("started")
    size = fields.count("world_size", 1, MOST_RANK) or 1
    if fields.unfit:
        named = ", ".join(fields.unfit)
        note(Problem(str(path), f"{named}: not what it should be", layout.ATTEMPTS))
    # Who came first may have been a launcher, which does not know how many will follow.
    world = max(size, *(member.rank + 1 for member in members), 1)
    return Attempt(
        number,
        ended=attempt_end(members),
        started=math.nan if started is None else started,
        world_size=world,
    )


def health(run_dir: Path) -> dict[str, int]:
    """What the recorders of all attempts lost, summed by kind."""
    totals: dict[str, int] = {}
    for path in _attempt_files(run_dir):
        for process in processes(run_dir, int(path.stem)):
            fields = Fields(process.health)
            for kind in process.health:
                count = fields.count(kind) or 0
                if count and len(totals) < _MOST_KINDS:
                    totals[kind] = totals.get(kind, 0) + count
    return totals


def read(run_dir: Path, note: Note = pass_over) -> dict[str, Any]:
    """The manifest; {} if it is missing or damaged (the tables still tell most).

    Args:
        note: told why it cannot be read.

    Raises:
        NewerFormatError: written by a newer rlprobe.
    """
    path = run_dir / layout.MANIFEST
    try:
        raw = json_object.read(path, run_dir)
    except FileNotFoundError:
        note(Problem(str(path), "missing; the tables are read without"))
        return {}
    except ValueError as error:
        note(Problem(str(path), f"left out: {error}; the tables are read without", "run"))
        return {}
    _check_version(run_dir, raw)
    return raw


def _check_version(run_dir: Path, raw: Mapping[str, Any]) -> None:
    version = Fields(raw).count("format_version")
    if version is not None and version > schema.FORMAT_VERSION:
        raise NewerFormatError(
            f"Couldn't read recording '{run_dir}': format {version}, this rlprobe knows "
            f"{schema.FORMAT_VERSION}",
            hint="Upgrade rlprobe.",
        )


def _known(run_dir: Path) -> dict[str, Any]:
    """What is to be kept of a manifest, changed by hand or not."""
    try:
        raw = json_object.read(run_dir / layout.MANIFEST, run_dir, unchanged=False)
    except (OSError, ValueError):
        return {}
    _check_version(run_dir, raw)
    return raw


def update(run_dir: Path, changes: Mapping[str, Any]) -> None:
    """Merge changes into the manifest, creating it if need be. Only rank 0 or a launcher calls it.

    None never overwrites what is known; `config` and `environment` are merged key by key.
    """
    content = _known(run_dir) or {
        "format_version": schema.FORMAT_VERSION,
        "id": f"{run_dir.name}-{uuid.uuid4().hex[:8]}",
        "created": time.time(),
        "rlprobe_version": __version__,
    }
    content = redaction.settings(merged(content, changes))
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


def merged(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's content with changes, as `update` makes them."""
    result = dict(content)
    for key, value in changes.items():
        if key in {"config", "environment"}:
            known = result.get(key)
            result[key] = {**(known if isinstance(known, dict) else {}), **(value or {})}
        elif value is not None:
            result[key] = value
    return result


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


def prepare(run_dir: Path, group: str | None = None) -> None:
    """Create the run directory's folders, for their owner alone.

    Args:
        group: who may read the recording, too, by name or number; None for what the environment
            variable `RLPROBE_GROUP` says.

    Raises:
        InputError: the path is a file, the directory cannot be written, or there is no such group.
    """
    group = group or os.environ.get(names.GROUP)
    try:
        modes.make_directory(run_dir)
        if group:
            modes.share(run_dir, group)
        for table in schema.TABLES:
            modes.make_directory(run_dir / table)
    except LookupError as error:
        raise InputError(
            f"Couldn't let the group '{group}' read '{run_dir}': there is no such group",
            hint=f"Name one that `id` shows, or leave --group and {names.GROUP} out.",
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"Couldn't record into '{run_dir}': {reason}", hint="Choose a directory you can write."
        ) from error
