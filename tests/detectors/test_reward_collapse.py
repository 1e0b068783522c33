"""REWARD_COLLAPSE: noise is none, a fall begins at its row, over many seeds."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

SEEDS = range(20)


def findings_of(rewards: FloatArray) -> list[Finding]:
    columns = {"reward_mean": rewards.tolist()}
    run = run_of({"name": "rewards", "rows": len(rewards), "columns": columns})
    return list(catalog.load()["REWARD_COLLAPSE"]().scan(Context(run)))


def warnings_of(rewards: FloatArray) -> list[Finding]:
    return [item for item in findings_of(rewards) if item.severity is not Severity.INFO]


@pytest.mark.parametrize("seed", SEEDS)
def test_single_groups_between_all_and_nothing_are_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chance = np.linspace(0.3, 0.6, 120)
    right = rng.random(120) < chance
    rewards = np.where(right, 2.0, rng.choice([-6.0, -6.0, -4.0, -2.0], 120))
    assert not warnings_of(rewards)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fall_begins_at_its_row_and_the_sentence_is_true(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = 0.6 + rng.normal(0, 0.04, 200)
    rewards[140:] -= 0.5
    (found,) = warnings_of(rewards)
    assert found.first_bad_step == 141
    best, now = found.evidence[1].baseline, found.evidence[1].value
    assert best is not None
    assert now is not None
    assert best == pytest.approx(0.6, abs=0.05)
    assert now == pytest.approx(float(np.median(rewards[140:])))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_third_that_goes_in_one_row_is_a_shift(seed: int) -> None:
    rewards = 0.6 + np.random.default_rng(seed).normal(0, 0.02, 160)
    rewards[100:] -= 0.2
    (found,) = warnings_of(rewards)
    assert (found.variant, found.first_bad_step) == ("shift", 101)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [0.93, 10.0])
def test_harder_data_and_another_scale_are_none(seed: int, scale: float) -> None:
    rewards = 0.6 + np.random.default_rng(seed).normal(0, 0.02, 160)
    rewards[100:] *= scale
    assert not warnings_of(rewards)


@pytest.mark.parametrize("seed", SEEDS)
def test_costs_that_wander_by_a_tenth_are_no_collapse(seed: int) -> None:
    """Rewards below 0 have no lowest level: what was lost is compared with what there was."""
    rng = np.random.default_rng(seed)
    smooth = np.convolve(rng.normal(0, 25, 120), np.ones(15) / 15, "valid")
    rewards = -900 + smooth - np.linspace(0, 80, len(smooth))
    assert not warnings_of(rewards)
    rewards[60:] -= 1200
    assert warnings_of(rewards)


def test_what_a_short_run_had_learnt_is_lost() -> None:
    rewards = np.array([-80.0, -50, -20, 5, 20, 31, 40, -72, -70, -75, -71, -77])
    (found,) = warnings_of(rewards)
    assert found.first_bad_step == 8
