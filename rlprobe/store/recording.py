"""A recording on disk, behind the `Run` interface."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

from rlprobe import numbers, schema
from rlprobe._lazy import cached_property
from rlprobe.counters import is_counter
from rlprobe.errors import InputError
from rlprobe.numbers import plural
from rlprobe.store import (
    codec,
    layout,
    manifest,
    metric_shards,
    one_per_step,
    records,
    table_shards,
)
from rlprobe.store.admission import TooManyOpenError
from rlprobe.store.frame import Frame
from rlprobe.store.json_object import Fields
from rlprobe.store.layout import ShardName
from rlprobe.store.metric_shards import MetricShard
from rlprobe.store.run import RunInfo
from rlprobe.store.sample_shards import SampleShards
from rlprobe.store.shard_file import ShardFile
from rlprobe.store.table_shards import Read, Remark, TableShards
from rlprobe.values import Attempt, Event, Problem, Rollout, Unread

_KEPT_ROLLOUTS = 64_000_000  # bytes, about, of rollouts that were read and are kept
_MOST_RANKS = 1 << 20
_MOST_NOTES = 100
_BEYOND = 2**63
_MOST_OPEN = 64  # shards of one table that stay open
_SHORT = 16_384  # rows: to read a column of so few costs more than the column
_CELLS_AT_ONCE = 16_000_000  # of one table, about 128 MB, that are read with its first column
_ANY = 2**62  # rows, where no file stays open
_MOST_CELLS_AT_ONCE = 100_000_000  # of one table, about 800 MB, where no file stays open


T = TypeVar("T")


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
        self._problems: dict[Problem, None] = {}
        self._kept: dict[int, tuple[Rollout, ...]] = {}
        self._kept_size = 0
        self._logged_in_parts: set[str] = set()
        self._manifest = manifest.read(path, self._note)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read, so far."""
        return tuple(self._problems)

    @cached_property
    def info(self) -> RunInfo:
        """What the run is."""
        raw = Fields(self._manifest)
        info = RunInfo(
            path=str(self.path),
            id=raw.text("id") or self.path.name,
            source=raw.text("source") or "recording",
            framework=raw.text("framework"),
            algorithm=raw.text("algorithm"),
            model=raw.text("model"),
            world_size=raw.count("world_size", least=1, most=_MOST_RANKS) or 1,
            settings=self._settings(raw),
            attempts=self._attempts(),
            notes=(
                *map(str, raw.items("notes")[:_MOST_NOTES]),
                *self._note_on_workers(),
                *self._notes,
            ),
            health=numbers.counts(dict(sorted(manifest.health(self.path).items()))),
            unmapped=self._unmapped(),
            unread=_unread(raw.items("unread")),
            records_end=raw.flag("records_end") is not False,
        )
        if raw.unfit:
            words = f"{', '.join(raw.unfit)}: not what it should be"
            self._note(Problem(str(self.path / layout.MANIFEST), words, "run"))
        return info

    @cached_property
    def workers(self) -> dict[str, tuple[int, int]]:
        """Processes that are no ranks: how many rows each role has, and how many of them wrote."""
        rows: Counter[str] = Counter()
        names: dict[str, set[str]] = {}

        def read(name: ShardName, file: ShardFile, remark: Remark) -> None:
            stored = records.read("workers", name, file, remark)
            for (role, worker), count in records.counted(stored, "role", "worker"):
                rows[role] += count
                names.setdefault(role, set()).add(worker)

        self._shards("workers", read)
        return {role: (rows[role], len(names[role])) for role in sorted(rows)}

    def _note_on_workers(self) -> tuple[str, ...]:
        """No detector looks at what processes that are no ranks report."""
        parts = (
            f"{plural(rows, 'row')} of {plural(count, f'{role} worker')}"
            for role, (rows, count) in self.workers.items()
        )
        return (f"not judged: {', '.join(parts)} (table `workers`)",) if self.workers else ()

    def _settings(self, raw: Fields) -> dict[str, Any]:
        """The configuration, without whole numbers that nothing can compute with."""
        config = raw.members("config")
        settings = {name: value for name, value in config.items() if not _beyond(value)}
        if len(settings) < len(config):
            raw.unfit.append("config")
        return settings

    def _unmapped(self) -> tuple[str, ...]:
        names = (name for name in self.steps.names if not is_counter(name))
        return tuple(name for name in names if schema.metric(name) is None)

    def _attempts(self) -> tuple[Attempt, ...]:
        read = manifest.attempts(self.path, self._note)
        return tuple(self._with_span(attempt) for attempt in read)

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

    def _shards(self, table: str, read: Read[T], *, keep_open: bool = False) -> list[T]:
        return TableShards(self.path, table, self._note, read, keep_open=keep_open).parts

    def _note(self, problem: Problem) -> None:
        self._problems.setdefault(problem)

    def _frame(self, table: str) -> Frame:
        if table_shards.count(self.path, table) <= _MOST_OPEN:
            try:
                return self._merged(table, self._metrics(table, keep_open=True))
            except TooManyOpenError:
                pass
        return self._merged(table, self._metrics(table, keep_open=False))

    def _merged(self, table: str, stored: Frame) -> Frame:
        merged = one_per_step.merged(stored)
        if merged is not stored:
            self._logged_in_parts.add(table)
        return merged

    def is_logged_in_parts(self, table: str) -> bool:
        """Whether several stored rows of `steps` or `ranks` are one and the same step."""
        _ = self.steps if table == "steps" else self.ranks
        return table in self._logged_in_parts

    def _metrics(self, table: str, *, keep_open: bool) -> Frame:
        cells = 0
        short, most = (_SHORT, _CELLS_AT_ONCE) if keep_open else (_ANY, _MOST_CELLS_AT_ONCE)

        def read(name: ShardName, file: ShardFile, remark: Remark) -> MetricShard:
            nonlocal cells
            cells += file.rows * len(file.types)
            whole = file.rows <= short and cells <= most
            return metric_shards.metric_shard(
                table, name, file, remark, whole=whole, reopen=not keep_open
            )

        return metric_shards.frame(self._shards(table, read, keep_open=keep_open))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events of all attempts, each in order of time: clocks may jump between launches."""

        def read(name: ShardName, file: ShardFile, remark: Remark) -> list[Event]:
            return codec.events(records.read("events", name, file, remark), remark)

        events = itertools.chain.from_iterable(self._shards("events", read))
        return tuple(sorted(events, key=_moment))

    def sample_steps(self) -> tuple[int, ...]:
        """Steps with recorded rollouts, ascending."""
        return self._samples.steps()

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

    @cached_property
    def _samples(self) -> SampleShards:
        return SampleShards(self.path, self._note)

    def _read_rollouts(self, step: int) -> tuple[Rollout, ...]:
        rollouts: dict[str, Rollout] = {}
        for stored in self._samples.rows(step):
            for rollout in codec.rollouts(stored):
                rollouts.setdefault(rollout.sample_id, rollout)
        ordered = sorted(rollouts.values(), key=lambda one: (one.attempt, one.rank, one.group_id))
        return _of_one_rank_each(ordered)


def _of_one_rank_each(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """The same, where ranks gave groups the same name under names that tell them apart.

    A group is whole on its rank; local numbers begin at 0 on each.
    """
    whose: dict[tuple[int, str], int] = {}
    for one in rollouts:
        whose.setdefault((one.attempt, one.group_id), one.rank)
    return tuple(
        one
        if whose[one.attempt, one.group_id] == one.rank
        else replace(one, group_id=f"{one.group_id}@{one.rank}")
        for one in rollouts
    )


def _moment(event: Event) -> tuple[int, float]:
    return event.attempt, 0.0 if isnan(event.time) else event.time


def _unread(raw: Any) -> tuple[Unread, ...]:
    """What the manifest says of the log that was imported; nothing where it is torn."""
    try:
        return tuple(
            Unread(
                str(item["thing"]),
                _counted(item["count"]),
                _counted(item["of"]),
                tuple((int(number), str(text)) for number, text in item["examples"]),
                tuple(map(str, item.get("files", ()))),
            )
            for item in raw
        )
    except (TypeError, ValueError, KeyError, OverflowError):
        return ()


def _beyond(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= _BEYOND


def _counted(value: Any) -> int:
    if _beyond(value):
        raise ValueError("more than can be counted")
    return int(value)
