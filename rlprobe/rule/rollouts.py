"""Rollouts of recorded steps: which steps are read, and what belongs to a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rlprobe.detector import RunContext
from rlprobe.values import Rollout

T = TypeVar("T")


def groups(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """Rollouts that have a reward, by group, in the order in which they were recorded."""
    by_id: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            by_id.setdefault(rollout.group_id, []).append(rollout)
    return by_id


def sampled_steps(steps: Sequence[int], most: int, last: int = 0) -> list[int]:
    """About `most` steps, evenly spread, and the `last` ones: there a dying run is read closely."""
    stride = max(1, len(steps) // most)
    return sorted({*steps[::stride], *steps[len(steps) - min(last, len(steps)) :]})


def first_bad_sampled(
    run: RunContext,
    good: int | None,
    bad: T,
    step_of: Callable[[T], int],
    look: Callable[[int], T | None],
) -> T:
    """The first bad step with rollouts, by halving the steps between a good and a bad one.

    Args:
        good: a step that was read and is good; None if none was.
        bad: what was seen at a bad one.
        look: what is seen at a step, or None if it is not bad.
    """
    if good is None:
        return bad
    between = [step for step in run.sample_steps() if good < step < step_of(bad)]
    while between:
        middle = len(between) // 2
        seen = look(between[middle])
        if seen is not None:
            bad, between = seen, between[:middle]
        else:
            between = between[middle + 1 :]
    return bad
