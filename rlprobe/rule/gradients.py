"""Where gradients are not finite, and whether the recording shows that the update was skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Event, Evidence, RunContext
from rlprobe.rule.events import concerns_gradients, source_of
from rlprobe.rule.wording import listed
from rlprobe.values import BoolArray, IntArray, Series

COUNTS = ("nan_count", "inf_count")
WATCHED = ("grad_norm", "grad_norm_critic", *COUNTS)
SKIPPING = {"verl": "verl", "slime": "slime", "areal": "AReaL"}  # they skip a non-finite update
_AROUND = 8  # rows on either side that tell whether the learning rate moves on every row
_MOVES = 0.8  # share of them on which it does
_SAME = 1e-6  # part of a learning rate by which it may differ from itself


@dataclass(frozen=True, slots=True)
class Watched:
    """A metric of the gradient, of the run or of one rank, and the steps at which it is bad."""

    series: Series
    rank: int | None
    bad: IntArray


@dataclass(frozen=True, slots=True)
class BadGradients:
    """All that a run logged of gradients that are not finite.

    Attributes:
        steps: where they are, ascending, without those that a loss scaler caught.
        events: `nan_detected` events about gradients or weights.
        updates_skipped: at which of the steps no update was made, as far as is known.
    """

    run: RunContext
    watched: tuple[Watched, ...]
    events: tuple[Event, ...]
    steps: IntArray
    updates_skipped: BoolArray

    @classmethod
    def of(cls, run: RunContext) -> BadGradients:
        """What a run logged: norms, counts, events."""
        watched = tuple(_watched(run))
        told = (event for event in run.events("nan_detected") if concerns_gradients(event))
        steps = np.concatenate([item.bad for item in watched] + [np.empty(0, dtype=np.int64)])
        steps = steps[~_scaler_backed_off(run, steps)]
        events = tuple(told)
        at = np.array([step_of(run, event) for event in events], dtype=np.int64)
        steps = stats.distinct(np.concatenate([steps, at]))
        return cls(run, watched, events, steps, skipped_updates(run, steps))

    def skipped(self, first: int, last: int) -> bool:
        """Whether none of the bad steps from `first` to `last` made an update."""
        rows = (self.steps >= first) & (self.steps <= last)
        return bool(self.updates_skipped[rows].all())

    def during(self, first: int, last: int) -> tuple[Event, ...]:
        """The events of these steps."""
        return tuple(e for e in self.events if first <= step_of(self.run, e) <= last)

    def finite_after(self, step: int) -> bool:
        """Whether a good value was logged after this step."""
        for item in self.watched:
            later = item.series.values[item.series.steps > step]
            if len(later):
                return bool(np.isfinite(later).any())
        return False

    def ranks(self, first: int, last: int) -> tuple[int, ...]:
        """Ranks that are hit; none if it is all of them."""
        every = {item.rank for item in self.watched if item.rank is not None}
        hit = {event.rank for event in self.during(first, last) if event.rank > 0}
        hit |= {
            item.rank
            for item in self.watched
            if item.rank is not None and ((item.bad >= first) & (item.bad <= last)).any()
        }
        return tuple(sorted(hit)) if hit != every else ()

    def proof(self, first: int, last: int) -> Iterator[Evidence]:
        """The values of the first bad step, and what events say."""
        for series, rank, bad in ((w.series, w.rank, w.bad) for w in self.watched):
            if first in bad:
                value = float(series.values[np.searchsorted(series.steps, first)])
                note = "first bad value" if rank is None else "first bad value of the rank"
                yield Evidence(series.name, first, value, rank=rank, note=note)
        for event in self.during(first, last)[:5]:
            count = sum(float(event.data.get(name) or 0) for name in COUNTS)
            names = f" of {names_in(event)}" if names_in(event) else ""
            note = f"non-finite elements, {source_of(event) or 'gradient'}{names}"
            yield Evidence("event:nan_detected", event.step, count, rank=event.rank, note=note)


def names_in(event: Event) -> str:
    """The first few parameters that an event names."""
    return listed(event.data.get("names") or (), 3)


def step_of(run: RunContext, event: Event) -> int:
    """The step of an event; the last of the run for one without."""
    return run.last_step if event.step is None else event.step


def skipped_updates(run: RunContext, steps: IntArray) -> BoolArray:
    """At which of these steps the recording shows that no update was made.

    The step says so itself; a guard said so; the loss scale fell there or at the next row; or the
    learning rate, which moves on the rows around it, stood still (accelerate leaves the scheduler
    where it is when the scaler skips a step); or the framework skips each non-finite update.
    """
    if run.framework in SKIPPING:
        return np.ones(len(steps), dtype=np.bool_)
    told = [event.step for event in run.events("update_skipped") if event.step is not None]
    result: BoolArray = (
        (stats.at_steps(run.series("update_skipped"), steps) > 0)
        | np.isin(steps, np.array(told, dtype=np.int64))
        | _scale_fell(run, steps)
        | _schedule_stood_still(run, steps)
    )
    return result


def _watched(run: RunContext) -> Iterator[Watched]:
    """Each metric of the run, then of its ranks."""
    for name in WATCHED:
        series = run.series(name)
        if series is not None:
            yield Watched(series, None, _bad_rows(series))
        for rank, own in run.rank_series(name).items():
            yield Watched(own, rank, _bad_rows(own))


def _bad_rows(series: Series) -> IntArray:
    counts = series.name in COUNTS
    return series.steps[~(series.values <= 0) if counts else ~np.isfinite(series.values)]


def _scale_fell(run: RunContext, steps: IntArray) -> BoolArray:
    """Where the loss scale is lower than at the row before, or falls at the next."""
    scale = run.series("loss_scale")
    if scale is None or not len(steps):
        return np.zeros(len(steps), dtype=np.bool_)
    place = np.searchsorted(scale.steps, steps)
    last = len(scale) - 1
    before, here, after = (scale.values[np.clip(place + offset, 0, last)] for offset in (-1, 0, 1))
    return (here < before) | (after < here)


def _scaler_backed_off(run: RunContext, steps: IntArray) -> BoolArray:
    """Where a dynamic loss scaler caught the overflow: it skipped the update and backed off."""
    above_floor = stats.at_steps(run.series("loss_scale"), steps) > 1
    skipped = stats.at_steps(run.series("update_skipped"), steps) > 0
    return _scale_fell(run, steps) | (skipped & above_floor)


def _schedule_stood_still(run: RunContext, steps: IntArray) -> BoolArray:
    """Where the learning rate is that of the row before or after, though it moves around there."""
    lr = run.series("lr")
    still = np.zeros(len(steps), dtype=np.bool_)
    if lr is None or run.interval != 1 or len(lr) < _AROUND:
        return still
    moved = np.abs(np.diff(lr.values)) > _SAME * np.abs(lr.values[1:])  # row i to row i + 1
    total = np.concatenate(([0], np.cumsum(moved)))
    place = np.searchsorted(lr.steps, steps)
    low, high = np.clip(place - _AROUND, 0, len(moved)), np.clip(place + _AROUND, 0, len(moved))
    share = (total[high] - total[low] + 1) / np.maximum(1, high - low)  # but for the row itself
    for offset in (-1, 0):
        known = (place + offset >= 0) & (place + offset < len(moved))
        still |= known & ~moved[np.clip(place + offset, 0, len(moved) - 1)]
    result: BoolArray = still & (share >= _MOVES) & (high - low >= _AROUND // 2)
    return result
