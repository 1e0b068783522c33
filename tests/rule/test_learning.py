"""Whether the reward still grows, and whether it is at its top."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlprobe.rule import Signal, Stretch, near_top, still_gains, stretch_from
from rlprobe.scan.context import Context
from rlprobe.testing import run_of


def _stretch(**columns: Any) -> Stretch:
    columns["entropy"] = {"level": 0.1}
    context = Context(run_of({"name": "run", "rows": 120, "columns": columns}))
    return stretch_from(Signal.of(context, "entropy"), 60)


@pytest.mark.parametrize("seed", range(20))
def test_growth_is_more_than_noise(seed: int) -> None:
    noise = {"noise": 0.02, "seed": seed}
    assert still_gains(_stretch(reward_mean={"ramp": [0.2, 0.6], **noise}))
    assert not still_gains(_stretch(reward_mean={"level": 0.5, **noise}))
    assert not still_gains(_stretch(reward_mean={"ramp": [0.6, 0.2], **noise}))


def test_nothing_logged_is_no_growth() -> None:
    assert not still_gains(_stretch())
    assert not near_top(_stretch())


@pytest.mark.parametrize(
    ("columns", "top"),
    [
        ({"reward_mean": 0.95}, True),
        ({"reward_mean": 0.6}, False),
        ({"reward_mean": 1.5}, False),
        ({"reward_mean": 1.9, "reward_max": 2.0}, True),
        ({"reward_mean": 0.95, "reward_max": 2.0}, False),
        ({"reward_mean": 1.1, "reward_component/accuracy_reward": 0.1}, False),
        ({"reward_mean": 1.1, "reward_component/accuracy_reward": 0.96}, True),
        ({"reward_mean": 3.0, "group_all_pass_fraction": 0.9}, True),
    ],
)
def test_the_top_is_the_highest_that_it_can_be(columns: dict[str, float], top: bool) -> None:
    assert near_top(_stretch(**{name: {"level": value} for name, value in columns.items()})) is top


def test_values_that_are_missing_are_passed_over() -> None:
    rewards = {"ramp": [0.2, 0.6], "set": [{"from": 80, "to": 90, "value": np.nan}]}
    assert still_gains(_stretch(reward_mean=rewards))
