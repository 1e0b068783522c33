"""A run whose columns are already in memory: what importers hand over."""

from __future__ import annotations

from collections.abc import Sequence

from rlprobe._lazy import cached_property
from rlprobe.store.frame import Frame, empty_frame
from rlprobe.store.run import RunInfo
from rlprobe.values import Event, Problem, Rollout


class TableRun:
    """One run in memory, behind the `Run` interface."""

    def __init__(
        self,
        info: RunInfo,
        steps: Frame,
        *,
        ranks: Frame | None = None,
        events: Sequence[Event] = (),
        rollouts: Sequence[Rollout] = (),
        problems: Sequence[Problem] = (),
    ) -> None:
        self.info = info
        self.steps = steps
        self.ranks = empty_frame() if ranks is None else ranks
        self.events = tuple(events)
        self.problems = tuple(problems)
        self._rollouts = tuple(rollouts)

    @cached_property
    def _by_step(self) -> dict[int, list[Rollout]]:
        by_step: dict[int, list[Rollout]] = {}
        for rollout in self._rollouts:
            by_step.setdefault(rollout.step, []).append(rollout)
        return by_step

    def sample_steps(self) -> tuple[int, ...]:
        """Steps with recorded rollouts, ascending."""
        return tuple(sorted(self._by_step))

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        """Rollouts of one step, group by group."""
        return tuple(sorted(self._by_step.get(step, ()), key=lambda rollout: rollout.group_id))
