"""Any run -> a recording of it."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rlprobe import order_statistics
from rlprobe.errors import UsageError
from rlprobe.store import codec, layout, manifest, shards
from rlprobe.store.frame import Column, Frame
from rlprobe.store.run import Run, RunInfo
from rlprobe.values import Attempt, Event, IntArray

_ROWS = 262_144  # of metrics per shard
_CELLS = 33_554_432  # of metrics per shard
_ROLLOUTS = 2_000  # per shard
_MOST_PROBLEMS = 20


def write(run: Run, directory: Path) -> None:
    """Write a run as a recording, whole or not at all.

    The manifest keeps the format it was read from, what was assumed while reading, and how much
    that looks like metrics was not understood; what could not be read joins the notes.

    Raises:
        UsageError: the directory is not empty, or cannot be written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"Couldn't import into '{directory}': it is not empty", hint="Give a new directory."
        )
    target = directory.absolute()
    staging = target.with_name(f".{target.name}.{secrets.token_hex(4)}.importing")
    try:
        _write_all(run, staging)
        staging.rename(target)
    except OSError as error:
        raise UsageError(
            f"Couldn't import into '{directory}': {error.strerror or error}",
            hint="Choose a directory you can write.",
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_all(run: Run, directory: Path) -> None:
    manifest.prepare(directory)
    writer = layout.new_writer_id()
    for attempt in run.info.attempts or (Attempt(1),):
        manifest.add_attempt(directory, attempt, writer)
    for table, pages in (
        ("steps", _metrics("steps", run.steps)),
        ("ranks", _metrics("ranks", run.ranks)),
        ("events", _events(run.events)),
        ("samples", _samples(run)),
    ):
        for number, (attempt_number, page) in enumerate(pages):
            name = layout.ShardName(attempt_number, 0, writer, number, number)
            shards.write(directory / table, name, page)
    manifest.update(directory, _facts(run, run.info))


def _facts(run: Run, info: RunInfo) -> dict[str, Any]:
    problems = [f"{problem.path}: {problem.message}" for problem in run.problems]
    rest = len(problems) - _MOST_PROBLEMS
    if rest > 0:
        problems[_MOST_PROBLEMS:] = [f"{rest:,} more problems"]
    return {
        "id": info.id,
        "source": info.source,
        "imported_from": info.path,
        "framework": info.framework,
        "algorithm": info.algorithm,
        "model": info.model,
        "world_size": info.world_size,
        "config": dict(info.settings),
        "notes": [*info.notes, *problems],
        "unread": [dataclasses.asdict(item) for item in info.unread],
        "records_end": info.records_end,
    }


Page = tuple[int, pa.Table]  # an attempt, and rows of it


def _metrics(table: str, frame: Frame) -> Iterator[Page]:
    size = max(1, min(_ROWS, _CELLS // max(1, len(frame.names))))
    for attempt in order_statistics.distinct(frame.attempt).tolist():
        rows = np.flatnonzero(frame.attempt == attempt)
        for first in range(0, len(rows), size):
            yield attempt, _metric_page(table, frame, rows[first : first + size])


def _metric_page(table: str, frame: Frame, rows: IntArray) -> pa.Table:
    keys = {
        "step": frame.step[rows],
        "attempt": frame.attempt[rows],
        "rank": frame.rank[rows],
        "time": frame.time[rows],
    }
    columns = {codec.metric_name(table, name): _column(frame, name, rows) for name in frame.names}
    return codec.metrics(table, keys, columns)


def _column(frame: Frame, name: str, rows: IntArray) -> Column:
    values, valid = frame.load(name)
    return values[rows], valid[rows]


def _events(events: tuple[Event, ...]) -> Iterator[Page]:
    for attempt in sorted({event.attempt for event in events}):
        own = (event for event in events if event.attempt == attempt)
        yield attempt, codec.rows("events", map(codec.event_row, own))


def _samples(run: Run) -> Iterator[Page]:
    waiting: dict[int, list[codec.Row]] = {}
    for step in run.sample_steps():
        for rollout in run.rollouts(step):
            waiting.setdefault(rollout.attempt, []).append(codec.rollout_row(rollout))
        for attempt, rows in waiting.items():
            if len(rows) >= _ROLLOUTS:
                yield attempt, codec.rows("samples", rows)
                waiting[attempt] = []
    for attempt, rows in waiting.items():
        if rows:
            yield attempt, codec.rows("samples", rows)
