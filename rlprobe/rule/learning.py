"""What the reward does meanwhile: whether it still grows, and whether it has reached its top."""

from __future__ import annotations

import math

import numpy as np

from rlprobe import stats
from rlprobe.rule.episodes import Stretch
from rlprobe.rule.rewards import task_components
from rlprobe.values import FloatArray

LOOK_BACK = 32  # rows before an episode's sure rows that the reward's growth is seen from
FEWEST = 8  # rewards that growth can be seen in
SURE = 3.0  # standard errors by which one half has to be above the other
WORTH = 0.03  # part of the reward by which it has to grow
TOP = 0.9  # part of the highest possible reward that is near it


def still_gains(stretch: Stretch, metric: str = "reward_mean") -> bool:
    """Whether the reward still grows while an episode lasts; False where nothing is known."""
    values = stretch.signal.beside(metric)[max(0, stretch.sure - LOOK_BACK) : stretch.end + 1]
    values = values[np.isfinite(values)]
    half = len(values) // 2
    if len(values) < FEWEST:
        return False
    error = stats.noise(values) * math.sqrt(math.pi / half)  # of a difference of two medians
    before, after = stats.median(values[:half]), stats.median(values[-half:])
    return after - before > max(SURE * error, WORTH * abs(before))


def near_top(stretch: Stretch) -> bool:
    """Whether the task's reward is near the highest that it can be while an episode lasts.

    Told by the share of groups in which all is right; by the part that pays for the task, if one is
    named so; by the highest reward of any rollout; or by a mean between 0.9 and 1. A reward that is
    merely the best of its run is not at its top.
    """
    run, core = stretch.signal.run, stretch.core
    all_right = _median(stretch, "group_all_pass_fraction", core)
    if all_right >= 0.5:
        return True
    named = task_components(run)
    if named:
        return any(_is_top(_median(stretch, name, core)) for name in named)
    reward = _median(stretch, "reward_mean", core)
    highest = run.series("reward_max")
    if highest is not None and np.isfinite(highest.values).any():
        top = float(np.nanmax(stats.finite(highest.values)))
        return top > 0 and reward >= TOP * top
    return _is_top(reward)


def _is_top(reward: float) -> bool:
    return TOP <= reward <= 1.0


def _median(stretch: Stretch, metric: str, rows: slice) -> float:
    values: FloatArray = stretch.signal.beside(metric)[rows]
    return stats.median(values)
