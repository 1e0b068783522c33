"""A metric over the logged steps, and what it was like before each of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.errors import Inconclusive
from rlprobe.values import BoolArray, FloatArray, IntArray, Series

WHOLE = stats.MAX_BLOCKS  # window of a baseline: the whole past


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric of a run: its finite values and the steps at which they were logged.

    Attributes:
        rank: whose it is; None for the run as a whole.
    """

    run: RunContext
    metric: str
    steps: IntArray
    values: FloatArray
    rank: int | None = None

    @classmethod
    def of(
        cls, run: RunContext, metric: str, *, minimum: int = 1, above: float = -math.inf
    ) -> Signal:
        """A metric that the rule cannot do without.

        Args:
            minimum: finite values that the rule needs.
            above: values at or below it are no measurement.

        Raises:
            Inconclusive: it was not logged for the run as a whole, or has too few values.
        """
        signal = cls.logged(run, metric, above=above)
        if signal is None:
            raise Inconclusive(f"{metric}: logged by single ranks only")
        signal.require(minimum)
        return signal

    @classmethod
    def logged(cls, run: RunContext, metric: str, *, above: float = -math.inf) -> Signal | None:
        """A metric that may be missing."""
        series = run.series(metric)
        if series is None:
            return None
        return cls(run, metric, *stats.measured(series, above=above))

    def require(self, minimum: int) -> None:
        """Raise Inconclusive if there are fewer values than that."""
        if len(self) < minimum:
            points = "point" if len(self) == 1 else "points"
            raise Inconclusive(f"{self.metric}: {len(self)} {points}, needs {minimum}")

    def __len__(self) -> int:
        return len(self.steps)

    def with_values(self, values: FloatArray) -> Signal:
        """The same rows with other values, e.g. in another unit."""
        return dataclasses.replace(self, values=values)

    def where(self, rows: BoolArray) -> Signal:
        """These rows only."""
        if rows.all():
            return self
        return dataclasses.replace(self, steps=self.steps[rows], values=self.values[rows])

    def at(self, steps: IntArray) -> FloatArray:
        """Its values at these steps; NaN where it has none."""
        return stats.at_steps(Series(self.metric, self.steps, self.values), steps)

    def beside(self, metric: str) -> FloatArray:
        """Another metric at the same steps; NaN where it has no value."""
        return stats.at_steps(self.run.series(metric), self.steps)

    def alongside(self, metric: str) -> Signal:
        """The same as a signal, row by row: the one signal that may have NaN."""
        return dataclasses.replace(self, metric=metric, values=self.beside(metric))

    def past(
        self,
        *,
        log: float | None = None,
        above: float = math.inf,
        below: float = math.inf,
        warmup: int = 5,
        window: int = 64,
        without: BoolArray | None = None,
    ) -> Past:
        """What the metric was like before each row: see `stats.past_baseline`.

        Args:
            log: compare on a log scale, where values below this count as this.
            above, below: how far off the level, on the scale, a row is still learnt from.
            without: rows that are never learnt from.
        """
        scaled = self.values if log is None else stats.logs(self.values, log)
        learnt = scaled if without is None else np.where(without, np.nan, scaled)
        baseline = stats.past_baseline(
            learnt, above=above, below=below, warmup=warmup, window=window
        )
        return Past(scaled, baseline.center, baseline.robust_std, log is not None)

    def best_level(
        self, rows: int = 16, *, warmup: int = 1, without: BoolArray | None = None
    ) -> Best:
        """The highest median of so many rows that the metric had reached before each row.

        Args:
            without: rows that are never learnt from.
        """
        past = self.past(warmup=warmup, window=rows, without=without)
        return Best(self.values, stats.rolling_max(past.center), past.robust_std)


def early(rows: int, of: int) -> BoolArray:
    """The first `rows` of `of` rows."""
    return np.arange(of) < rows


@dataclass(frozen=True, slots=True)
class Past:
    """What a signal was like before each row; NaN where too little was known.

    Attributes:
        scaled: the signal's values on the scale on which they are compared.
        center, robust_std: level and scatter of the past, on that scale.
        log: whether it is the logarithm.
    """

    scaled: FloatArray
    center: FloatArray
    robust_std: FloatArray
    log: bool

    @property
    def level(self) -> FloatArray:
        """The level in the metric's own unit."""
        return np.exp(self.center) if self.log else self.center

    @property
    def rise(self) -> FloatArray:
        """Distance above the level, on the scale."""
        result: FloatArray = self.scaled - self.center
        return result

    def times(self, factor: float) -> BoolArray:
        """Rows above so many times the level."""
        if self.log:
            return self.rise > math.log(factor)
        result: BoolArray = self.scaled > factor * self.center
        return result

    def under(self, share: float) -> BoolArray:
        """Rows below so small a part of the level."""
        if self.log:
            return -self.rise > -math.log(share)
        result: BoolArray = self.scaled < share * self.center
        return result

    def above(self, *, sigmas: float = 0.0, at_least: float = 0.0, floor: float = 0.0) -> BoolArray:
        """Rows above the level by so many robust standard deviations, and by `at_least`.

        Args:
            floor: no standard deviation counts as smaller.
        """
        return self.rise > self._far(sigmas, at_least, floor)

    def below(self, *, sigmas: float = 0.0, at_least: float = 0.0, floor: float = 0.0) -> BoolArray:
        """Rows below the level by so much."""
        return -self.rise > self._far(sigmas, at_least, floor)

    def within(self, sigmas: float) -> BoolArray:
        """Rows at most so many robust standard deviations above a level that is known."""
        result: BoolArray = self.rise <= sigmas * self.robust_std
        return result

    def _far(self, sigmas: float, at_least: float, floor: float) -> FloatArray:
        std = np.maximum(self.robust_std, floor)
        far: FloatArray = np.maximum(sigmas * std, at_least)
        return far


@dataclass(frozen=True, slots=True)
class Best:
    """The best level that a signal had reached before each row.

    Attributes:
        robust_std: scatter of the past.
    """

    values: FloatArray
    level: FloatArray
    robust_std: FloatArray

    def z(self, least_share: float = 0.0) -> FloatArray:
        """Distance from it in robust standard deviations.

        Args:
            least_share: no standard deviation counts as a smaller part of the level.
        """
        std = np.maximum(self.robust_std, least_share * np.abs(self.level))
        result: FloatArray = (self.values - self.level) / np.maximum(std, 1e-9)
        return result

    def lost(self, share: float) -> BoolArray:
        """Rows that have lost more than this part of it."""
        result: BoolArray = self.level - self.values > share * self.level
        return result

    def gained(self, *, sigmas: float, at_least: float = 0.0) -> BoolArray:
        """Rows above it by so many robust standard deviations, none smaller than `at_least`."""
        std = np.maximum(self.robust_std, at_least)
        result: BoolArray = self.values - self.level > sigmas * std
        return result
