"""Noise that buries the reward, and scales that are new, over twenty seeds."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

ROWS, ONSET = 140, 70
RULE = catalog.load(())["REWARD_COLLAPSE"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("std", "mean", "told"), [(9, 1, True), (10, 10, False), (1, 1, False)])
def test_noise_is_told_and_a_new_scale_is_not(
    seed: int, std: float, mean: float, *, told: bool
) -> None:
    rng, late = np.random.default_rng(seed), np.arange(ROWS) >= ONSET
    level = 0.2 + 0.5 * (1 - np.exp(-np.arange(ROWS) / 50))
    scatter = 0.3 * np.exp(rng.normal(0, 0.12, ROWS)) * np.where(late, std, 1)
    reward = level * np.where(late, mean, 1) + rng.normal(0, 0.2, ROWS) * scatter
    columns = {"reward_mean": list(reward), "reward_std": list(scatter)}
    found = list(RULE().scan(Context(run_of({"name": "run", "columns": columns}))))
    noisy = [it.first_bad_step for it in found if it.variant == "noise"]
    assert noisy == ([ONSET + 1] if told else [])
