"""Group advantages: invariances, and exactly 0 where a naive division makes noise into signal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlprobe.errors import UsageError
from rlprobe.guards import group_advantages, moments, pooled_std
from rlprobe.values import ROUNDING, FloatArray, flat


def naive(rewards: NDArray[np.float32]) -> NDArray[np.float32]:
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    result: NDArray[np.float32] = centred / (rewards.std(axis=1, keepdims=True) + np.float32(1e-8))
    return result


def test_rounding_noise_gives_naive_code_advantages_and_this_one_none() -> None:
    lengths = np.arange(1, 33, dtype=np.int64).reshape(4, 8)
    total = np.zeros((4, 8), dtype=np.float32)
    for token in range(lengths.max()):
        total += np.where(token < lengths, np.float32(0.1), np.float32(0))
    spoilt = (total / lengths).astype(np.float32)  # 0.1 everywhere, but for rounding
    assert np.abs(spoilt - 0.1).max() < 1e-7
    assert np.abs(naive(spoilt)).max() > 0.3
    result = group_advantages(spoilt)
    assert (result.values == 0).all()
    assert result.clamped.all()
    assert result.values.dtype == np.float32


@pytest.mark.parametrize("kind", [list, np.array, lambda rewards: np.array(rewards, np.float32)])
@pytest.mark.parametrize("level", [0.0, 0.1, 1.0, -300.0])
def test_what_the_diagnosis_calls_equal_gets_no_advantage(
    kind: Callable[[list[float]], Any], level: float
) -> None:
    step = 1e-7 * max(1.0, abs(level))
    group = [level, level + step, level, level - step]
    assert flat(group)
    result = group_advantages([*kind(group), *kind([level, level + 1, level, level])], group_size=4)
    assert np.asarray(result.values)[:4].tolist() == [0, 0, 0, 0]
    assert np.asarray(result.clamped).tolist() == [True] * 4 + [False] * 4


@settings(max_examples=200, deadline=None)
@given(
    level=st.floats(-1e6, 1e6),
    parts=st.lists(st.floats(-2, 2), min_size=2, max_size=6),
)
def test_cure_and_diagnosis_draw_one_line(level: float, parts: list[float]) -> None:
    rewards = np.array([level + part * ROUNDING * max(1.0, abs(level)) for part in parts])
    clamped = group_advantages([rewards], min_std=0.0).clamped
    assert clamped.all() == flat(rewards)


def test_two_units_of_a_16_bit_type_are_rounding() -> None:
    half = np.array([[1.0, 1.0 + 2**-9], [1.0, 1.0 + 2**-7]], dtype=np.float16)
    assert group_advantages(half).clamped.tolist() == [[True, True], [False, False]]


def test_the_worked_example() -> None:
    result = group_advantages([[0.0, 1.0], [0.5, 0.5]])
    assert np.allclose(result.values, [[-1, 1], [0, 0]], atol=1e-6)
    assert result.clamped.tolist() == [[False, False], [True, True]]


def test_scales() -> None:
    rewards = np.array([[0.0, 1.0], [0.0, 3.0]])
    assert group_advantages(rewards, scale="none").values.tolist() == [[-0.5, 0.5], [-1.5, 1.5]]
    batch = group_advantages(rewards, scale="batch").values
    assert batch[1, 1] == pytest.approx(1.5 / rewards.std())
    given_std = group_advantages(rewards, scale="batch", batch_std=2.0).values
    assert given_std[1, 1] == pytest.approx(0.75)


def test_ragged_groups_single_members_and_nan() -> None:
    rewards = [0.0, 1.0, 5.0, math.nan, 2.0, 4.0]
    result = group_advantages(rewards, ["a", "a", "alone", "b", "b", "b"])
    assert result.values.tolist() == pytest.approx([-1, 1, 0, 0, -1, 1], abs=1e-6)
    assert result.clamped.tolist() == [False, False, True, True, False, False]
    with pytest.raises(UsageError, match="element 3 is nan"):
        group_advantages(rewards, ["a", "a", "c", "b", "b", "b"], nan="refuse")


@pytest.mark.parametrize(
    ("rewards", "more", "message"),
    [
        ([], {"group_size": 2}, "'rewards': it is empty"),
        ([1.0, 2.0, 3.0], {"group_size": 2}, "'group_size' 2"),
        ([1.0, 2.0], {"group_size": 0}, "'group_size' 0"),
        ([1.0, 2.0], {}, "groups of 'rewards'"),
        ([1.0, 2.0], {"groups": ["a"]}, "1 'groups' with 2 rewards"),
        ([math.nan, math.nan], {"group_size": 2}, "none is finite"),
        (["a", "b"], {"group_size": 2}, "'rewards': no numbers"),
        ([[1.0, 2.0]], {"scale": "std"}, "'std'"),
        ([[1.0, 2.0]], {"scale": "batch", "batch_std": math.nan}, "'batch_std' nan"),
        ([[1.0, 2.0]], {"min_std": -1.0}, "'min_std' -1.0"),
        ([[1.0, 2.0]], {"eps": math.nan}, "'eps' nan"),
        ([[1.0, 2.0]], {"nan": "skip"}, "'nan' as 'skip'"),
        ([1.0, 2.0], {"groups": [0, 0], "group_size": 2}, "'group_size' 2 beside 'groups'"),
    ],
)
def test_mistakes_are_named(rewards: object, more: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        group_advantages(rewards, **more)  # type: ignore[arg-type]


matrices = st.integers(2, 9).flatmap(
    lambda size: st.lists(
        st.lists(st.floats(-1e3, 1e3, width=32), min_size=size, max_size=size),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=150, deadline=None)
@given(matrix=matrices)
def test_groups_sum_to_zero_and_no_advantage_is_larger_than_its_group_allows(
    matrix: list[list[float]],
) -> None:
    rewards: FloatArray = np.array(matrix)
    size = rewards.shape[1]
    values = group_advantages(rewards).values
    assert np.abs(values.sum(axis=1)).max() < 1e-6 * size
    assert np.abs(values).max() <= math.sqrt(size - 1) + 1e-6


@settings(max_examples=100, deadline=None)
@given(matrix=matrices, shift=st.floats(-100, 100), factor=st.floats(0.5, 100))
def test_shift_and_positive_factors_change_nothing(
    matrix: list[list[float]], shift: float, factor: float
) -> None:
    rewards: FloatArray = np.array(matrix)
    wide = np.ptp(rewards, axis=1) > 1e-3 * np.maximum(1.0, np.abs(rewards).max(axis=1))
    before = group_advantages(rewards).values[wide]
    after = group_advantages(rewards * factor + shift).values[wide]
    assert np.allclose(before, after, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(matrix=matrices, seed=st.integers(0, 1000))
def test_the_order_of_rollouts_does_not_matter(matrix: list[list[float]], seed: int) -> None:
    rewards: FloatArray = np.array(matrix)
    names = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    order = np.random.default_rng(seed).permutation(rewards.size)
    plain = group_advantages(rewards).values.reshape(-1)
    shuffled = group_advantages(rewards.reshape(-1)[order], names[order]).values
    assert np.allclose(plain[order], shuffled, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.lists(st.floats(-1e6, 1e6), max_size=8), min_size=2, max_size=4),
    offset=st.sampled_from([0.0, 1e8]),
)
def test_pooled_spread_is_that_of_the_whole_in_any_order(
    parts: list[list[float]], offset: float
) -> None:
    shifted = [[value + offset for value in part] for part in parts]
    whole = [value for part in shifted for value in part]
    ranks = [moments(part) if part else moments(np.array([])) for part in shifted]
    if not whole:
        with pytest.raises(UsageError):
            pooled_std(ranks)
        return
    found = {pooled_std(order) for order in itertools.permutations(ranks)}
    assert len(found) == 1
    assert found.pop() == pytest.approx(float(np.std(whole)), rel=1e-6, abs=1e-6)
