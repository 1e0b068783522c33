"""Shards of `steps` or `ranks` as one frame: each column is fitted, and read when it is asked for.

A column that one shard lacks, or that is damaged in it, is not logged in its rows; the other shards
tell theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rlprobe import schema
from rlprobe.numbers import plural
from rlprobe.store import arrow, fitting, layout
from rlprobe.store.frame import Column, Frame, empty_frame
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardError, ShardFile
from rlprobe.values import BoolArray, IntArray

MOST_RANK = 1 << 20
_LONG = 200_000  # rows from which two threads read faster than one
_NAMED = 3  # columns that one sentence names

Remark = Callable[[str], None]


def metric_names(table: str, types: dict[str, pa.DataType]) -> frozenset[str]:
    """Columns of a shard that are metrics."""
    fixed = {column.name for column in schema.tables()[table].columns} - {"tokens_seen"}
    return frozenset(
        name for name, kind in types.items() if name not in fixed and fitting.is_number(kind)
    )


@dataclass(frozen=True)
class MetricShard:
    """The rows of one shard.

    Attributes:
        names: columns that are metrics.
        step, attempt, rank, time: of the rows that count; `time` in microseconds.
        counted: which of the stored rows these are; None for all.
        stored: gives a column as stored, of all rows.
        remark: told what of it had to be left out.
        whole: every metric of all stored rows, where they were read at once.
    """

    names: frozenset[str]
    step: IntArray
    attempt: IntArray
    rank: IntArray
    time: IntArray
    counted: BoolArray | None
    stored: Callable[[str], pa.ChunkedArray]
    remark: Remark
    whole: pa.Table | None = None

    def column(self, name: str) -> Column:
        """Values and validity of one metric, of the rows that count."""
        size = len(self.step)
        if name in self.names:
            try:
                stored = self.stored(name) if self.whole is None else self.whole.column(name)
                values, valid = arrow.floats(fitting.fit(stored, pa.float64()))
                if self.counted is None:
                    return values, valid
                return values[self.counted], valid[self.counted]
            except ValueError as error:  # a ShardError or an UnfitError
                self.remark(f"column '{name}' left out: {error}")
        return np.zeros(size), np.zeros(size, dtype=np.bool_)


def metric_shard(
    table: str,
    name: ShardName,
    file: ShardFile,
    remark: Remark,
    *,
    whole: bool = False,
    reopen: bool = False,
) -> MetricShard:
    """A shard's rows, their keys checked.

    Args:
        whole: read every column now, and close the file.
        reopen: close the file, and open it again for each column.

    Raises:
        ShardError: its rows have no steps, or it is damaged.
    """
    names = metric_names(table, file.types)
    _tell_unfit(table, file, names, remark)
    wanted = [key for key in ("step", "attempt", "rank", "time") if key in file.types]
    read = file.read([*wanted, *sorted(names)] if whole else wanted)
    keys = _Keys(table, name, read, file.rows, remark)
    step, counted = keys.steps()
    columns = [step, keys.constant("attempt", name.attempt), keys.ranks(), keys.times()]
    if counted is not None:
        columns = [column[counted] for column in columns]
    step, attempt, rank, time = columns
    metrics = _fitted(read, names, remark) if whole else None
    if whole or reopen:
        file.close()

    def stored(column: str) -> pa.ChunkedArray:
        return (_again(file, column) if reopen else file.read([column])).column(0)

    return MetricShard(names, step, attempt, rank, time, counted, stored, remark, metrics)


def _again(file: ShardFile, column: str) -> pa.Table:
    try:
        with ShardFile(file.path, known=file.sealed) as again:
            return again.read([column])
    except FileNotFoundError:
        raise ShardError("merged away while it was read; read the run again") from None


def _fitted(read: pa.Table, names: frozenset[str], remark: Remark) -> pa.Table:
    """The metrics of a table as doubles."""
    ordered = sorted(names)
    columns = []
    for name in ordered:
        try:
            columns.append(fitting.fit(read.column(name), pa.float64()))
        except fitting.UnfitError as error:
            remark(f"column '{name}' left out: {error}")
            columns.append(pa.chunked_array([pa.nulls(len(read), pa.float64())]))
    return pa.table(columns, ordered)


def _tell_unfit(table: str, file: ShardFile, names: frozenset[str], remark: Remark) -> None:
    fixed = {column.name for column in schema.tables()[table].columns}
    unfit = [name for name in file.types if name not in names and name not in fixed]
    if unfit:
        kinds = ", ".join(f"'{n}' ({fitting.shown(file.types[n])})" for n in unfit[:_NAMED])
        remark(f"{plural(len(unfit), 'column')} left out, not numbers: {kinds}")
    if file.twice:
        named = ", ".join(f"'{name}'" for name in sorted(file.twice)[:_NAMED])
        remark(f"of several columns of one name only the first is read: {named}")


@dataclass(frozen=True)
class _Keys:
    """The keys of a shard's rows, from its columns or from its name."""

    table: str
    name: ShardName
    read: pa.Table
    rows: int
    remark: Remark

    def steps(self) -> tuple[IntArray, BoolArray | None]:
        """Steps, and which rows have one; None for all."""
        if "step" not in self.read.schema.names:
            raise ShardError("no column 'step'")
        try:
            column = fitting.fit(self.read.column("step"), pa.int64())
        except fitting.UnfitError as error:
            raise ShardError(f"column 'step': {error}") from error
        steps, there = fitting.integers(column, 0)
        there = there & fitting.possible_steps(steps)
        return steps, self._counted(there, "without a step that can be")

    def _counted(self, there: BoolArray, what: str) -> BoolArray | None:
        lost = len(there) - int(np.count_nonzero(there))
        if not lost:
            return None
        self.remark(f"{plural(lost, 'row')} left out: {what}")
        return there

    def constant(self, key: str, value: int) -> IntArray:
        """A key that a shard's name tells as well: all rows of a shard have the same."""
        found = self._integers(key, pa.int32(), value)
        if found is None or not bool((found == value).all()):
            self.remark(f"column '{key}' is not as its name says, which counts")
            found = None
        return np.full(self.rows, value, dtype=np.int64) if found is None else found

    def ranks(self) -> IntArray:
        """The rank of each row of `ranks`; rows of `steps` are of rank 0."""
        if self.table != "ranks":
            return np.zeros(self.rows, dtype=np.int64)
        found = self._integers("rank", pa.int32(), self.name.rank)
        if found is not None and bool(((found > -MOST_RANK) & (found < MOST_RANK)).all()):
            return found
        self.remark("column 'rank' cannot be read; that of its name counts")
        return np.full(self.rows, self.name.rank, dtype=np.int64)

    def times(self) -> IntArray:
        """When each row was recorded."""
        found = self._integers("time", arrow.MICROSECONDS, layout.NO_TIME)
        if found is None:
            self.remark("column 'time' cannot be read; the times are not known")
            return np.full(self.rows, layout.NO_TIME, dtype=np.int64)
        return fitting.known_times(found)

    def _integers(self, key: str, kind: pa.DataType, missing: int) -> IntArray | None:
        if key not in self.read.schema.names:
            return None
        try:
            return fitting.integers(fitting.fit(self.read.column(key), kind), missing)[0]
        except fitting.UnfitError:
            return None


def frame(shards: Sequence[MetricShard]) -> Frame:
    """The rows of all shards, in their order."""
    if not shards:
        return empty_frame()

    def key(name: str) -> IntArray:
        parts: list[IntArray] = [getattr(shard, name) for shard in shards]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    micros = key("time")
    return Frame(
        step=key("step"),
        attempt=key("attempt"),
        rank=key("rank"),
        time=np.where(micros == layout.NO_TIME, np.nan, micros / 1e6),
        names=tuple(sorted(frozenset().union(*(shard.names for shard in shards)))),
        load=_loader(shards),
    )


def _loader(shards: Sequence[MetricShard]) -> Callable[[str], Column]:
    if all(shard.whole is not None for shard in shards):
        return _in_memory(shards)
    rows = sum(len(shard.step) for shard in shards)
    threads = 2 if rows >= _LONG and len(shards) > 1 else 1

    def load(name: str) -> Column:
        if threads == 1:
            parts = [shard.column(name) for shard in shards]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads) as pool:
                parts = list(pool.map(lambda shard: shard.column(name), shards))
        return _joined(parts)

    return load


def _in_memory(shards: Sequence[MetricShard]) -> Callable[[str], Column]:
    """Thousands of shards: their columns are joined once, not shard by shard for each metric."""
    whole = pa.concat_tables([shard.whole for shard in shards], promote_options="default")
    counted = None
    if any(shard.counted is not None for shard in shards):
        counted = np.concatenate([_rows_counted(shard) for shard in shards])

    def load(name: str) -> Column:
        values, valid = arrow.floats(pa.chunked_array([whole.column(name).combine_chunks()]))
        return (values, valid) if counted is None else (values[counted], valid[counted])

    return load


def _rows_counted(shard: MetricShard) -> BoolArray:
    if shard.counted is not None:
        return shard.counted
    return np.ones(len(shard.step), dtype=np.bool_)


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    values: list[Any] = [part[0] for part in parts]
    valid: list[Any] = [part[1] for part in parts]
    return np.concatenate(values), np.concatenate(valid)
