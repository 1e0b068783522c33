"""A recording on disk, behind the `Run` interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import schema
from rlprobe._lazy import cached_property
from rlprobe.errors import InputError
from rlprobe.store import arrow, layout, manifest, shards
from rlprobe.store.frame import Frame, empty_frame
from rlprobe.store.run import RunInfo
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray, Problem, Rollout

_EAGER_SHARDS = 64  # above this, opening every shard once per metric costs more than memory


class Recording:
    """One run directory. Readable while it is written, and after any kind of death."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir() or not layout.is_recording(path):
            raise InputError(f"Couldn't read '{path}' as a recording: no {layout.MANIFEST} in it")
        self.path = path
        self._manifest = manifest.read(path)
        self._problems: list[Problem] = []
        if not self._manifest:
            self._problems.append(
                Problem(str(path / layout.MANIFEST), "missing or torn; the tables are read without")
            )

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read, so far."""
        return tuple(self._problems)

    @cached_property
    def info(self) -> RunInfo:
        """What the run is."""
        raw = self._manifest
        return RunInfo(
            path=str(self.path),
            id=str(raw.get("id", self.path.name)),
            source=str(raw.get("source", "recording")),
            framework=raw.get("framework"),
            algorithm=raw.get("algorithm"),
            model=raw.get("model"),
            world_size=int(raw.get("world_size", 1)),
            settings=raw.get("config", {}),
            attempts=self._attempts(),
            notes=tuple(str(note) for note in raw.get("notes", ())),
            health=_health_sentence(manifest.health(self.path)),
            unmapped=tuple(name for name in self.steps.names if schema.metric(name) is None),
            records_end=bool(raw.get("records_end", True)),
        )

    def _attempts(self) -> tuple[Attempt, ...]:
        found = manifest.attempts(self.path)
        return tuple(self._with_span(attempt) for attempt in found)

    def _with_span(self, attempt: Attempt) -> Attempt:
        steps = self.steps.step[self.steps.attempt == attempt.number]
        if not len(steps):
            return attempt
        return replace(attempt, first_step=int(steps.min()), last_step=int(steps.max()))

    @cached_property
    def steps(self) -> Frame:
        """Global metrics."""
        return self._frame("steps")

    @cached_property
    def ranks(self) -> Frame:
        """Metrics of single ranks."""
        return self._frame("ranks")

    def _open(self, table: str) -> list[pq.ParquetFile]:
        opened, problems = shards.open_table(self.path / table)
        self._problems.extend(problems)
        return opened

    def _frame(self, table: str) -> Frame:
        opened = self._open(table)
        if not opened:
            return empty_frame()
        fixed = {column.name for column in schema.tables()[table].columns} - {"tokens_seen"}
        present = {name for file in opened for name in file.schema_arrow.names}
        if len(opened) > _EAGER_SHARDS:
            whole = shards.concat([file.read(use_threads=False) for file in opened])
            read = whole.select
        else:
            read = _lazy_reader(opened)
        keys = read([name for name in ("step", "attempt", "rank", "time") if name in present])
        return Frame(
            step=arrow.integers(keys["step"]),
            attempt=arrow.integers(keys["attempt"]),
            rank=_ranks(keys),
            time=_seconds(arrow.integers(keys["time"])),
            names=tuple(sorted(present - fixed)),
            load=lambda name: arrow.floats(read([name]).column(0)),
        )

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events in order of time."""
        rows, problems = shards.read_rows(self.path / "events")
        self._problems.extend(problems)
        return tuple(_event(row) for row in sorted(rows, key=lambda row: row["time"]))

    @cached_property
    def _sample_files(self) -> list[pq.ParquetFile]:
        return self._open("samples")

    @cached_property
    def _sample_steps(self) -> list[IntArray]:
        return [arrow.integers(file.read(["step"])["step"]) for file in self._sample_files]

    def sample_steps(self) -> tuple[int, ...]:
        """Steps with recorded rollouts, ascending."""
        if not self._sample_steps:
            return ()
        return tuple(int(step) for step in np.unique(np.concatenate(self._sample_steps)))

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of one step, group by group, all attempts. Ring copies are told only once."""
        rows: dict[str, Rollout] = {}
        for file, steps in zip(self._sample_files, self._sample_steps, strict=True):
            if (steps == step).any():
                for row in _rows_at(file, steps == step):
                    rollout = _rollout(row)
                    rows.setdefault(rollout.sample_id, rollout)
        return tuple(sorted(rows.values(), key=lambda row: (row.attempt, row.rank, row.group_id)))


def _rows_at(file: pq.ParquetFile, chosen: BoolArray) -> list[dict[str, Any]]:
    """Chosen rows, reading whole row groups but turning no others into objects."""
    table = file.read(use_threads=False)
    found: list[dict[str, Any]] = []
    for first in np.flatnonzero(chosen & ~np.append(False, chosen[:-1])):
        length = int(np.argmin(np.append(chosen[first:], False)))
        found.extend(table.slice(int(first), length).to_pylist())
    return found


def _lazy_reader(opened: list[pq.ParquetFile]) -> Any:
    def read(names: list[str]) -> pa.Table:
        parts = []
        for file in opened:
            present = [name for name in names if name in file.schema_arrow.names]
            part = file.read(present, use_threads=False) if present else None
            parts.append(_with_nulls(part, names, file))
        return pa.concat_tables(parts)

    return read


def _with_nulls(part: pa.Table | None, names: list[str], file: pq.ParquetFile) -> pa.Table:
    if part is not None and part.num_columns == len(names):
        return part.select(names)
    size = file.metadata.num_rows
    return pa.table({name: pa.nulls(size, pa.float64()) for name in names})


def _ranks(keys: pa.Table) -> IntArray:
    if "rank" in keys.column_names:
        return arrow.integers(keys["rank"])
    return np.zeros(len(keys), dtype=np.int64)


def _seconds(micros: IntArray) -> FloatArray:
    """Seconds since the epoch; NaN for the epoch itself, which stands for a time not known."""
    return np.where(micros == layout.NO_TIME, np.nan, micros / 1e6)


def _event(row: Mapping[str, Any]) -> Event:
    try:
        data = json.loads(row["data"] or "{}")
    except ValueError:
        data = {}
    return Event(
        kind=row["kind"],
        step=row["step"],
        time=float(_seconds(np.array([row["time"]]))[0]),
        attempt=row["attempt"],
        rank=row["rank"],
        message=row["message"] or "",
        data=data if isinstance(data, dict) else {"value": data},
    )


def _rollout(row: Mapping[str, Any]) -> Rollout:
    components = dict(row["reward_components"] or ())
    return Rollout(**{**row, "reward_components": components})


def _health_sentence(totals: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count:,} {kind.replace('_', ' ')}" for kind, count in sorted(totals.items())
    )
