"""Equal rewards: one definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlprobe.values import flat, rounding


@pytest.mark.parametrize(
    ("rewards", "equal"),
    [
        ([0.5], True),
        ([0.5, 0.5], True),
        ([0.1, 0.1 + 1e-7], True),
        ([0.0, 1e-6], True),
        ([0.0, 1.1e-6], False),
        ([1e6, 1e6 + 1], True),
        ([1e6, 1e6 + 1.1], False),
        ([-1e6, -1e6 + 1], True),
        ([-1.0, 1.0], False),
        ([1.0, math.nan], False),
        ([math.inf, math.inf], False),
        ([1.0, -math.inf], False),
    ],
)
def test_equal_up_to_a_millionth(rewards: list[float], equal: bool) -> None:
    assert flat(rewards) == equal
    assert flat(np.array([rewards, [0.0] * len(rewards)])).tolist() == [equal, True]


def test_rounding_is_a_millionth_of_the_magnitude_and_of_one_at_least() -> None:
    assert rounding([0.0, -0.5, 2e6]).tolist() == pytest.approx([1e-6, 1e-6, 2.0])
    assert np.isnan(rounding(math.nan))
