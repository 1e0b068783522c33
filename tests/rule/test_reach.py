"""How far a reward can go, and how much of it was gained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlprobe.rule import Reach, Signal
from rlprobe.scan.context import Context
from rlprobe.testing import run_of


def reach(**columns: Sequence[float]) -> Reach:
    named = {name.replace("__", "/"): list(values) for name, values in columns.items()}
    signal = Signal.of(Context(run_of({"name": "run", "columns": named})), "reward_mean")
    return Reach.of(signal, signal.values)


def test_rewards_between_0_and_1_reach_1_and_others_what_is_known() -> None:
    assert reach(reward_mean=[0.1, 0.2]).top == 1
    assert reach(reward_mean=[0.1, 0.2], reward_max=[0.3, 0.5]).top == 0.5
    assert np.isnan(reach(reward_mean=[1.5, 2.0]).top)
    assert reach(reward_mean=[-2.0, 0.5], reward_min=[-3, -1], reward_max=[1, 1]).bottom == -3


def test_the_part_for_the_task_is_what_counts() -> None:
    own = reach(reward_mean=[0.9, 0.9], reward_component__accuracy=[0.1, 0.1])
    assert own.reward == pytest.approx([0.1, 0.1])
    assert own.low(0.3).all()
    paid_for_form = reach(reward_mean=[0.9, 0.9], reward_component__format=[0.1, 0.1])
    assert not paid_for_form.low(0.3).any()


def test_a_gain_is_a_part_of_what_was_left_to_gain() -> None:
    rising = reach(reward_mean=np.linspace(0.5, 0.9, 60).tolist())
    assert rising.gained(10, 59, 0.25)
    assert not rising.gained(40, 48, 0.25)
    assert not reach(reward_mean=[0.5] * 60).gained(10, 59, 0.25)


def test_a_low_reward_on_its_way_has_risen() -> None:
    up = reach(reward_mean=np.linspace(0.02, 0.25, 60).tolist())
    assert up.low(0.3).all()
    assert not up.risen(1.5)[:10].any()
    assert up.risen(1.5)[-30:].all()
