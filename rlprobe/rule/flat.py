"""Flat groups: groups whose rewards are all equal, so that there is nothing to learn from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.rule.rollouts import groups, sampled_steps, unpicked
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray, IntArray, Rollout, flat, rounding

MOST_ROWS = 8_192  # rows, or blocks of rows, that are judged


def equal(spread: FloatArray | float, reward: FloatArray | float) -> FloatArray:
    """1 where a spread of rewards of this size is no more than rounding, else 0; NaN where unknown.

    What rounding leaves is said by `values.rounding`; a reward that is not known counts as 0.
    """
    limit = rounding(np.nan_to_num(reward))
    return np.where(np.isfinite(spread), spread <= limit, np.nan)


def flat_shares(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    """The metrics that tell the share of flat groups, best first, with that share at their steps.

    The logged share; groups that pass and that fail; groups that are dropped before the update; the
    spread of the rewards; their extremes. Metrics that tell no share at any step are left out.
    """
    for signal, share in _told(run):
        known = np.isfinite(share)
        if known.any():
            yield signal.where(known), share[known]


def _told(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    if share := Signal.logged(run, "zero_variance_group_fraction"):
        yield share, _of_all(share)
    if failed := Signal.logged(run, "group_all_fail_fraction"):
        yield failed, failed.values + failed.beside("group_all_pass_fraction")
    if dropped := Signal.logged(run, "filtered_group_fraction"):
        yield dropped, dropped.values
    for name in ("reward_group_std_mean", "reward_std"):
        if spread := Signal.logged(run, name):
            yield spread, equal(spread.values, spread.beside("reward_mean"))
    if highest := Signal.logged(run, "reward_max"):
        lowest = highest.beside("reward_min")
        yield highest, equal(highest.values - lowest, lowest)


def _of_all(share: Signal) -> FloatArray:
    """The share among all groups, where flat ones are dropped and only the kept ones are counted.

    Of all groups, no fewer can be flat than are dropped for being flat.
    """
    if share.run.series("filtered_group_fraction") is None:
        return share.values
    dropped = np.nan_to_num(share.beside("filtered_group_fraction"))
    if stats.median(share.values) >= stats.median(dropped):
        return share.values
    result: FloatArray = dropped + (1 - dropped) * share.values
    return result


def flat_and_reward(run: RunContext, read: int) -> Iterator[tuple[Signal, FloatArray, FloatArray]]:
    """Whatever tells the share of flat groups, best first, with that share and the mean reward.

    What is logged; recorded rollouts, of at most `read` steps; a mean of exactly 0 of rewards that
    never are negative.
    """
    for signal, share in flat_shares(run):
        yield signal, share, signal.beside("reward_mean")
    steps = sampled_steps(run.sample_steps(), read)
    sampled = np.array([_of_rollouts(run.rollouts(step)) for step in steps]).reshape(-1, 2)
    known = np.isfinite(sampled[:, 0])
    if known.any():
        share, earned = sampled[known].T
        signal = Signal(run, "samples", np.array(steps, dtype=np.int64)[known], share)
        logged = run.series("reward_mean") is not None
        yield signal, share, signal.beside("reward_mean") if logged else earned
    mean = Signal.logged(run, "reward_mean")
    if mean and not (mean.values < 0).any():  # then a mean of 0 is a batch of zeros
        yield mean, (mean.values == 0).astype(np.float64), mean.values


def _of_rollouts(rollouts: Sequence[Rollout]) -> tuple[float, float]:
    """Share of flat groups and mean reward of a step; NaN where there are none."""
    rewards = [
        [item.reward or 0.0 for item in group] for group in groups(unpicked(rollouts)).values()
    ]
    equal_groups = [flat(group) for group in rewards if len(group) > 1]
    every = [reward for group in rewards for reward in group]
    return (
        float(np.mean(equal_groups)) if equal_groups else math.nan,
        float(np.mean(every)) if every else math.nan,
    )


def in_blocks(
    signal: Signal, share: FloatArray, reward: FloatArray
) -> tuple[Signal, FloatArray, FloatArray]:
    """The same with the means of blocks of rows, where there are more than `MOST_ROWS`.

    The signal keeps the first row of each block as it was logged.
    """
    size = math.ceil(len(share) / MOST_ROWS)
    if size <= 1:
        return signal, share, reward
    starts = np.arange(0, len(share), size)
    first = dataclasses.replace(signal, steps=signal.steps[starts], values=signal.values[starts])
    return first, _means(share, starts), _means(reward, starts)


def _means(values: FloatArray, starts: IntArray) -> FloatArray:
    known = np.isfinite(values)
    total = np.add.reduceat(np.where(known, values, 0.0), starts)
    count = np.add.reduceat(known.astype(np.float64), starts)
    means = np.full(len(starts), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means
