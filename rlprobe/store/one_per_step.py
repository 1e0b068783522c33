"""Rows of the same step, attempt and rank as one: each column keeps its last logged value.

A step may be logged in parts: its scalars, then an evaluation, then what one more call of a tracker
adds. What was not logged never overrides what was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlprobe.store.frame import Column, Frame
from rlprobe.values import BoolArray, IntArray


def merged(frame: Frame) -> Frame:
    """The same with one row per step, attempt and rank, where it was first logged.

    A frame that has no more is returned as it is. The time is that of the first row: when the
    step was logged, not when its evaluation had ended.
    """
    if not _may_repeat(frame):
        return frame
    parts = _Parts.of(frame)
    if len(parts.starts) == len(frame):
        return frame
    first = parts.first
    return Frame(
        step=frame.step[first],
        attempt=frame.attempt[first],
        rank=frame.rank[first],
        time=frame.time[first],
        names=frame.names,
        load=parts.loader(frame.load),
    )


def _may_repeat(frame: Frame) -> bool:
    """Whether steps do not ascend, attempt by attempt and rank by rank."""
    later = frame.step[1:] > frame.step[:-1]
    if later.all():
        return False
    ordered = (frame.attempt[1:] > frame.attempt[:-1]) | (
        (frame.attempt[1:] == frame.attempt[:-1])
        & ((frame.rank[1:] > frame.rank[:-1]) | ((frame.rank[1:] == frame.rank[:-1]) & later))
    )
    return not bool(ordered.all())


@dataclass(frozen=True)
class _Parts:
    """Which rows make up a step.

    Attributes:
        order: rows, those of one step next to each other, in the order in which they were logged.
        starts: where in `order` each step begins.
        first: the first row of each step, ascending.
    """

    order: IntArray
    starts: IntArray
    first: IntArray

    @classmethod
    def of(cls, frame: Frame) -> _Parts:
        """Of the rows of a frame."""
        order = np.lexsort((frame.step, frame.rank, frame.attempt))
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = _differs(frame.step[order]) | _differs(frame.rank[order])
        begins[1:] |= _differs(frame.attempt[order])
        starts = np.flatnonzero(begins)
        return cls(order, starts, np.sort(order[starts]))

    def loader(self, load: Callable[[str], Column]) -> Callable[[str], Column]:
        """Loads a column, step by step."""
        places = np.argsort(self.order[self.starts], kind="stable")

        def load_merged(name: str) -> Column:
            values, valid = load(name)
            logged: BoolArray = valid[self.order]
            last = np.where(logged, np.arange(len(logged)), -1)
            latest = np.maximum.reduceat(last, self.starts)[places]
            return values[self.order[latest]], latest >= 0

        return load_merged


def _differs(values: IntArray) -> BoolArray:
    changed: BoolArray = values[1:] != values[:-1]
    return changed
