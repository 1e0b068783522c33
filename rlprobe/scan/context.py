"""The run as detectors see it: its lineage through the attempts, one series at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlprobe._lazy import cached_property
from rlprobe.store.frame import takeovers
from rlprobe.store.run import Run
from rlprobe.values import Attempt, BoolArray, Event, Rollout, Series

BAD_ENDS = frozenset({"crashed", "killed", "vanished"})


class Context:
    """Implements `rlprobe.detector.RunContext` over any `Run`.

    Series that several detectors ask for are kept; with very long runs only the last few are, so
    that memory stays bounded.
    """

    _KEPT_VALUES = 24_000_000  # about 400 MB of steps and values

    def __init__(self, run: Run) -> None:
        self.run = run
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

    @cached_property
    def _ends(self) -> dict[int, int]:
        frame = self.run.steps if len(self.run.steps) else self.run.ranks
        return takeovers(frame.step, frame.attempt) if len(frame) else {}

    @cached_property
    def _rows(self) -> BoolArray | None:
        return self.run.steps.in_lineage(self._ends)

    @cached_property
    def steps(self) -> Any:
        """Distinct logged steps of the run's lineage, ascending."""
        frame = self.run.steps if len(self.run.steps) else self.run.ranks
        rows = frame.in_lineage(self._ends)
        steps = frame.step if rows is None else frame.step[rows]
        if bool((steps[1:] > steps[:-1]).all()):
            return steps
        return np.unique(steps)

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
        return max(1, int(np.median(np.diff(self.steps))))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Launches, oldest first."""
        return self.run.info.attempts

    @cached_property
    def ended(self) -> bool:
        """Whether the run is known to have ended badly."""
        if self.attempts and self.attempts[-1].ended in BAD_ENDS:
            return True
        latest = max((event.attempt for event in self.run.events), default=1)
        return any(event.attempt == latest for event in self.events("crash"))

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Metrics logged at least once, by canonical name."""
        return tuple(name for name in self.run.steps.names if name.startswith(prefix))

    def series(self, metric: str) -> Series | None:
        """One metric of the run's lineage, or None if it was never logged."""
        if metric in self._kept:
            return self._kept[metric]
        series = self.run.steps.series(metric, self._rows)
        size = 0 if series is None else len(series)
        if self._kept_values + size > self._KEPT_VALUES:
            self._kept.clear()
            self._kept_values = 0
        self._kept[metric] = series
        self._kept_values += size
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
        end = self._ends.get(event.attempt)
        return end is None or (event.step is not None and event.step < end)

    def setting(self, name: str) -> Any:
        """A setting of the run, or None."""
        return self.run.info.settings.get(name)

    def sample_steps(self) -> tuple[int, ...]:
        """Steps with recorded rollouts."""
        return self.run.sample_steps()

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of the latest attempt that recorded this step."""
        found = self.run.rollouts(step)
        latest = max((rollout.attempt for rollout in found), default=0)
        return tuple(rollout for rollout in found if rollout.attempt == latest)
