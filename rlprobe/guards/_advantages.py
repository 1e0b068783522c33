"""Group advantages that are exactly 0 where the rewards of a group do not differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rlprobe.errors import UsageError
from rlprobe.guards._arrays import floats
from rlprobe.values import BoolArray, FloatArray, IntArray, rounding

Scale = Literal["group", "batch", "none"]
OnNaN = Literal["exclude", "refuse"]

_UNITS = 2.0  # in the last place of a 16-bit type: more would swallow real differences
_COARSE = 1e-4  # machine epsilon above which a type counts as 16-bit


class Advantages(NamedTuple):
    """Advantages, and which rollouts were set to 0 because their group has no spread.

    Attributes:
        values: shape and type of the rewards.
        clamped: bool, shape of the rewards; rollouts with a NaN reward are among them.
    """

    values: Any
    clamped: Any


class Moments(NamedTuple):
    """What a rank contributes to the spread of the whole batch.

    Attributes:
        number: finite rewards.
        mean: their mean.
        deviation: sum of their squared deviations from it.
    """

    number: int
    mean: float
    deviation: float


def group_advantages(
    rewards: Any,
    groups: Any = None,
    *,
    group_size: int | None = None,
    scale: Scale = "group",
    min_std: float = 1e-8,
    eps: float = 1e-8,
    nan: OnNaN = "exclude",
    batch_std: float | None = None,
) -> Advantages:
    """(r - mean of the group) / (spread + eps), and exactly 0 for a group without spread.

    Without spread is a group whose standard deviation is below `min_std`, or whose rewards differ
    by no more than rounding: a millionth of their magnitude, and of 1 where that is larger; of
    16-bit types, two units in the last place. That is what a plain division turns into advantages
    of ordinary size, and what the recorder, `rlprobe show` and ZERO_VARIANCE call equal rewards.

    Formula: Shao et al., "DeepSeekMath" (2024), equation 21; `scale="none"` as in Liu et al.,
    "Understanding R1-Zero-like training" (2025), `scale="batch"` as in TRL's `scale_rewards`.

    A group of one, and a group with one finite reward, has no spread either. Statistics are in
    two passes (mean, then deviations from it), so the variance is never negative.

    When not to use it: setting uninformative groups to 0 (or dropping them) shifts the effective
    batch towards prompts of middle difficulty; dividing by the spread gives easy and hard prompts
    (small spread) more weight than others, which `scale="none"` avoids. Rewards that differ by
    less than a millionth on purpose must be scaled up first.

    Args:
        rewards: shape (B,), or (groups, group size) if neither `groups` nor `group_size` is given.
        groups: group of each rollout, shape (B,), any hashable values; groups may be ragged.
        group_size: neighbours that form a group; B must be a multiple.
        scale: divide by the group's spread, by the batch's, or not at all.
        min_std: a spread below counts as none.
        eps: added to the spread before dividing.
        nan: a NaN or infinite reward is left out of its group and gets advantage 0, or is refused.
        batch_std: for `scale="batch"`, the spread over all ranks (see `pooled_std`).

    Raises:
        UsageError: shapes that do not match, an empty batch, no finite reward, or a NaN that is
            refused.
    """
    _check(groups, group_size, nan, min_std=min_std, eps=eps)
    values, precision, back = floats(rewards, "rewards")
    flat, index, count = _grouped(values, groups, group_size)
    known = _known(flat, nan)
    mean, std, reach, magnitude = _statistics(flat, index, count, known)
    centred = np.where(known, flat - mean[index], 0.0)
    flat_groups = (std < min_std) | (reach <= _noise(magnitude, precision))
    clamped = flat_groups[index] | ~known
    if scale == "group":
        centred = centred / (std[index] + eps)
    elif scale == "batch":
        centred = centred / (_batch_spread(flat[known], batch_std) + eps)
    elif scale != "none":
        raise UsageError(f"Couldn't scale by '{scale}': not one of group, batch, none")
    result = np.where(clamped, 0.0, centred)
    return Advantages(back(result.reshape(values.shape)), back(clamped.reshape(values.shape)))


def _check(groups: Any, group_size: int | None, nan: str, **numbers: float) -> None:
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"Couldn't use '{name}' {value}: not a finite number from 0")
    if nan not in {"exclude", "refuse"}:
        raise UsageError(f"Couldn't treat 'nan' as '{nan}': not one of exclude, refuse")
    if groups is not None and group_size is not None:
        raise UsageError(
            f"Couldn't use 'group_size' {group_size} beside 'groups': give one of them"
        )


def _grouped(
    values: FloatArray, groups: Any, group_size: int | None
) -> tuple[FloatArray, IntArray, int]:
    """Flat rewards, the group number of each, and the number of groups."""
    if values.size == 0:
        raise UsageError("Couldn't use 'rewards': it is empty")
    if groups is not None:
        return _named_groups(values, groups)
    size = group_size
    if size is None:
        if values.ndim != 2:
            raise UsageError(
                f"Couldn't tell the groups of 'rewards' of shape {values.shape}",
                hint="Give groups=, group_size=, or a matrix (groups, group size).",
            )
        size = int(values.shape[1])
    if size < 1 or values.size % size:
        raise UsageError(f"Couldn't split {values.size} rewards into groups of 'group_size' {size}")
    count = values.size // size
    return values.reshape(-1), np.repeat(np.arange(count), size), count


def _named_groups(values: FloatArray, groups: Any) -> tuple[FloatArray, IntArray, int]:
    names = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(names) != values.size:
        raise UsageError(f"Couldn't match {len(names)} 'groups' with {values.size} rewards")
    numbers: dict[Any, int] = {}
    index = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    return values.reshape(-1), index, len(numbers)


def _known(flat: FloatArray, nan: OnNaN) -> BoolArray:
    known: BoolArray = np.isfinite(flat)
    if nan == "refuse" and not known.all():
        first = int(np.argmin(known))
        raise UsageError(f"Couldn't use 'rewards': element {first} is {flat[first]}")
    if not known.any():
        raise UsageError("Couldn't use 'rewards': none is finite")
    return known


def _statistics(
    flat: FloatArray, index: IntArray, count: int, known: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean, standard deviation, range and largest magnitude of each group; two passes."""
    at, values = index[known], flat[known]
    members = np.maximum(np.bincount(at, minlength=count), 1)
    mean = np.bincount(at, weights=values, minlength=count) / members
    deviation = values - mean[at]
    std = np.sqrt(np.bincount(at, weights=deviation**2, minlength=count) / members)
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, at, values)
    np.maximum.at(highest, at, values)
    empty = ~np.isfinite(lowest)
    lowest[empty] = highest[empty] = 0.0
    return mean, std, highest - lowest, np.maximum(np.abs(lowest), np.abs(highest))


def _noise(magnitude: FloatArray, precision: float) -> FloatArray:
    """The largest difference of such rewards that their own type makes of equal ones."""
    noise = rounding(magnitude)
    return np.maximum(noise, _UNITS * precision * magnitude) if precision > _COARSE else noise


def _batch_spread(values: FloatArray, given: float | None) -> float:
    if given is None:
        return float(values.std())
    if not (math.isfinite(given) and given >= 0):
        raise UsageError(f"Couldn't use 'batch_std' {given}: not a finite number from 0")
    return given


def moments(rewards: Any) -> Moments:
    """What this rank contributes to `pooled_std`; NaN rewards are left out.

    Formula: number, mean, and sum of squared deviations from that mean, in exactly rounded sums.

    Raises:
        UsageError: no numbers.
    """
    values, _, _ = floats(rewards, "rewards")
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Moments(0, 0.0, 0.0)
    mean = math.fsum(finite) / len(finite)
    return Moments(len(finite), mean, math.fsum((finite - mean) ** 2))


def pooled_std(parts: Iterable[Moments] | Sequence[Moments]) -> float:
    """Standard deviation over all ranks; the order in which they are gathered is no matter.

    Deviations inside the ranks plus deviations of their means (Chan et al., 1979): never negative,
    and without the cancellation of mean of squares minus square of mean.

    Raises:
        UsageError: no rank has a finite reward.
    """
    gathered = [part for part in parts if part.number]
    count = sum(part.number for part in gathered)
    if count == 0:
        raise UsageError("Couldn't pool 'parts': no finite reward on any rank")
    mean = math.fsum(part.number * part.mean for part in gathered) / count
    between = math.fsum(part.number * (part.mean - mean) ** 2 for part in gathered)
    return math.sqrt((math.fsum(part.deviation for part in gathered) + between) / count)
