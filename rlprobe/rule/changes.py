"""Abrupt changes of a signal, each against all changes that the run itself had made before.

Fixed ratios miss a level that shifts by many times its own noise, and a robust distance from the
past takes every trend for news. Here a change of the level over `HORIZON` rows is held against the
changes over as many rows that the signal had made before: what drifts, is autocorrelated or has
heavy tails has made large ones, and has to make a larger one still.

Long signals are judged in blocks of rows, so that the cost stays linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch, stretch_from
from rlprobe.rule.signals import Signal
from rlprobe.stats import logs
from rlprobe.values import BoolArray, FloatArray, IntArray

HORIZON = 8  # rows on either side whose medians are compared
LEAST_AFTER = 4  # rows after a shift that show that it is no spike
LEAST_BEFORE = 2 * HORIZON  # rows before it that show how the signal moves by itself
MOST_BLOCKS = 4_096  # rows, or blocks of rows, that are looked at
CANDIDATES = 24  # largest changes of a signal that are judged
USUAL = 0.9  # quantile of the earlier changes ...
TIMES_USUAL = 3.0  # ... and times that which no ordinary change reaches
RARE, TIMES_RARE = 0.98, 1.5  # the same for the change from two rows to the next two
SIGMAS = 5.0  # standard deviations of the noise from row to row
APART = 7 / 8  # share of the rows on either side that lie on its side of the middle
ABRUPT = 0.4  # part of the change by which the rows next to it may be off their level
LEVEL = 0.5  # part of the change that the levels on either side may drift in the same direction
FEW_VALUES = 8  # a signal that takes no more values than this moves in steps of its own ...
STEPS = 3  # ... of which a shift has to make so many
LEAP_TIMES = 2.0  # times the largest earlier step from row to row that make a leap
LEAP_MEAN = 8.0  # times the mean of the earlier steps that it has to be, too
_GAUSSIAN = 1.128  # mean difference of two normal values, in standard deviations


@dataclass(frozen=True, slots=True)
class Shift:
    """A level that changed from one row to the next.

    Attributes:
        row: first row of the new level.
        before, after: medians of the rows on either side, in the metric's unit.
        times: the change in times the usual change over the same horizon; infinite where the signal
            had not moved at all.
        lasts: whether the signal stays on the new side to its end.
        until: last row on the new side.
    """

    signal: Signal
    row: int
    before: float
    after: float
    times: float
    lasts: bool
    until: int

    @property
    def up(self) -> bool:
        """Whether the level rose."""
        return self.after > self.before

    @property
    def step(self) -> int:
        """First step of the new level."""
        return int(self.signal.steps[self.row])

    @property
    def stretch(self) -> Stretch:
        """Its rows as an episode."""
        return stretch_from(self.signal, self.row, self.until)


def shifts(signal: Signal, *, log: float | None = None, least: float = 0.0) -> tuple[Shift, ...]:
    """The level shifts of a signal, in order.

    Args:
        log: compare on a log scale, where values below this count as this.
        least: changes smaller than this, on the scale, are no news.
    """
    scaled = signal.values if log is None else logs(signal.values, log)
    size = max(1, math.ceil(len(scaled) / MOST_BLOCKS))
    blocks = _blocks(scaled, size)
    seen: list[Shift] = []
    for row in _candidates(blocks, least):
        place = row if size == 1 else _place_in_rows(scaled, row * size, size)
        times = _times(blocks, row)
        if times >= TIMES_USUAL and _stands_out(blocks, row, least):
            seen.append(_shift(signal, scaled, place, times))
    return tuple(sorted(seen, key=lambda shift: shift.row))


def leaps(signal: Signal, *, log: float | None = None, least: float = 0.0) -> IntArray:
    """Rows that differ from the row before by far more than any row before did, ascending.

    Whether the level stays or comes back is not asked.

    Args:
        log, least: as for `shifts`.
    """
    scaled = signal.values if log is None else logs(signal.values, log)
    if len(scaled) <= LEAST_BEFORE:
        return np.zeros(0, dtype=np.int64)
    steps = np.abs(np.diff(scaled, prepend=scaled[0]))
    largest = np.concatenate(([0.0], np.maximum.accumulate(steps)[:-1]))
    mean = np.concatenate(([0.0], np.cumsum(steps)[:-1])) / np.maximum(np.arange(len(steps)), 1)
    far: BoolArray = (steps > LEAP_TIMES * largest) & (steps > LEAP_MEAN * mean) & (steps > least)
    far[:LEAST_BEFORE] = False
    rows: IntArray = np.flatnonzero(far)
    return rows


def _blocks(scaled: FloatArray, size: int) -> FloatArray:
    """Medians of blocks of rows; the last rows that fill no block are left out."""
    if size == 1:
        return scaled
    full = len(scaled) // size * size
    medians: FloatArray = stats.row_medians(scaled[:full].reshape(-1, size))
    return medians


def _changes(blocks: FloatArray, after: int = HORIZON) -> FloatArray:
    """Median of the rows from each row on less that of the rows before it; NaN near the ends."""
    out = np.full(len(blocks), np.nan)
    moves = level_moves(blocks, HORIZON, after)
    out[HORIZON : HORIZON + len(moves)] = moves
    return out


def level_moves(values: FloatArray, before: int, after: int) -> FloatArray:
    """Median of the `after` rows from each row on less that of the `before` rows ahead of it.

    Of the rows that have as many on either side, the first of which is row `before`.
    """
    count = len(values) - before - after + 1
    if count < 1:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view
    behind = stats.row_medians(windows(values, before))[:count]
    moves: FloatArray = stats.row_medians(windows(values, after))[before:] - behind
    return moves


def parting(values: FloatArray, before: float, after: float) -> int:
    """The place at which two levels part some values best: first of those at the second."""
    off = np.abs(values - before) - np.abs(values - after)
    return int(np.argmin(np.cumsum(off))) + 1


def coarseness(values: FloatArray, most: float) -> float:
    """The smallest difference of values of which at most so many differ; 0 of all others."""
    different = stats.distinct(values)
    return float(np.diff(different).min()) if 1 < len(different) <= most else 0.0


def _candidates(blocks: FloatArray, least: float) -> Iterator[int]:
    """Rows at which the level changes most, the largest first, none within reach of another."""
    if len(blocks) < LEAST_BEFORE + LEAST_AFTER:
        return
    size = np.abs(_changes(blocks))
    short = np.abs(_changes(blocks, LEAST_AFTER))
    size = np.where(np.isnan(size), short, size)  # the last rows
    size[:LEAST_BEFORE] = np.nan
    taken: list[int] = []
    for row in np.argsort(-np.nan_to_num(size, nan=-1.0))[: CANDIDATES * HORIZON].tolist():
        if not size[row] > least or len(taken) >= CANDIDATES:
            return
        exact = _exact(blocks, row)
        room = LEAST_BEFORE <= exact <= len(blocks) - LEAST_AFTER
        if room and all(abs(exact - other) > HORIZON for other in taken):
            taken.append(exact)
            yield exact


def _exact(blocks: FloatArray, row: int) -> int:
    """The row near one at which two levels part the rows around it best."""
    start, end = max(0, row - HORIZON), min(len(blocks), row + HORIZON)
    around = blocks[start:end]
    before, after = stats.median(blocks[start:row]), stats.median(blocks[row:end])
    best = start + parting(around, before, after)
    return min(max(best, 1), len(blocks) - 1)


def _place_in_rows(scaled: FloatArray, row: int, size: int) -> int:
    """The row of a long signal at which a shift that was seen in blocks took place."""
    reach = HORIZON * size
    before = stats.median(scaled[max(0, row - reach) : max(row - size, 1)])
    after = stats.median(scaled[row + size : row + reach])
    start = max(0, row - 2 * size)
    around = scaled[start : row + 2 * size]
    return min(start + parting(around, before, after), len(scaled) - 1)


def _times(blocks: FloatArray, row: int) -> float:
    """A change in times the usual earlier change over the same horizon."""
    before, after = blocks[max(0, row - HORIZON) : row], blocks[row : row + HORIZON]
    change = abs(stats.median(after) - stats.median(before))
    earlier = np.abs(_changes(blocks[:row], min(len(after), HORIZON)))
    earlier = earlier[np.isfinite(earlier)]
    usual = stats.quantile(earlier, USUAL) if len(earlier) else 0.0
    return change / usual if usual > 0 else math.inf


def _stands_out(blocks: FloatArray, row: int, least: float) -> bool:
    """Whether a change is no noise, no coarseness of the values, and took place at one row."""
    before, after = blocks[max(0, row - HORIZON) : row], blocks[row : row + HORIZON]
    low, high = stats.median(before), stats.median(after)
    change = abs(high - low)
    steps = np.abs(np.diff(blocks[:row]))
    coarse = STEPS * coarseness(blocks[:row], FEW_VALUES)
    if change <= max(least, SIGMAS * float(steps.mean()) / _GAUSSIAN, coarse):
        return False
    middle, sign = (low + high) / 2, math.copysign(1.0, high - low)
    parted = (
        np.mean(sign * (before - middle) < 0) >= APART
        and np.mean(sign * (after - middle) > 0) >= APART
    )
    near = abs(float(before[-2:].mean()) - low), abs(float(after[:2].mean()) - high)
    level = sign * (_trend(before) + _trend(after)) <= LEVEL * change
    return bool(parted) and max(near) <= ABRUPT * change and level and _at_once(blocks, row)


def _trend(values: FloatArray) -> float:
    """By how much the second half of some rows lies above the first."""
    half = len(values) // 2
    return stats.median(values[-half:]) - stats.median(values[:half])


def _at_once(blocks: FloatArray, row: int) -> bool:
    """Whether the two rows from a change on differ from the two before it as hardly any did."""
    pairs = (blocks[1 : row + 2] + blocks[: row + 1]) / 2
    steps = np.abs(pairs[2:] - pairs[:-2])
    return bool(steps[-1] > TIMES_RARE * stats.quantile(steps[:-3], RARE))


def _shift(signal: Signal, scaled: FloatArray, row: int, times: float) -> Shift:
    reach = HORIZON * max(1, math.ceil(len(scaled) / MOST_BLOCKS))
    near, far = slice(max(0, row - reach), row), slice(row, row + reach)
    low, high = stats.median(scaled[near]), stats.median(scaled[far])
    new_side = (scaled[row:] - (low + high) / 2) * math.copysign(1.0, high - low) > 0
    until = _until(new_side, reach)
    return Shift(
        signal,
        row,
        stats.median(signal.values[near]),
        stats.median(signal.values[far]),
        times,
        lasts=until == len(new_side) - 1,
        until=row + until,
    )


def _until(new_side: BoolArray, reach: int) -> int:
    """The last row on the new side before most of `reach` rows are back on the old one."""
    old = np.concatenate(([0], np.cumsum(~new_side)))
    back: IntArray = np.flatnonzero(old[reach:] - old[:-reach] > reach / 2)
    if not len(back):
        return len(new_side) - 1
    end = int(back[0]) + reach
    held = np.flatnonzero(new_side[:end])
    return int(held[-1]) if len(held) else 0
