"""Rollouts of recorded steps: which steps are read, and what belongs to a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlprobe.values import Rollout

# Reasons to record a group; the last two are those of rlprobe 0.1.0, which picked single rollouts.
PICKED = frozenset({"widest advantages", "equal rewards", "top_k", "bottom_k"})


def groups(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """Rollouts that have a reward, by group, in the order in which they were recorded."""
    by_id: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            by_id.setdefault(rollout.group_id, []).append(rollout)
    return by_id


def unpicked(rollouts: Sequence[Rollout]) -> Sequence[Rollout]:
    """Those that tell what share of all groups is so: without groups recorded for what they show.

    Where the ring was written out, and where nothing else is left, all of them.
    """
    reasons = {rollout.capture_reason for rollout in rollouts}
    if not reasons & PICKED or any(reason.startswith("ring:") for reason in reasons):
        return rollouts
    return [rollout for rollout in rollouts if rollout.capture_reason not in PICKED] or rollouts


def sampled_steps(steps: Sequence[int], most: int, last: int = 0) -> list[int]:
    """About `most` steps, evenly spread, and the `last` ones: there a dying run is read closely."""
    stride = max(1, len(steps) // most)
    return sorted({*steps[::stride], *steps[len(steps) - min(last, len(steps)) :]})
