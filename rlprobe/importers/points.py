"""Points (key, step, time, value) -> rows. What formats share that log every metric by itself.

A restart is seen where a metric's own step goes back, or comes again in another file: metrics may
have steps of different kinds (updates, rollouts), so the steps of one are not compared with those
of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.importers.rows import Columns, RowTable
from rlprobe.values import BoolArray, FloatArray, IntArray

_MOST_RESTARTS = 200  # more than that is no run that was restarted, but steps in no order
_MOST_CELLS = 200_000_000  # rows x metrics; a metric beyond that is left out


@dataclass(frozen=True)
class Points:
    """Points in the order in which they were logged; arrays of one length.

    Attributes:
        key: number of the metric.
        time: seconds since the epoch.
        file: number of the file, for logs that are spread over several.
    """

    key: IntArray
    step: IntArray
    time: FloatArray
    value: FloatArray
    file: IntArray

    def __len__(self) -> int:
        return len(self.key)

    def take(self, chosen: IntArray | BoolArray) -> Points:
        """Some of them, in this order."""
        return Points(*(getattr(self, name)[chosen] for name in _FIELDS))

    @classmethod
    def of(
        cls, key: Sequence[int], step: Sequence[int], time: Sequence[float], value: Sequence[float]
    ) -> Points:
        """Points of one file."""
        return cls(
            np.array(key, dtype=np.int64),
            np.array(step, dtype=np.int64),
            np.array(time, dtype=np.float64),
            np.array(value, dtype=np.float64),
            np.zeros(len(key), dtype=np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        """Points one after another."""
        every = [cls.of((), (), (), ()), *parts]
        return cls(*(np.concatenate([getattr(part, name) for part in every]) for name in _FIELDS))


_FIELDS = ("key", "step", "time", "value", "file")


class ColumnTable(RowTable):
    """Rows that are columns already, with the time of each."""

    def __init__(self, steps: IntArray, columns: Columns, times: FloatArray | None = None) -> None:
        super().__init__()
        self._times = times
        if len(steps):
            self.add_columns(steps, columns)

    def times(self) -> FloatArray | None:
        """When each row was logged, seconds since the epoch; None if the log does not tell."""
        return self._times


def rows_of(names: Sequence[str], points: Points) -> ColumnTable:
    """One row per attempt and step; of several values of a metric there, the last counts.

    Args:
        names: name of each key.
        points: what was logged.
    """
    attempt = _attempts(points)
    order = np.lexsort((points.step, attempt))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(points.step[order]) != 0) | (np.diff(attempt[order]) != 0)
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.cumsum(new) - 1
    count = int(new.sum())
    times = np.full(count, -np.inf)
    np.maximum.at(times, row, points.time)
    kept = names[: _MOST_CELLS // max(1, count)]
    table = ColumnTable(points.step[order][new], _columns(kept, points, row, count), times)
    table.left_out = len(names) - len(kept)
    return table


def _columns(names: Sequence[str], points: Points, row: IntArray, count: int) -> Columns:
    order = np.argsort(points.key, kind="stable")
    ends = np.searchsorted(points.key[order], np.arange(len(names) + 1))
    columns: Columns = {}
    for number, name in enumerate(names):
        chosen = order[ends[number] : ends[number + 1]]
        if len(chosen):
            values, valid = columns.setdefault(
                name, (np.full(count, np.nan), np.zeros(count, dtype=np.bool_))
            )
            values[row[chosen]] = points.value[chosen]
            valid[row[chosen]] = True
    return columns


def _attempts(points: Points) -> IntArray:
    """The attempt of each point, from 0; a single one if the steps are in no order."""
    starts = [0]
    for place, before in _backs(points):
        if before >= starts[-1]:
            starts.append(place)
        if len(starts) > _MOST_RESTARTS:
            return np.zeros(len(points), dtype=np.int64)
    return np.searchsorted(np.array(starts), np.arange(len(points)), side="right") - 1


def _backs(points: Points) -> list[tuple[int, int]]:
    """Points at which a metric starts anew, each with the position of the metric's point before."""
    order = np.argsort(points.key, kind="stable")
    key, step, file = points.key[order], points.step[order], points.file[order]
    again = (step[1:] < step[:-1]) | ((step[1:] == step[:-1]) & (file[1:] != file[:-1]))
    back = np.flatnonzero((key[1:] == key[:-1]) & again)
    return sorted(zip(order[back + 1].tolist(), order[back].tolist(), strict=True))
