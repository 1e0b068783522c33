"""Slow ruin: the level of a signal from the beginning of a run to where it has got to.

A baseline that follows a signal takes every slow drift for the new usual. Here the level of blocks
of rows is held against the run's own beginning, and a drift begins where the level left it for
good.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch, stretch_from
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray, IntArray

BLOCKS = 40  # of rows, of which each has a level
LEAST_ROWS = 5  # of a block
END = 0.1  # share of the blocks that are the beginning, and where it has got to
LOOK_BACK = 64  # rows that a rise at the end of a log is higher than
PLATEAU = 8  # rows that show whether a level had shifted before a drift began
SLIGHT = 0.15  # part of a drift below which it had not begun
FLAT = 0.5  # part of the average slope of a drift below which rows are level


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of a signal in blocks of rows.

    Attributes:
        starts: first row of each block.
        values: median of each block; NaN where it has no value.
    """

    signal: Signal
    starts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, signal: Signal, least: int = LEAST_ROWS) -> Levels:
        """Blocks of equal size, at least `least` rows each."""
        count = max(1, min(BLOCKS, len(signal) // least))
        edges = np.linspace(0, len(signal), count + 1).astype(np.int64)
        levels = [stats.median(signal.values[a:b]) for a, b in itertools.pairwise(edges)]
        return cls(signal, edges[:-1], np.array(levels))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def beginning(self) -> float:
        """The level of the first tenth of the blocks."""
        return stats.median(self.values[: self._end])

    @property
    def now(self) -> float:
        """The level of the last tenth of the blocks."""
        return stats.median(self.values[-self._end :])

    @property
    def extent(self) -> float:
        """How far the level has ever moved."""
        known = self.values[np.isfinite(self.values)]
        return float(np.ptp(known)) if len(known) else 0.0

    @property
    def noise(self) -> float:
        """Scatter of the levels from block to block."""
        return stats.noise(self.values) if len(self) > 1 else 0.0

    def before(self, row: int) -> float:
        """The level before a row: of the blocks that ended there, or of the first ones."""
        ended = max(self._end, int(np.searchsorted(self.starts, row)))
        return stats.median(self.values[max(0, ended - self._end) : ended])

    def above(self, bound: float) -> Stretch | None:
        """From the first of the blocks, up to the last, whose levels all lie above a bound."""
        return self._beyond(self.values - bound)

    def below(self, bound: float) -> Stretch | None:
        """The same below it."""
        return self._beyond(bound - self.values)

    @property
    def _end(self) -> int:
        return max(1, round(END * len(self)))

    def _beyond(self, off: FloatArray) -> Stretch | None:
        inside = np.flatnonzero(off <= 0)
        first = int(inside[-1]) + 1 if len(inside) else 0
        return None if first == len(self) else stretch_from(self.signal, int(self.starts[first]))


def rise_at_end(signal: Signal, least: int) -> Stretch | None:
    """The last rows of a log, each above the one before and above all that came before them.

    Args:
        least: so many rows there must be.
    """
    values = signal.values[-(LOOK_BACK + BLOCKS) :]
    climbing = np.diff(values) > 0
    steady = np.flatnonzero(~climbing)
    first = int(steady[-1]) + 2 if len(steady) else 1  # the row before it is where it climbs from
    while first < len(values) and values[first] <= values[max(0, first - LOOK_BACK) : first].max():
        first += 1
    if first < LOOK_BACK // 8 or len(values) - first < least:
        return None
    return stretch_from(signal, len(signal) - len(values) + first)


def after_plateau(scaled: FloatArray, first: int, sure: int, sigma: float) -> int:
    """Where the drift that leads to a row began, if the level had shifted before and stayed.

    Args:
        scaled: the signal on the scale on which it is compared.
        first: row at which it left the level of its past.
        sure: first row that is surely part of the drift.
        sigma: a standard deviation of it.
    """
    while sure - first >= PLATEAU:
        head = scaled[first : first + PLATEAU]
        level, half = stats.median(head), PLATEAU // 2
        slope = (scaled[sure] - level) / (sure - first) * half
        if stats.median(head[half:]) - stats.median(head[:half]) > FLAT * slope:
            break
        z = (scaled - level) / sigma
        later = stats.drift_onset(z, sure, reach=sure - first - 1)
        if later <= first + half:
            break
        first = later
    level = stats.median(scaled[max(0, first - PLATEAU) : first]) if first else scaled[0]
    usual = np.flatnonzero(scaled[first:sure] <= level + SLIGHT * (scaled[sure] - level))
    return first + int(usual[-1]) + 1 if len(usual) else first
