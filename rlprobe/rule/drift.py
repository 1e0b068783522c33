"""Slow ruin: where a signal began, and where the drift to where it has got to set in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray

BLOCKS = 200  # a drift is looked for in so many blocks of rows
ABRUPT = 5  # rows: what takes fewer to arrive is no drift
MINIMUM = 6  # rows that two lines need
SIGMAS, SHARE = 5.0, 0.1  # a bend explains more than noise, and this part of what a line leaves
SAME = 0.25  # part of the steepest slope that still is the same rise
BAND = 2.0  # standard deviations around the line that the drift left


def beginning(signal: Signal, rows: int, *, share: float = 0.05) -> float:
    """The median of the first values: of so many rows, or of a share of a long run."""
    return stats.median(signal.values[: max(rows, int(share * len(signal)))])


def from_drift(
    stretches: Iterable[Stretch], scaled: FloatArray, *, down: bool = False
) -> list[Stretch]:
    """From where the drift that leads to each stretch set in; the same where it came abruptly.

    Stretches whose drift set in before the one before had ended are one.

    Args:
        stretches: of one signal, in order.
        scaled: the signal on the scale on which it drifts, row by row.
        down: whether it drifts downwards.
    """
    rising = -scaled if down else scaled
    joined: list[Stretch] = []
    for stretch in stretches:
        slow = stretch
        if stretch.sure - stretch.start >= ABRUPT:
            slow = stretch.starting(drift_onset(rising, stretch.sure))
        if joined and slow.start <= joined[-1].end:
            last = joined.pop()
            slow = dataclasses.replace(last, end=slow.end, recovered=slow.recovered)
        joined.append(slow)
    return joined


def drift_onset(values: FloatArray, end: int) -> int:
    """Row at which the rise that leads to row `end` set in.

    The rows up to it are described by two straight lines, the second steeper than the first (a
    hinge regression), then those up to that bend again, as long as the same rise goes on. It begins
    where the values leave the line before the bend for good. Where no bend is found, that line is
    the level of the beginning.
    """
    rows = end + 1
    size = max(1, math.ceil(rows / BLOCKS))
    count = rows // size
    if count < MINIMUM:
        return end
    blocks = stats.row_medians(values[rows - count * size : rows].reshape(count, size))
    bend = _first_bend(blocks)
    level, slope, scatter = _line(blocks, bend)
    line = level + slope * np.arange(count)
    inside = np.flatnonzero(blocks <= line + BAND * max(scatter, stats.noise(blocks)))
    first = int(inside[-1]) + 1 if len(inside) else 0
    return min(end, rows - count * size + max(first, bend) * size)


def _first_bend(y: FloatArray) -> int:
    """The bend at which a rise sets in, of a series of finite values; 0 where there is none.

    A climb from nothing that slackens, as of what is learnt first, hides what comes after it: where
    no bend stands out, it is looked for after that.
    """
    least = (SIGMAS * stats.noise(y)) ** 2
    start = 0
    while len(y) - start > MINIMUM:
        if bend := _bend_since(y[start:], least):
            return start + bend
        slackened, gain, spread = _best_bend(-y[start:])
        if gain <= max(least, SHARE * spread):
            break
        start += slackened
    return 0


def _bend_since(y: FloatArray, least: float) -> int:
    """The first bend of one rise to the end of a series; 0 where no bend stands out."""
    bend, steepest = len(y) - 1, 0.0
    while bend >= MINIMUM:
        place, gain, spread = _best_bend(y[: bend + 1])
        steepness = float(y[bend] - y[place]) / (bend - place)
        if gain <= max(least, SHARE * spread) or steepness < SAME * steepest:
            break
        bend, steepest = place, max(steepest, steepness)
    return bend if steepest else 0


def _best_bend(y: FloatArray) -> tuple[int, float, float]:
    """Where an upward bend explains most, how much, and how much a straight line leaves."""
    x = np.arange(len(y), dtype=np.float64)
    straight = np.linalg.qr(np.stack([np.ones(len(y)), x], axis=1))[0]
    bends = np.arange(2, len(y) - 1)
    hinges = np.maximum(x[:, None] - bends, 0.0)
    rest = y - straight @ (straight.T @ y)
    hinges -= straight @ (straight.T @ hinges)
    along = hinges.T @ rest
    gain = np.where(along > 0, along**2 / np.maximum((hinges**2).sum(axis=0), 1e-12), 0.0)
    best = int(np.argmax(gain))
    return int(bends[best]), float(gain[best]), float(rest @ rest)


def _line(y: FloatArray, bend: int) -> tuple[float, float, float]:
    """Level at 0, slope and scatter of the line before a bend, from the part beside it."""
    if not bend:
        return stats.median(y[: max(3, len(y) // 20)]), 0.0, stats.noise(y)
    near = slice(bend // 2, bend)
    x = np.arange(len(y), dtype=np.float64)
    slope, level = np.polyfit(x[near], y[near], 1) if bend > 2 * MINIMUM else (0.0, y[near].mean())
    return float(level), float(slope), stats.robust_std(y[near] - level - slope * x[near])
