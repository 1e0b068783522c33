"""Flat groups: groups whose rewards are all equal, so that there is nothing to learn from them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe.detector import RunContext
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray, rounding


def equal(spread: FloatArray | float, reward: FloatArray | float) -> FloatArray:
    """1 where a spread of rewards of this size is no more than rounding, else 0; NaN where unknown.

    What rounding leaves is said by `values.rounding`; a reward that is not known counts as 0.
    """
    limit = rounding(np.nan_to_num(reward))
    return np.where(np.isfinite(spread), spread <= limit, np.nan)


def flat_shares(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    """The metrics that tell the share of flat groups, best first, with that share at their steps.

    The logged share; groups that pass and that fail; the spread of the rewards; their extremes.
    Metrics that tell no share at any step are left out.
    """
    for signal, share in _told(run):
        known = np.isfinite(share)
        if known.any():
            yield signal.where(known), share[known]


def _told(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    if share := Signal.logged(run, "zero_variance_group_fraction"):
        yield share, share.values
    if failed := Signal.logged(run, "group_all_fail_fraction"):
        yield failed, failed.values + failed.beside("group_all_pass_fraction")
    for name in ("reward_group_std_mean", "reward_std"):
        if spread := Signal.logged(run, name):
            yield spread, equal(spread.values, spread.beside("reward_mean"))
    if highest := Signal.logged(run, "reward_max"):
        lowest = highest.beside("reward_min")
        yield highest, equal(highest.values - lowest, lowest)
