"""REWARD_HACKING: learning curves are none, an evaluation that parts is, over many seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

SEEDS = range(20)


def findings_of(rewards: FloatArray, scores: FloatArray | None = None) -> list[Finding]:
    columns: dict[str, Any] = {"reward_mean": rewards.tolist()}
    if scores is not None:
        logged = [value if row % 20 == 0 else "-" for row, value in enumerate(scores.tolist())]
        columns["eval/accuracy"] = logged
    run = run_of({"name": "rewards", "rows": len(rewards), "columns": columns})
    return list(catalog.load()["REWARD_HACKING"]().scan(Context(run)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flat", [2, 12, 40])
def test_a_learning_curve_over_orders_of_magnitude_is_none(seed: int, flat: int) -> None:
    rng = np.random.default_rng(seed)
    learnt = np.linspace(100, 900, 30) * np.exp(rng.normal(0, 0.3, 30))
    rewards = np.concatenate([0.4 + rng.normal(0, 0.05, flat), learnt])
    assert not findings_of(rewards)
    assert not findings_of(rewards[: flat + 8])


@pytest.mark.parametrize("seed", SEEDS)
def test_two_impossible_rewards_are_outliers(seed: int) -> None:
    rewards = 0.5 + np.random.default_rng(seed).normal(0, 0.1, 120)
    rewards[[70, 74]] = 1e6
    (found,) = findings_of(rewards)
    assert (found.variant, found.first_bad_step) == ("outlier", 71)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_evaluation_parts_from_the_training(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = np.linspace(0.2, 1.0, 400) + rng.normal(0, 0.03, 400)
    rising, falling = np.linspace(0.2, 0.5, 140), np.linspace(0.5, 0.25, 260)
    scores = np.concatenate([rising, falling]) + rng.normal(0, 0.01, 400)
    (found,) = findings_of(rewards, scores)
    assert found.variant == "evaluation"
    assert 120 <= found.first_bad_step <= 140 + 260 / 3


@pytest.mark.parametrize("seed", SEEDS)
def test_evaluations_that_are_nearly_always_nothing_are_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = np.linspace(0.05, 0.15, 400) + rng.normal(0, 0.02, 400)
    assert not findings_of(rewards, rng.binomial(64, 0.004, 400) / 64)
