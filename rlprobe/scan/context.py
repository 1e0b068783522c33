"""The run as detectors see it: its lineage through the attempts, one series at a time.

The lineage is that of the latest attempt, or of an earlier one as it was when that one ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlprobe import order_statistics
from rlprobe._lazy import cached_property
from rlprobe.store.frame import Frame, takeovers
from rlprobe.store.run import Run
from rlprobe.values import Attempt, BoolArray, Event, IntArray, Rollout, Series

BAD_ENDS = frozenset({"crashed", "killed", "vanished"})
_ENDS = frozenset({"crash", "halted", "run_ended"})  # may name a step that was not logged
_NOWHERE = int(np.iinfo(np.int64).min)  # before every step


class Context:
    """Implements `rlprobe.detector.RunContext` over any `Run`.

    Series that several detectors ask for are kept; with very long runs only the last few are, so
    that memory stays bounded.

    Args:
        upto: the attempt at whose end the run is looked at, as if no later one had been; None: as
            it is now.
    """

    _KEPT_VALUES = 30_000_000  # about 240 MB of values

    def __init__(self, run: Run, upto: int | None = None) -> None:
        self.run = run
        self.upto = upto
        self._kept: dict[str, Series | None] = {}
        self._kept_values = 0

    @property
    def framework(self) -> str | None:
        """The framework that wrote the metrics, if known."""
        return self.run.info.framework

    @property
    def algorithm(self) -> str | None:
        """The algorithm, if known."""
        return self.run.info.algorithm

    @property
    def _frame(self) -> Frame:
        """The table that tells which steps each attempt logged."""
        return self.run.steps if len(self.run.steps) else self.run.ranks

    @cached_property
    def _ends(self) -> dict[int, int]:
        """For each attempt that is not the last, the step at which it was overtaken."""
        frame = self._frame
        if not len(frame):
            return {}
        if self.upto is None:
            return takeovers(frame.step, frame.attempt)
        past = frame.attempt <= self.upto
        later = dict.fromkeys(order_statistics.distinct(frame.attempt[~past]).tolist(), _NOWHERE)
        return takeovers(frame.step[past], frame.attempt[past]) | later

    @cached_property
    def _rows(self) -> BoolArray | None:
        return self.run.steps.in_lineage(self._ends)

    @cached_property
    def _begins(self) -> tuple[IntArray, IntArray]:
        """Where the rows of each attempt begin in the lineage, and which attempt that is."""
        frame = self._frame
        if not self._ends:
            return frame.step[:1], frame.attempt[:1]
        rows = frame.in_lineage(self._ends)
        step, attempt = (frame.step, frame.attempt) if rows is None else _of(frame, rows)
        numbers = order_statistics.distinct(attempt)
        begins = np.array([step[attempt == number].min() for number in numbers], dtype=np.int64)
        return begins, numbers

    def attempt_at(self, step: int) -> int:
        """The attempt that the lineage follows at a step."""
        begins, numbers = self._begins
        if not len(numbers):
            return 1
        return int(numbers[max(0, int(np.searchsorted(begins, step, side="right")) - 1)])

    def in_lineage(self, frame: Frame) -> BoolArray | None:
        """Which rows of one of the run's tables count; None when all do."""
        return frame.in_lineage(self._ends)

    @cached_property
    def steps(self) -> Any:
        """Distinct logged steps of the run's lineage, ascending."""
        frame = self._frame
        rows = frame.in_lineage(self._ends)
        steps = frame.step if rows is None else frame.step[rows]
        if bool((steps[1:] > steps[:-1]).all()):
            return steps
        return order_statistics.distinct(steps)

    @property
    def first_step(self) -> int:
        """First logged step; 0 for a run without rows."""
        return int(self.steps[0]) if len(self.steps) else 0

    @cached_property
    def last_step(self) -> int:
        """Last logged step; for a run without rows, the last step of any event."""
        if len(self.steps):
            return int(self.steps[-1])
        return max((event.step for event in self.events() if event.step is not None), default=0)

    @cached_property
    def interval(self) -> int:
        """Usual distance between logged steps, at least 1."""
        if len(self.steps) < 2:
            return 1
        return max(1, int(order_statistics.median(np.diff(self.steps))))

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Launches, oldest first."""
        known = self.run.info.attempts
        return known if self.upto is None else tuple(x for x in known if x.number <= self.upto)

    @property
    def overtaken(self) -> bool:
        """Whether this is the run as it was before a later attempt took over."""
        return self.upto is not None

    @cached_property
    def ended(self) -> bool:
        """Whether the run is known to have ended badly."""
        if self.attempts and self.attempts[-1].ended in BAD_ENDS:
            return True
        latest = max((event.attempt for event in self.run.events), default=1)
        latest = latest if self.upto is None else min(latest, self.upto)
        return any(event.attempt == latest for event in self.events("crash"))

    def incomplete(self, table: str) -> bool:
        """Whether part of a table could not be read."""
        # What is wrong with a table is known once it is read.
        _ = self.run.sample_steps() if table == "samples" else getattr(self.run, table)
        return any(problem.table == table for problem in self.run.problems)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Metrics logged at least once, by canonical name."""
        return tuple(name for name in self.run.steps.names if name.startswith(prefix))

    def series(self, metric: str) -> Series | None:
        """One metric of the run's lineage, or None if it was never logged."""
        if metric in self._kept:
            self._kept[metric] = self._kept.pop(metric)  # the last to go
            return self._kept[metric]
        series = self.run.steps.series(metric, self._rows)
        self._kept[metric] = series
        self._kept_values += 0 if series is None else len(series)
        while self._kept_values > self._KEPT_VALUES and len(self._kept) > 1:
            longest_unused = self._kept.pop(next(iter(self._kept)))
            self._kept_values -= 0 if longest_unused is None else len(longest_unused)
        return series

    def rank_series(self, metric: str) -> Mapping[int, Series]:
        """One metric of each rank that reported it."""
        ranks = self.run.ranks
        return ranks.series_by_rank(metric, ranks.in_lineage(self._ends))

    @cached_property
    def has_ranks(self) -> bool:
        """Whether two ranks or more reported values of their own."""
        rank = self.run.ranks.rank
        return len(rank) > 0 and bool((rank != rank[0]).any())

    def events(self, *kinds: str) -> tuple[Event, ...]:
        """Events in the run's lineage, in order of time; all kinds if none is given."""
        return tuple(
            event
            for event in self.run.events
            if (not kinds or event.kind in kinds) and self._in_lineage(event)
        )

    def _in_lineage(self, event: Event) -> bool:
        if self.upto is not None and event.attempt > self.upto:
            return False
        end = self._ends.get(event.attempt)
        if end is None or (event.step is not None and event.step < end):
            return True
        return event.kind in _ENDS and self.ended_in_lineage(event.attempt)

    def ended_in_lineage(self, attempt: int) -> bool:
        """Whether no later launch overtook anything that this one logged."""
        end = self._ends.get(attempt)
        return end is None or bool((self._frame.step[self._frame.attempt == attempt] < end).all())

    def setting(self, name: str) -> Any:
        """A setting of the run, or None."""
        return self.run.info.settings.get(name)

    @cached_property
    def _sample_steps(self) -> tuple[int, ...]:
        steps = self.run.sample_steps()
        if not self._ends:
            return steps
        last = self.last_step  # what was recorded after it may be what a launch left behind
        return tuple(step for step in steps if step <= last or self.rollouts(step))

    def sample_steps(self) -> tuple[int, ...]:
        """Steps of the lineage with recorded rollouts."""
        return self._sample_steps

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of a step, of the attempt that the lineage follows there."""
        found = [item for item in self.run.rollouts(step) if self._goes_on(item)]
        return _of_latest(found)

    def abandoned_steps(self) -> tuple[int, ...]:
        """Steps from the first one on at which a launch was overtaken, with recorded rollouts."""
        first = min((end for end in self._ends.values() if end > _NOWHERE), default=None)
        return () if first is None else tuple(x for x in self.run.sample_steps() if x >= first)

    def abandoned(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts that the latest of the launches recorded that were overtaken by that step."""
        found = [item for item in self.run.rollouts(step) if not self._goes_on(item)]
        found = [item for item in found if self.upto is None or item.attempt <= self.upto]
        return _of_latest(found)

    def _goes_on(self, rollout: Rollout) -> bool:
        """Whether the launch had not been overtaken when it recorded this."""
        if self.upto is not None and rollout.attempt > self.upto:
            return False
        end = self._ends.get(rollout.attempt)
        return end is None or rollout.step < end

    def forget(self) -> None:
        """Let go of the series that are kept."""
        self._kept.clear()
        self._kept_values = 0


def _of_latest(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """Those of the latest attempt among them."""
    latest = max((rollout.attempt for rollout in rollouts), default=0)
    return tuple(rollout for rollout in rollouts if rollout.attempt == latest)


def _of(frame: Frame, rows: BoolArray) -> tuple[IntArray, IntArray]:
    return frame.step[rows], frame.attempt[rows]
