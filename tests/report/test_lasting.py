"""A run is not told to have recovered because one metric has: a dead policy does not drift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlprobe import diagnose

Screen = Callable[..., str]
ROWS, WRECK = 100, 40


def sb3_log(path: Path, *, seed: int, heals: bool) -> Path:
    """`progress.csv` of a PPO of Stable-Baselines3 on a task of 10 to 80, wrecked by one update."""
    rng = np.random.default_rng(seed)
    row = np.arange(ROWS)
    late = row - WRECK
    sick = (late >= 0) & ((late < 12) | (not heals))
    fading = np.exp(-np.maximum(late, 0) / 1.2)
    reward = np.where(sick, 9.4 + 70 * fading + rng.normal(0, 0.08, ROWS), 20 + 1.5 * row)
    reward = np.where(sick, reward, np.minimum(reward, 80) + rng.normal(0, 2, ROWS))
    dead = -1e-23 * rng.lognormal(0, 1, ROWS)
    entropy = np.where(sick & (late > 0), dead, -0.6 + rng.normal(0, 0.01, ROWS))
    shock = late == 0
    drift = np.where(sick, 0.0, rng.normal(6e-3, 1e-3, ROWS))
    columns = {
        "time/total_timesteps": (row + 1) * 2048,
        "rollout/ep_rew_mean": reward,
        "train/entropy_loss": np.where(shock, -0.2, entropy),
        "train/approx_kl": np.where(shock, 9.0, np.where(late == 1, 0.4, drift)),
        "train/clip_fraction": np.where(shock, 0.9, np.where(sick, 0.0, 0.07 + 0.03 * fading)),
        "train/value_loss": np.where(sick, 9.0, 40.0) + rng.normal(0, 1, ROWS),
    }
    lines = [
        ",".join(columns),
        *(",".join(map(repr, map(float, x))) for x in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("seed", range(3))
def test_a_wrecked_policy_has_not_recovered(seed: int, tmp_path: Path, screen: Screen) -> None:
    log = sb3_log(tmp_path / "progress.csv", seed=seed, heals=False)
    report = diagnose(log)
    root = report.finding(report.incidents[0].root)
    assert (root.detector, root.state) == ("KL_BLOWUP", "recovered")
    seen = screen("scan", log)
    assert "not recovered   confidence" in seen, seen
    assert "recovered after" not in seen
    lasts = next(line for line in seen.splitlines() if line.startswith("  lasts "))
    assert "ENTROPY_COLLAPSE" in lasts
    assert "REWARD_COLLAPSE" in lasts
    assert "not recovered" in str(report)


def test_one_that_has_is_told_so(tmp_path: Path, screen: Screen) -> None:
    log = sb3_log(tmp_path / "progress.csv", seed=0, heals=True)
    seen = screen("scan", log)
    assert "recovered after" in seen, seen
    assert "not recovered" not in seen
    assert "\n  lasts " not in seen
