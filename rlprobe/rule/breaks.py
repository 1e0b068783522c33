"""Breaks that several metrics share: a change of one alone proves little, of many at one row much.

A break is a milder `Shift`: a change of the level over few rows that is larger than any that the
metric had made before over as many rows, and most of which happened from one row to the next.
Whether the level stays is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.changes import coarseness, level_moves, parting
from rlprobe.rule.signals import Signal
from rlprobe.values import BoolArray, FloatArray, IntArray

BEFORE, AFTER = 8, 4  # rows whose medians are compared
SETTLED = 24  # rows that show how a metric moves by itself
MOST_BLOCKS = 2_048  # blocks of rows that a long series is judged in
PER_BLOCK = 9  # rows that a block's level is taken from
BREAKS = 16  # largest breaks of a metric that are kept
AT_ONCE = 0.4  # part of a change that happens from one row to the next
STEPS = 3  # steps of a coarse metric that a break has to make
GRAIN = 1e-3  # part of the level that no metric is steadier than
NEAR = 2  # rows that breaks of one moment lie apart at most


@dataclass(frozen=True, slots=True)
class Break:
    """A level that broke at one row.

    Attributes:
        row: first row of the new level.
        before, after: medians of the rows on either side, in the metric's unit.
        times: the change in times the largest that the metric had made before.
    """

    signal: Signal
    row: int
    before: float
    after: float
    times: float

    @property
    def step(self) -> int:
        """First step of the new level."""
        return int(self.signal.steps[self.row])

    @property
    def up(self) -> bool:
        """Whether the level rose."""
        return self.after > self.before

    @property
    def ratio(self) -> float:
        """How many times as large the level became; NaN where that makes no sense."""
        return self.after / self.before if self.before > 0 else math.nan


def breaks_in(signal: Signal, *, times: float, learnt: int = 0) -> tuple[Break, ...]:
    """The breaks of a metric that are so many times its largest earlier change, largest first.

    A metric that is positive throughout is compared on a log scale.

    Args:
        learnt: 1 or -1 where learning moves the metric up or down: how fast it was learnt then
            tells nothing of what is lost, and a change back is compared with earlier ones back.
    """
    values = signal.values
    if len(values) < SETTLED + AFTER:
        return ()
    size = max(1, math.ceil(len(values) / MOST_BLOCKS))
    log = bool((values > 0).all())
    blocks = _scaled(_blocks(values, size), log=log)
    change = _changes(blocks)
    earlier = _largest_before(change, blocks)
    if learnt:
        back = np.minimum(change * learnt, 0.0)
        least = np.fmax(_largest_before(back, blocks), stats.noise(blocks))
        earlier = np.where(back < 0, least, earlier)
    ratio = np.where(earlier > 0, np.abs(change) / np.maximum(earlier, 1e-300), 0.0)
    ratio[:SETTLED] = 0.0
    ratio[np.abs(change) < STEPS * coarseness(blocks, len(blocks) / 4)] = 0.0
    rows = [row for row in _peaks(ratio, np.abs(change), times) if _at_once(blocks, change, row)]
    return tuple(_break(signal, _refined(values, row, size, log=log), ratio[row]) for row in rows)


def _scaled(values: FloatArray, *, log: bool) -> FloatArray:
    return np.log(values) if log else values


def held_until(item: Break) -> int:
    """The last row on the new side of a break before most rows are back on the old one."""
    middle = (item.before + item.after) / 2
    if item.before > 0 and item.after > 0:
        middle = math.sqrt(item.before * item.after)
    values = item.signal.values[item.row :]
    old_side: BoolArray = values < middle if item.up else values > middle
    back = stats.persistent(old_side, width=BEFORE, share=0.75)
    held: IntArray = np.flatnonzero(~old_side[: back[0].start] if back else ~old_side)
    return item.row + (int(held[-1]) if len(held) else 0)


def moments(all_breaks: Iterable[Break], interval: int) -> Iterator[list[Break]]:
    """Breaks of several metrics that happened at one moment, in order of time."""
    group: list[Break] = []
    for item in sorted(all_breaks, key=lambda item: (item.step, -item.times)):
        if group and item.step > group[0].step + NEAR * interval:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _blocks(values: FloatArray, size: int) -> FloatArray:
    if size == 1:
        return values
    count = len(values) // size
    grid = values[: count * size].reshape(count, size)
    medians: FloatArray = stats.row_medians(grid[:, :: max(1, size // PER_BLOCK)])
    return medians


def _changes(blocks: FloatArray) -> FloatArray:
    """Median of the rows from each row on less that of the rows before it; 0 near the ends."""
    out = np.zeros(len(blocks))
    moves = level_moves(blocks, BEFORE, AFTER)
    out[BEFORE : BEFORE + len(moves)] = moves
    return out


def _largest_before(change: FloatArray, blocks: FloatArray) -> FloatArray:
    """The largest change before each row whose rows do not reach into it, none below a grain.

    Few rows have shown little of what is usual: what they have shown counts for more.
    """
    largest = np.maximum.accumulate(np.abs(change))
    out = np.zeros(len(change))
    out[AFTER:] = largest[:-AFTER]
    grain = GRAIN * max(abs(stats.median(blocks)), stats.robust_std(blocks), 1e-12)
    few = 1 + SETTLED / np.maximum(np.arange(len(change)), 1)
    return np.maximum(out, grain) * few


def _peaks(ratio: FloatArray, size: FloatArray, times: float) -> list[int]:
    """The row of the largest change of each stretch of large ones."""
    large: BoolArray = ratio >= times
    peaks = [
        episode.start + int(np.argmax(size[episode.rows]))
        for episode in stats.episodes(large, gap=AFTER, most=BREAKS)
    ]
    return sorted(peaks, key=lambda row: -float(ratio[row]))


def _at_once(blocks: FloatArray, change: FloatArray, row: int) -> bool:
    """Whether most of a change happened from one row to the next."""
    near = np.diff(blocks[max(0, row - AFTER) : row + AFTER]) * math.copysign(1.0, change[row])
    return bool(near.max() >= AT_ONCE * abs(change[row]))


def _refined(values: FloatArray, row: int, size: int, *, log: bool) -> int:
    """The row of the largest step in the direction of the change, near where it was seen."""
    start = max(0, (row - AFTER) * size)
    near = _scaled(values[start : (row + AFTER) * size], log=log)
    quarter = len(near) // 4
    before, after = stats.median(near[:quarter]), stats.median(near[-quarter:])
    if size == 1:
        return start + 1 + int(np.argmax(np.diff(near) * math.copysign(1.0, after - before)))
    return min(start + parting(near, before, after), len(values) - 1)


def _break(signal: Signal, row: int, times: float) -> Break:
    before = stats.median(signal.values[max(0, row - BEFORE) : row])
    after = stats.median(signal.values[row : row + AFTER])
    return Break(signal, row, before, after, float(times))
