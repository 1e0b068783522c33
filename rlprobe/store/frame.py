"""Rows of a steps or ranks table as columns, and the run's lineage through its attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlprobe import order_statistics
from rlprobe._lazy import cached_property
from rlprobe.values import BoolArray, FloatArray, IntArray, Series

Column = tuple[FloatArray, BoolArray]  # values, and whether each was logged
LoadColumn = Callable[[str], Column]


@dataclass(frozen=True)
class Frame:
    """Rows of metrics.

    Attributes:
        step, attempt, rank, time: one entry per row, shape (n,); time in seconds, UTC.
        names: metric columns, sorted.
        load: values and validity (False = not logged) of one metric, both of shape (n,).
    """

    step: IntArray
    attempt: IntArray
    rank: IntArray
    time: FloatArray
    names: tuple[str, ...]
    load: LoadColumn = field(repr=False)

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _ascending(self) -> bool:
        """Whether each row has a later step than the row before."""
        return bool((self.step[1:] > self.step[:-1]).all())

    def in_lineage(self, ends: Mapping[int, int]) -> BoolArray | None:
        """Which rows are the run's lineage; None when all are.

        Args:
            ends: for each attempt that a later one overtook, the step at which it did. A row of an
                earlier attempt at or after that step is off the lineage; it stays readable.
        """
        if not ends:
            return None
        limit = np.full(len(self.step), np.iinfo(np.int64).max)
        for attempt, end in ends.items():
            limit[self.attempt == attempt] = end
        rows: BoolArray = self.step < limit
        return None if bool(rows.all()) else rows

    def series(self, name: str, rows: BoolArray | None = None) -> Series | None:
        """One metric as a series over these rows; None if it was never logged.

        A step that was logged several times keeps its last value.
        """
        if name not in self._known:
            return None
        values, valid = self.load(name)
        chosen = valid if rows is None else valid & rows
        if not chosen.any():
            return None
        whole = bool(chosen.all())
        steps, values = (self.step, values) if whole else (self.step[chosen], values[chosen])
        return Series(name, steps, values) if self._ascending else _ordered(name, steps, values)

    def series_by_rank(self, name: str, rows: BoolArray | None = None) -> dict[int, Series]:
        """One metric over these rows, as one series per rank that logged it."""
        if name not in self._known:
            return {}
        values, valid = self.load(name)
        chosen = np.flatnonzero(valid if rows is None else valid & rows)
        order = chosen[np.argsort(self.rank[chosen], kind="stable")]
        ranks, starts = np.unique(self.rank[order], return_index=True)
        parts = np.split(order, starts[1:])
        return {
            int(rank): _ordered(name, self.step[part], values[part])
            for rank, part in zip(ranks, parts, strict=len(ranks) > 0)
        }


def _ordered(name: str, steps: IntArray, values: FloatArray) -> Series:
    if len(steps) > 1 and not bool((steps[1:] > steps[:-1]).all()):
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        last = np.append(steps[1:] != steps[:-1], True)
        steps, values = steps[last], values[last]
    return Series(name, steps, values)


def takeovers(step: IntArray, attempt: IntArray) -> dict[int, int]:
    """For each attempt, the first step of any later attempt, where there is one."""
    numbers = sorted(int(number) for number in order_statistics.distinct(attempt))
    ends: dict[int, int] = {}
    earliest: int | None = None
    for number in reversed(numbers):
        if earliest is not None:
            ends[number] = earliest
        first = int(step[attempt == number].min())
        earliest = first if earliest is None else min(first, earliest)
    return ends


def empty_frame() -> Frame:
    """A frame without rows."""
    none: IntArray = np.empty(0, dtype=np.int64)
    return frame_of(none, {})


def frame_of(
    step: IntArray,
    columns: Mapping[str, Column],
    *,
    attempt: IntArray | None = None,
    rank: IntArray | None = None,
    time: FloatArray | None = None,
) -> Frame:
    """A frame over columns that are already in memory."""
    size = len(step)
    return Frame(
        step=step,
        attempt=np.ones(size, dtype=np.int64) if attempt is None else attempt,
        rank=np.zeros(size, dtype=np.int64) if rank is None else rank,
        time=np.full(size, np.nan) if time is None else time,
        names=tuple(sorted(columns)),
        load=lambda name: columns[name],
    )
