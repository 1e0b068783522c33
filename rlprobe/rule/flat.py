"""Flat groups: groups whose rewards are all equal, so that there is nothing to learn from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.rule.rollouts import groups, sampled_steps, unpicked
from rlprobe.rule.signals import Signal
from rlprobe.values import FloatArray, IntArray, Rollout, flat, rounding

MOST_ROWS = 8_192  # rows, or blocks of rows, that are judged
MOST_READ = 200  # recorded steps that are read, evenly spread
ENOUGH = 24  # groups of which a share is told

# Metrics of which the share of flat groups is known as such, not told from a spread or a mean.
TELL_GROUPS = frozenset(
    {
        "zero_variance_group_fraction",
        "group_all_fail_fraction",
        "filtered_group_fraction",
        "samples",
    }
)


def equal(spread: FloatArray | float, reward: FloatArray | float) -> FloatArray:
    """1 where a spread of rewards of this size is no more than rounding, else 0; NaN where unknown.

    What rounding leaves is said by `values.rounding`; a reward that is not known counts as 0.
    """
    limit = rounding(np.nan_to_num(reward))
    return np.where(np.isfinite(spread), spread <= limit, np.nan)


def flat_shares(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    """Whatever tells the share of flat groups, best first, with that share at its steps.

    What is logged of groups; recorded rollouts; the spread of the whole batch, and its extremes.
    What tells no share at any step is left out.
    """
    yield from _known(_of_groups(run))
    sampled = _sampled(run, MOST_READ)
    if sampled is not None:
        yield sampled[:2]
    yield from _known(_of_batch(run))


def _known(shares: Iterable[tuple[Signal, FloatArray]]) -> Iterator[tuple[Signal, FloatArray]]:
    for signal, share in shares:
        known = np.isfinite(share)
        if known.any():
            yield signal.where(known), share[known]


def _of_groups(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    """The logged share; groups that pass and fail; groups that are dropped; the spread inside."""
    if share := Signal.logged(run, "zero_variance_group_fraction"):
        yield share, _of_all(share)
    if failed := Signal.logged(run, "group_all_fail_fraction"):
        yield failed, failed.values + failed.beside("group_all_pass_fraction")
    if dropped := Signal.logged(run, "filtered_group_fraction"):
        yield dropped, dropped.values
    if spread := Signal.logged(run, "reward_group_std_mean"):
        yield spread, equal(spread.values, spread.beside("reward_mean"))


def _of_batch(run: RunContext) -> Iterator[tuple[Signal, FloatArray]]:
    """1 where all rewards of a step are equal. Where they are not, groups may be flat all the same:
    each has its own reward then.
    """
    if spread := Signal.logged(run, "reward_std"):
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

    What is logged of groups; recorded rollouts, of at most `read` steps; what is logged of the
    whole batch; a mean of exactly 0 of rewards that never are negative.
    """
    for signal, share in _known(_of_groups(run)):
        yield signal, share, signal.beside("reward_mean")
    sampled = _sampled(run, read)
    if sampled is not None:
        yield sampled
    for signal, share in _known(_of_batch(run)):
        yield signal, share, signal.beside("reward_mean")
    mean = Signal.logged(run, "reward_mean")
    if mean and not (mean.values < 0).any():  # then a mean of 0 is a batch of zeros
        yield mean, (mean.values == 0).astype(np.float64), mean.values


def told_of_few(signal: Signal) -> bool:
    """Whether rollouts were recorded of so few steps that the spread of the batch tells more."""
    batch = (Signal.logged(signal.run, name) for name in ("reward_std", "reward_max"))
    spread = next((logged for logged in batch if logged), None)
    return signal.metric == "samples" and spread is not None and len(spread) > 2 * len(signal)


def _sampled(run: RunContext, read: int) -> tuple[Signal, FloatArray, FloatArray] | None:
    """What recorded rollouts tell: the share of flat groups and the mean reward, where known."""
    steps = sampled_steps(run.sample_steps(), read)
    sampled = np.array([_of_rollouts(run.rollouts(step)) for step in steps]).reshape(-1, 3)
    known = sampled[:, 2] > 0
    if not known.any():
        return None
    share, earned, count = sampled[known].T
    share = _pooled(share, count)
    signal = Signal(run, "samples", np.array(steps, dtype=np.int64)[known], share)
    logged = run.series("reward_mean") is not None
    return signal, share, signal.beside("reward_mean") if logged else earned


def _pooled(share: FloatArray, count: FloatArray) -> FloatArray:
    """The share among the groups around each step: among few groups it is mostly chance."""
    width = math.ceil(ENOUGH / stats.median(count))
    if width <= 1:
        return share
    before, after = (width - 1) // 2, width // 2
    flat_groups = np.concatenate([[0.0], np.cumsum(share * count)])
    groups_until = np.concatenate([[0.0], np.cumsum(count)])
    row = np.arange(len(share))
    first, last = np.maximum(row - before, 0), np.minimum(row + after + 1, len(share))
    pooled: FloatArray = (flat_groups[last] - flat_groups[first]) / (
        groups_until[last] - groups_until[first]
    )
    return pooled


def _of_rollouts(rollouts: Sequence[Rollout]) -> tuple[float, float, float]:
    """Share of flat groups and mean reward of a step, and of how many groups; NaN for none."""
    rewards = [
        [item.reward or 0.0 for item in group] for group in groups(unpicked(rollouts)).values()
    ]
    equal_groups = [flat(group) for group in rewards if len(group) > 1]
    every = [reward for group in rewards for reward in group]
    return (
        float(np.mean(equal_groups)) if equal_groups else math.nan,
        float(np.mean(every)) if every else math.nan,
        len(equal_groups),
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
