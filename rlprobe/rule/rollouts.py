"""Rollouts of recorded steps: which steps are read, and what belongs to a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlprobe.values import Rollout


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
