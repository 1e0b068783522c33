"""Rewards that cannot be farmed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlprobe.errors import UsageError
from rlprobe.guards import gated_reward, length_penalty, repetition_penalty


def test_auxiliaries_are_paid_only_where_the_task_succeeded() -> None:
    reward = gated_reward([1.0, 0.0, 1.0], {"format": [0.1, 0.1, 0.0], "brief": [0.2, 0.2, 0.2]})
    assert reward.tolist() == pytest.approx([1.3, 0.0, 1.2])
    weighted = gated_reward([1.0], {"format": [0.1]}, weights={"format": 2.0})
    assert weighted.tolist() == pytest.approx([1.2])
    capped = gated_reward([1.0], {"format": [5.0]}, cap=0.1)
    assert capped.tolist() == pytest.approx([1.1])
    assert gated_reward([0.5], {"format": [0.1]}, success=0.5).tolist() == pytest.approx([0.6])


def test_the_type_is_kept() -> None:
    assert gated_reward(np.ones(2, np.float32), {}).dtype == np.float32


@pytest.mark.parametrize(
    ("task", "auxiliaries", "more", "message"),
    [
        ([1.0], {"format": [1.0, 2.0]}, {}, "'format' of shape"),
        ([math.nan], {}, {}, "'task': element 0 is nan"),
        ([1.0], {"format": [math.inf]}, {}, "'format': element 0 is inf"),
        ([1.0], {}, {"weights": {"brief": 1.0}}, "'brief'"),
        ([1.0], {}, {"cap": -1.0}, "'cap' -1.0"),
        ([1.0], {}, {"cap": math.nan}, "'cap' nan"),
        ([1.0], {}, {"success": math.nan}, "'success' nan"),
        ([1.0], {"f": [1.0]}, {"weights": {"f": math.inf}}, "'f' by inf in 'weights'"),
        ("right", {}, {}, "'task': no numbers"),
    ],
)
def test_gated_mistakes(
    task: object, auxiliaries: dict[str, list[float]], more: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        gated_reward(task, auxiliaries, **more)  # type: ignore[arg-type]


def test_the_length_penalty_is_quadratic_between_target_and_maximum() -> None:
    lengths = np.array([0, 4096, 10_240, 16_384, 99_999])
    assert length_penalty(lengths).tolist() == pytest.approx([0, 0, -0.25, -1, -1])
    assert length_penalty(10_240) == pytest.approx(-0.25)
    assert math.copysign(1, length_penalty(5)) == 1, "0, not -0"


@pytest.mark.parametrize(
    ("length", "more", "message"),
    [
        (-1, {}, "'length' -1"),
        (math.nan, {}, "'length' nan"),
        (5, {"target": 10, "maximum": 10}, "'maximum' 10"),
        ("x", {}, "'length': no numbers"),
        (5, {"penalty": math.nan}, "'penalty' nan"),
    ],
)
def test_length_mistakes(length: object, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        length_penalty(length, **more)


LOOP = "wait let me double check this once more please "


def test_loops_inside_the_reasoning_block_are_punished() -> None:
    assert repetition_penalty(f"<think>{LOOP * 4}</think>done") == -0.5
    assert repetition_penalty(f"<think>{LOOP * 3}</think>done") == 0.0
    assert repetition_penalty(f"<think>short</think>{LOOP * 9}") == 0.0
    assert repetition_penalty(f"<think>{LOOP * 9}") == -0.5, "an open block runs to the end"
    assert repetition_penalty(LOOP * 9, block=None) == -0.5
    assert repetition_penalty(list(range(8)) * 4) == -0.5


@pytest.mark.parametrize("text", ["", "<think></think>", "a b c"])
def test_short_texts_do_not_loop(text: str) -> None:
    assert repetition_penalty(text) == 0.0
