"""Merges the shards that finished writers left behind, so that years later a run opens fast.

Shards of different writers are never merged into one: a range of flushes belongs to one writer,
and that is what lets a reader tell a merged shard from those it replaces after a kill in between.
A writer that may still be alive is left alone: it merges its own shards.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlprobe import schema
from rlprobe.errors import NewerFormatError
from rlprobe.store import admission, files, layout, leftovers, processes, shards
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardFile
from rlprobe.values import Problem

MOST_BYTES = 256 * 1024 * 1024  # of shards that become one: a merge holds them in memory
SETTLED = leftovers.SETTLED  # without a new shard, for a writer whose machine cannot be asked


@dataclass(frozen=True, slots=True)
class Footprint:
    """How much a recording takes on disk."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done: shards before and after, writers left alone and why, unreadable shards.

    Attributes:
        leftovers: temporary files of dead writers that were deleted.
    """

    before: Footprint
    after: Footprint
    busy: tuple[str, ...]
    problems: tuple[Problem, ...]
    leftovers: int = 0


def footprint(run_dir: Path) -> Footprint:
    """Files and bytes of a recording."""
    sizes = [_size(path) for path in run_dir.rglob("*") if path.is_file()]
    return Footprint(len(sizes), sum(sizes))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # merged away meanwhile
        return 0


def compact(run_dir: Path) -> Compaction:
    """Merge every finished writer's shards. A kill at any moment loses and repeats no row."""
    before = footprint(run_dir)
    removed = leftovers.clear(run_dir)
    busy: dict[str, str] = {}
    problems: list[Problem] = []
    for table in schema.TABLES:
        directory = run_dir / table
        why = admission.directory_problem(directory, run_dir)
        if why:
            problems.append(Problem(str(directory), f"left alone: {why}"))
            continue
        for stream, names in _streams(directory):
            reason = _busy(run_dir, directory, stream, names)
            if reason:
                busy[f"{stream[2]} (attempt {stream[0]}, rank {stream[1]})"] = reason
            else:
                problems += _compact_stream(directory, names)
    said = tuple(f"{writer}: {reason}" for writer, reason in sorted(busy.items()))
    return Compaction(before, footprint(run_dir), said, tuple(problems), removed)


def _streams(directory: Path) -> Iterator[tuple[tuple[int, int, str], list[ShardName]]]:
    ordered = sorted(layout.list_shards(directory), key=lambda name: (*name.stream, name.first))
    for stream, names in itertools.groupby(ordered, key=lambda name: name.stream):
        yield stream, list(names)


def _busy(
    run_dir: Path, directory: Path, stream: tuple[int, int, str], names: Sequence[ShardName]
) -> str:
    """Why a writer's shards must not be touched; empty if they may be."""
    process = processes.process_of(run_dir, *stream)
    if process is not None and process.status is not None:
        return ""
    alive = None if process is None else processes.alive(process)
    if alive:
        return "its process is alive"
    newest = max(_modified(directory / str(name)) for name in names)
    if alive is None and time.time() - newest < SETTLED:
        return "it wrote within a day, and its machine cannot be asked whether it still runs"
    return ""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _compact_stream(directory: Path, names: Sequence[ShardName]) -> list[Problem]:
    live = layout.live_shards(names)
    problems: list[Problem] = []
    for batch in _batches(directory, live, problems):
        if len(batch) > 1:
            problems += _merge(directory, batch)
    if not problems:
        _drop_superseded(directory, [name for name in names if name not in live])
    return problems


def _merge(directory: Path, batch: Sequence[ShardName]) -> list[Problem]:
    try:
        shards.merge(directory, batch)
    except shards.TooWideError:
        return []  # they are better left apart
    except ValueError as error:
        return [Problem(str(directory), f"left alone: {error}")]
    return []


def _batches(
    directory: Path, live: Sequence[ShardName], problems: list[Problem]
) -> Iterator[list[ShardName]]:
    """Consecutive readable shards, few enough to merge in memory.

    A merged shard hides everything in its range, so no batch reaches across a torn one.
    """
    batch: list[ShardName] = []
    held = 0
    for name in live:
        path = directory / str(name)
        size = _size(path)
        problem = _unreadable(path)
        if problem is not None or held + size > MOST_BYTES:
            yield batch
            batch, held = [], 0
        if problem is not None:
            problems.append(problem)
            continue
        batch.append(name)
        held += size
    yield batch


def _unreadable(path: Path) -> Problem | None:
    try:
        with ShardFile(path) as file:
            file.check_size(path.parent.name)
    except (ValueError, OSError, NewerFormatError) as error:
        return Problem(str(path), f"left alone: {error}")
    return None


def _drop_superseded(directory: Path, names: Sequence[ShardName]) -> None:
    """Delete what an earlier merge replaced but was killed before deleting."""
    for name in names:
        (directory / str(name)).unlink(missing_ok=True)
    files.sync_directory(directory)
