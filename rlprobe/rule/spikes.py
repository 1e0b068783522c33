"""Rows of a positive signal far above what is usual before them and after them, and what lasts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Judged, Stretch
from rlprobe.rule.signals import Past, Signal
from rlprobe.values import BoolArray, FloatArray, IntArray

_LEAST = 1e-30  # norms below it count as this, on the log scale
_NEXT = 6  # rows from the first of a level on, half of which are raised


@dataclass(frozen=True, slots=True)
class Spikes:
    """A signal's rows far above the usual.

    Attributes:
        past: the signal's past, on a log scale; the low part of the first rows, which have none.
        spiking: rows far above what is usual before them and after them.
        lasting: stretches of rows far above the past that are a level of their own.
    """

    signal: Signal
    past: Past
    spiking: BoolArray
    lasting: tuple[Stretch, ...]

    @classmethod
    def of(
        cls,
        signal: Signal,
        *,
        ratio: float,
        sigmas: float,
        least_std: float,
        opening: int,
        lasts: int,
    ) -> Spikes:
        """Rows that rise by `ratio` and by `sigmas` robust standard deviations of the logarithm.

        Args:
            signal: of values above 0.
            least_std: no standard deviation counts as smaller.
            opening: rows that are needed for a past; the level of the first is their low part.
                Rows that are raised from the very first on are a cold start.
            lasts: so many high rows are a level.
        """
        limit = math.log(ratio)
        past = _past(signal, limit, opening)
        spiking = past.above(sigmas=sigmas, at_least=limit, floor=least_std)
        raised = past.rise > limit / 2
        spiking[: _calm_from(raised)] = False
        if not spiking.any():
            return cls(signal, past, spiking, ())
        levels = (
            _without_lone_spikes(raised, stretch)
            for stretch in Judged(signal, raised).persistent(lasts)
        )
        lasting = tuple(s for s in levels if len(s) >= lasts and spiking[s.rows].any())
        after = _after(past.scaled, spiking, lasting)
        both = spiking & ~(past.scaled - after <= limit)
        return cls(signal, past, both, lasting)

    @property
    def rows(self) -> IntArray:
        """The spiking rows."""
        return np.flatnonzero(self.spiking)

    @property
    def high(self) -> BoolArray:
        """Rows that spike and rows of a lasting level."""
        rows = self.spiking.copy()
        for stretch in self.lasting:
            rows[stretch.rows] = True
        return rows

    def without(self, rows: BoolArray) -> Spikes:
        """The same but for these rows, and the levels that they touch."""
        lasting = tuple(stretch for stretch in self.lasting if not rows[stretch.rows].any())
        return dataclasses.replace(self, spiking=self.spiking & ~rows, lasting=lasting)

    def leading_to(self, step: int, *, reach: int, burst: int, least: int) -> IntArray:
        """The high rows that lead to a step: the last of them at most `reach` rows before it.

        Args:
            burst: rows between two spikes of a burst of at least `least`, and from it to the step.
        """
        at = int(np.searchsorted(self.signal.steps, step))
        rows = np.flatnonzero(self.high[:at])
        for gap, count in ((burst, least), (reach, 1)):
            breaks = np.flatnonzero(np.diff(rows) > gap + 1)
            led = rows[breaks[-1] + 1 :] if len(breaks) else rows
            if len(led) >= count and at - led[-1] <= gap + 1:
                return led
        return rows[:0]


def _without_lone_spikes(raised: BoolArray, level: Stretch) -> Stretch:
    """The level from the row on from which most rows are raised: a spike before is none of it."""
    rows = raised[level.rows]
    total = np.concatenate(([0], np.cumsum(rows)))
    most = 2 * (total[_NEXT:] - total[:-_NEXT]) >= _NEXT
    held = np.flatnonzero(most & rows[: len(most)])
    start = level.start + (int(held[0]) if len(held) else 0)
    return dataclasses.replace(level, start=start, sure=max(start, level.sure))


def _calm_from(raised: BoolArray) -> int:
    """The first row after a cold start; 0 if neither of the first two rows is raised."""
    if not raised[:2].any():
        return 0
    calm = 1 + np.flatnonzero(~(raised[1:-1] | raised[2:]))
    return int(calm[0]) if len(calm) else len(raised)


def period(steps: IntArray, slack: float) -> int:
    """The distance that most of these steps keep from one to the next; 0 if they keep none.

    Args:
        slack: by how much a distance may miss it.
    """
    apart = np.diff(steps)
    usual = int(stats.median(apart)) if len(apart) > 1 else 0
    return usual if usual and (np.abs(apart - usual) <= slack).mean() >= 0.8 else 0


def _past(signal: Signal, limit: float, opening: int) -> Past:
    first = stats.logs(signal.values[:opening], _LEAST)
    low = stats.quantile(first, 0.25)
    high = np.zeros(len(signal), dtype=np.bool_)
    high[:opening] = first > low + limit
    past = signal.past(log=_LEAST, above=limit, warmup=opening, without=high)
    center = np.where(np.isnan(past.center), low, past.center)
    return dataclasses.replace(past, center=center, robust_std=np.nan_to_num(past.robust_std))


def _after(scaled: FloatArray, spiking: BoolArray, lasting: Sequence[Stretch]) -> FloatArray:
    """What is usual after each row; NaN near the end. Spikes do not count, a lasting level does."""
    counted = ~spiking
    for stretch in lasting:
        counted[stretch.rows] = True
    usual = np.where(counted, scaled, np.nan)
    after: FloatArray = stats.past_baseline(usual[::-1]).center[::-1].copy()
    for stretch in lasting:
        after[stretch.rows] = np.fmax(after[stretch.rows], stats.median(scaled[stretch.rows]))
    return after
