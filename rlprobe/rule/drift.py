"""Slow ruin: where a signal began, and where the drift to where it has got to set in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray

BLOCKS = 200  # a drift is looked for in so many blocks of rows
ABRUPT = 5  # rows: what takes fewer to arrive is no drift
MINIMUM = 6  # rows that two lines need
BAND = 2.0  # standard deviations around the line that the drift left


def beginning(signal: Signal, rows: int, *, share: float = 0.05) -> float:
    """The median of the first values: of so many rows, or of a share of a long run."""
    return stats.median(signal.values[: max(rows, int(share * len(signal)))])


def from_drift(stretch: Stretch, scaled: FloatArray, *, down: bool = False) -> Stretch:
    """From where the drift that leads to a stretch set in; the same where it came abruptly.

    Args:
        scaled: the signal on the scale on which it drifts, row by row.
        down: whether it drifts downwards.
    """
    if stretch.sure - stretch.start < ABRUPT:
        return stretch
    onset = drift_onset(-scaled if down else scaled, stretch.sure)
    return stretch.starting(min(onset, stretch.sure))


def drift_onset(values: FloatArray, end: int) -> int:
    """Row at which the rise that leads to row `end` set in.

    The rows up to it are described by two straight lines, the second steeper than the first (a
    hinge regression); the rise begins where the values leave the first line for good. Where no
    such bend is found, the first line is the level of the beginning.
    """
    rows = end + 1
    size = max(1, math.ceil(rows / BLOCKS))
    count = rows // size
    if count < MINIMUM:
        return end
    blocks = values[rows - count * size : rows].reshape(count, size)
    middles = np.median(blocks, axis=1)
    line = _before_bend(middles)
    scatter = max(line.scatter, stats.noise(middles))
    inside = np.flatnonzero(middles <= line.at(np.arange(count, dtype=np.float64)) + BAND * scatter)
    first = int(inside[-1]) + 1 if len(inside) else 0
    return min(end, rows - count * size + max(first, line.until) * size)


@dataclass(frozen=True, slots=True)
class _Line:
    """A straight line through the first blocks, up to a bend."""

    level: float
    slope: float
    until: int
    scatter: float

    def at(self, x: FloatArray) -> FloatArray:
        line: FloatArray = self.level + self.slope * x
        return line


def _before_bend(y: FloatArray) -> _Line:
    """The line before the best upward bend of a series of finite values."""
    count = len(y)
    x = np.arange(count, dtype=np.float64)
    flat = np.linalg.qr(np.stack([np.ones(count), x], axis=1))[0]
    bends = np.arange(2, count - 1)
    hinges = np.maximum(x[:, None] - bends, 0.0)
    left = y - flat @ (flat.T @ y)
    hinges_left = hinges - flat @ (flat.T @ hinges)
    along = hinges_left.T @ left
    gain = np.where(along > 0, along**2 / np.maximum((hinges_left**2).sum(axis=0), 1e-12), 0.0)
    best = int(np.argmax(gain))
    until = int(bends[best])
    if gain[best] <= 0 or gain[best] < 0.1 * float(left @ left):
        level = stats.median(y[: max(3, count // 20)])
        return _Line(level, 0.0, 0, stats.noise(y))
    near = slice(until // 2, until)  # of what lies before the bend, the part beside it
    slope, level = np.polyfit(x[near], y[near], 1) if until > 2 * MINIMUM else (0.0, y[near].mean())
    spread = stats.robust_std(y[near] - level - slope * x[near])
    return _Line(float(level), float(slope), until, spread)
