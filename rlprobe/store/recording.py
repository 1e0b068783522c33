"""A recording on disk, behind the `Run` interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import order_statistics, schema
from rlprobe._lazy import cached_property
from rlprobe.errors import InputError
from rlprobe.store import arrow, codec, layout, manifest, shards
from rlprobe.store.frame import Frame, empty_frame
from rlprobe.store.run import RunInfo
from rlprobe.values import Attempt, BoolArray, Event, IntArray, Problem, Rollout, Unread

_LONG = 200_000  # rows from which two threads read faster than one
_KEPT_ROLLOUTS = 64_000_000  # bytes, about, of rollouts that were read and are kept
_EAGER_SHARDS = 64  # above this, opening every shard once per metric costs more than memory


class Recording:
    """One run directory. Readable while it is written, and after any kind of death.

    Args:
        notes: what else is to be said of it.
    """

    def __init__(self, path: Path, notes: Sequence[str] = ()) -> None:
        if not path.is_dir() or not layout.is_recording(path):
            raise InputError(f"Couldn't read '{path}' as a recording: no {layout.MANIFEST} in it")
        self.path = path
        self._notes = notes
        self._manifest = manifest.read(path)
        self._problems: list[Problem] = []
        self._kept: dict[int, tuple[Rollout, ...]] = {}
        self._kept_size = 0
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
            notes=(*(str(note) for note in raw.get("notes", ())), *self._notes),
            health=_health_sentence(manifest.health(self.path)),
            unmapped=self._unmapped(),
            unread=_unread(raw.get("unread", ())),
            records_end=bool(raw.get("records_end", True)),
        )

    def _unmapped(self) -> tuple[str, ...]:
        counters = schema.step_keys().counters
        names = (name for name in self.steps.names if name not in counters)
        return tuple(name for name in names if schema.metric(name) is None)

    def _attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._with_span(attempt) for attempt in manifest.attempts(self.path))

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
        present = {name for file in opened for name in file.schema_arrow.names}
        if len(opened) > _EAGER_SHARDS:
            whole = shards.concat([file.read(use_threads=False) for file in opened])
            return codec.frame(table, present, whole.select)
        return codec.frame(table, present, _lazy_reader(opened))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events in order of time."""
        files = self._open("events")
        events = [event for file in files for event in codec.events(file.read(use_threads=False))]
        return tuple(sorted(events, key=lambda event: 0.0 if isnan(event.time) else event.time))

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
        return tuple(
            int(step) for step in order_statistics.distinct(np.concatenate(self._sample_steps))
        )

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of one step, group by group, all attempts. Ring copies are told only once.

        Several detectors read the same steps: what was read is kept, up to a size.
        """
        if step not in self._kept:
            rollouts = self._read_rollouts(step)
            texts = (text for one in rollouts for text in (one.prompt, one.completion) if text)
            self._kept_size += 1_000 * len(rollouts) + sum(map(len, texts))
            if self._kept_size > _KEPT_ROLLOUTS:
                self._kept.clear()
                self._kept_size = 0
            self._kept[step] = rollouts
        return self._kept[step]

    def _read_rollouts(self, step: int) -> tuple[Rollout, ...]:
        rollouts: dict[str, Rollout] = {}
        for file, steps in zip(self._sample_files, self._sample_steps, strict=True):
            if (steps == step).any():
                for part in _slices(file.read(use_threads=False), steps == step):
                    for rollout in codec.rollouts(part):
                        rollouts.setdefault(rollout.sample_id, rollout)
        return tuple(
            sorted(rollouts.values(), key=lambda one: (one.attempt, one.rank, one.group_id))
        )


def _slices(table: pa.Table, chosen: BoolArray) -> Iterator[pa.Table]:
    """The chosen rows: whole row groups are read, but no others are turned into objects."""
    for first in np.flatnonzero(chosen & ~np.append(False, chosen[:-1])):
        length = int(np.argmin(np.append(chosen[first:], False)))
        yield table.slice(int(first), length)


def _lazy_reader(opened: list[pq.ParquetFile]) -> Any:
    columns = [frozenset(file.schema_arrow.names) for file in opened]
    rows = sum(file.metadata.num_rows for file in opened)

    def read(names: list[str]) -> pa.Table:
        def part(number: int) -> pa.Table:
            present = [name for name in names if name in columns[number]]
            table = opened[number].read(present, use_threads=False) if present else None
            return _with_nulls(table, names, opened[number])

        if rows < _LONG:
            return pa.concat_tables(map(part, range(len(opened))))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as pool:
            return pa.concat_tables(pool.map(part, range(len(opened))))

    return read


def _with_nulls(part: pa.Table | None, names: list[str], file: pq.ParquetFile) -> pa.Table:
    if part is not None and part.num_columns == len(names):
        return part.select(names)
    size = file.metadata.num_rows
    return pa.table({name: pa.nulls(size, pa.float64()) for name in names})


def _unread(raw: Any) -> tuple[Unread, ...]:
    """What the manifest says of the log that was imported; nothing where it is torn."""
    try:
        return tuple(
            Unread(
                str(item["thing"]),
                int(item["count"]),
                int(item["of"]),
                tuple((int(number), str(text)) for number, text in item["examples"]),
                tuple(map(str, item.get("files", ()))),
            )
            for item in raw
        )
    except (TypeError, ValueError, KeyError, OverflowError):
        return ()


def _health_sentence(totals: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count:,} {kind.replace('_', ' ')}" for kind, count in sorted(totals.items())
    )
