"""How far a reward can go, and how much of that a run has gained."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch
from rlprobe.rule.learning import near_top
from rlprobe.rule.rewards import task_components
from rlprobe.rule.signals import Signal
from rlprobe.values import BoolArray, FloatArray

UNIT = 1.0  # highest reward where all are between 0 and this, and no higher one was ever seen
SLIGHT = 0.05  # part of a range that a noisy mean may be below it, or that is no rise
SMOOTH = 8  # rows of which a level is the mean
FIRST, FIRST_SHARE = 8, 0.05  # rows, or share of a long run, that are its beginning
SURE = 2.0  # standard errors that a gain is more than


@dataclass(frozen=True, slots=True)
class Reach:
    """The range of a reward.

    Attributes:
        reward: mean reward, or its part for the task, one per row; NaN where none is logged.
        bottom: its lowest value, 0 if it never was lower.
        top: the highest reward of any rollout; 1 where all means are between 0 and 1 and no higher
            one was logged; NaN where nothing is known of it.
        seen: whether the highest reward of a rollout is logged.
    """

    reward: FloatArray
    bottom: float
    top: float
    seen: bool

    @classmethod
    def of(cls, signal: Signal, reward: FloatArray) -> Reach:
        """The range of a mean reward at the rows of a signal; that of the task, if one is named."""
        lowest, highest = _extreme(signal, "reward_min", -1), _extreme(signal, "reward_max", 1)
        task = _task(signal)
        if task is not None:
            reward, lowest, highest = task, math.nan, math.nan
        means = reward[np.isfinite(reward)]
        bottom = min(0.0, lowest if math.isfinite(lowest) else stats.quantile(means, 0.05))
        mean = float(means.max()) if len(means) else math.nan
        unit = UNIT if bottom >= -SLIGHT * UNIT and mean <= UNIT else math.nan
        top = max(highest, mean) if math.isfinite(highest) else unit
        return cls(reward, 0.0 if math.isnan(bottom) else bottom, top, math.isfinite(highest))

    @property
    def level(self) -> FloatArray:
        """The mean of the last rows, at each row."""
        return stats.rolling_mean(self.reward, SMOOTH)

    @property
    def beginning(self) -> float:
        """The median of the first rows."""
        return stats.median(self.reward[: max(FIRST, int(FIRST_SHARE * len(self.reward)))])

    def low(self, share: float) -> BoolArray:
        """Rows in the lowest part of the range; none where the top is not known."""
        result: BoolArray = self.level <= self.bottom + share * (self.top - self.bottom)
        return result

    def risen(self, times: float) -> BoolArray:
        """Rows at so many times what the run began with, above the bottom, and by no mere noise."""
        begun = self.beginning - self.bottom
        rise = self.level - self.beginning
        least = max(SURE * self._error, SLIGHT * (self.top - self.bottom))
        result: BoolArray = rise > max((times - 1) * begun, least)
        return result

    def gained(self, start: int, end: int, share: float) -> bool:
        """Whether the reward won a share of what it could still win between two rows.

        Where the top is not known, of all that it ever moved by.
        """
        before = stats.median(self.reward[max(0, start - SMOOTH) : max(start, SMOOTH)])
        now = stats.median(self.reward[max(start, end + 1 - SMOOTH) : end + 1])
        level = self.level[np.isfinite(self.level)]
        extent = float(np.ptp(level)) if len(level) else math.nan
        room = self.top - before if math.isfinite(self.top) else extent
        return bool(now - before > SURE * self._error and now - before >= share * room)

    @property
    def _error(self) -> float:
        """Standard error of a level."""
        known = self.reward[np.isfinite(self.reward)]
        return stats.noise(known) / math.sqrt(SMOOTH / 2) if len(known) > 1 else 0.0


def reached_top(stretch: Stretch) -> bool:
    """Whether the reward has got near its top in the second half of an episode."""
    return near_top(dataclasses.replace(stretch, sure=(stretch.sure + stretch.end) // 2))


def dead_parts(signal: Signal, earned: float) -> BoolArray:
    """Where a part of the reward that had been above `earned` before is exactly 0."""
    dead = np.zeros(len(signal), dtype=np.bool_)
    for name in signal.run.names("reward_component/"):
        values = signal.beside(name)
        dead |= (stats.rolling_max(values) > earned) & (values == 0)
    return dead


def _task(signal: Signal) -> FloatArray | None:
    """The part of the reward that pays for the task, by its name; the one logged most often."""
    parts = [signal.beside(name) for name in task_components(signal.run)]
    known = [part for part in parts if np.isfinite(part).any()]
    return max(known, key=lambda part: int(np.isfinite(part).sum()), default=None)


def _extreme(signal: Signal, metric: str, sign: int) -> float:
    values = signal.beside(metric)
    values = values[np.isfinite(values)]
    return float((sign * values).max()) * sign if len(values) else math.nan
