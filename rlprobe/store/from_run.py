"""Any run -> a recording of it."""

from __future__ import annotations

import json
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rlprobe import schema
from rlprobe.errors import UsageError
from rlprobe.store import arrow, layout, manifest, shards
from rlprobe.store.frame import Frame
from rlprobe.store.run import Run, RunInfo
from rlprobe.values import Attempt, BoolArray, Event, IntArray, Rollout

_ROWS = 262_144  # of metrics per shard
_CELLS = 33_554_432  # of metrics per shard
_ROLLOUTS = 2_000  # per shard
_MOST_PROBLEMS = 20


def write(run: Run, directory: Path) -> None:
    """Write a run as a recording, whole or not at all.

    The manifest keeps the format it was read from and what was assumed while reading; what could
    not be read joins these notes.

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
    told = problems[:_MOST_PROBLEMS] + ([f"{rest:,} more problems"] if rest > 0 else [])
    return {
        "id": info.id,
        "source": info.source,
        "imported_from": info.path,
        "framework": info.framework,
        "algorithm": info.algorithm,
        "model": info.model,
        "world_size": info.world_size,
        "config": dict(info.settings),
        "notes": [*info.notes, *told],
        "records_end": info.records_end,
    }


Page = tuple[int, pa.Table]  # an attempt, and rows of it


def _metrics(table: str, frame: Frame) -> Iterator[Page]:
    size = max(1, min(_ROWS, _CELLS // max(1, len(frame.names))))
    for attempt in np.unique(frame.attempt).tolist():
        rows = np.flatnonzero(frame.attempt == attempt)
        for first in range(0, len(rows), size):
            yield attempt, _metric_page(table, frame, rows[first : first + size])


def _metric_page(table: str, frame: Frame, rows: IntArray) -> pa.Table:
    micros = np.nan_to_num(frame.time[rows] * 1e6, nan=layout.NO_TIME).astype(np.int64)
    made: dict[str, pa.Array] = {
        "step": arrow.from_numpy(frame.step[rows], pa.int64()),
        "attempt": arrow.from_numpy(frame.attempt[rows].astype(np.int32), pa.int32()),
        "rank": arrow.from_numpy(frame.rank[rows].astype(np.int32), pa.int32()),
        "time": arrow.from_numpy(micros, arrow.MICROSECONDS),
        "tokens_seen": pa.nulls(len(rows), pa.float64()),
    }
    fields = list(schema.arrow_fields(table))
    fixed = {field.name for field in fields} - {"tokens_seen"}
    columns = {_column_name(name, fixed): _column(frame, name, rows) for name in frame.names}
    made.update({name: column for name, column in columns.items() if name == "tokens_seen"})
    arrays = [made[field.name] for field in fields]
    for name in sorted(columns.keys() - made.keys()):
        fields.append(pa.field(name, pa.float64()))
        arrays.append(columns[name])
    return pa.table(arrays, schema=pa.schema(fields))


def _column_name(name: str, fixed: set[str]) -> str:
    plain = _text(name) or ""
    return f"user/{plain}" if plain in fixed else plain


def _column(frame: Frame, name: str, rows: IntArray) -> pa.Array:
    values, valid = frame.load(name)
    missing: BoolArray = ~valid[rows]
    return arrow.from_numpy(values[rows].astype(np.float64, copy=False), pa.float64(), missing)


def _events(events: tuple[Event, ...]) -> Iterator[Page]:
    for attempt in sorted({event.attempt for event in events}):
        rows = [_event_row(event) for event in events if event.attempt == attempt]
        yield attempt, arrow.table_of(rows, schema.arrow_fields("events"))


def _event_row(event: Event) -> dict[str, Any]:
    known = math.isfinite(event.time)
    return {
        "time": int(event.time * 1e6) if known else layout.NO_TIME,
        "step": event.step,
        "attempt": event.attempt,
        "rank": event.rank,
        "kind": _text(event.kind),
        "message": _text(event.message),
        "data": _text(json.dumps(dict(event.data), default=str)),
    }


def _samples(run: Run) -> Iterator[Page]:
    waiting: dict[int, list[dict[str, Any]]] = {}
    for step in run.sample_steps():
        for rollout in run.rollouts(step):
            waiting.setdefault(rollout.attempt, []).append(_sample_row(rollout))
        for attempt, rows in waiting.items():
            if len(rows) >= _ROLLOUTS:
                yield attempt, _sample_page(rows)
                waiting[attempt] = []
    for attempt, rows in waiting.items():
        if rows:
            yield attempt, _sample_page(rows)


def _sample_page(rows: list[dict[str, Any]]) -> pa.Table:
    return arrow.table_of(rows, schema.arrow_fields("samples"))


def _sample_row(rollout: Rollout) -> dict[str, Any]:
    names = (column.name for column in schema.tables()["samples"].columns)
    row: Mapping[str, Any] = {name: getattr(rollout, name) for name in names}
    return {name: _storable(value) for name, value in row.items()}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return [(_text(key), number) for key, number in value.items()]
    return value


def _text(text: str | None) -> str | None:
    """Lone surrogates cannot be stored as UTF-8; they are written as escapes."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")
