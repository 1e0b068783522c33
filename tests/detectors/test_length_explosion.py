"""LENGTH_EXPLOSION: growth that nothing is learnt by, over many seeds of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

ROWS = 300


def findings_of(
    lengths: FloatArray, rewards: FloatArray, **others: list[float | str]
) -> list[Finding]:
    columns: dict[str, Any] = {
        "completion_length_mean": lengths.tolist(),
        "reward_mean": rewards.tolist(),
    }
    columns |= {f"eval/{name}": values for name, values in others.items()}
    run = run_of({"name": "lengths", "rows": len(lengths), "columns": columns})
    return list(catalog.load()["LENGTH_EXPLOSION"]().scan(Context(run)))


def noisy(seed: int, level: FloatArray, scatter: float) -> FloatArray:
    values: FloatArray = level * np.exp(np.random.default_rng(seed).normal(0, scatter, len(level)))
    return values


def learnt(seed: int, first: float, last: float) -> FloatArray:
    rng = np.random.default_rng(1000 + seed)
    rewards: FloatArray = np.linspace(first, last, ROWS) + rng.normal(0, 0.03, ROWS)
    return rewards


@pytest.mark.parametrize("seed", range(20))
def test_growth_without_learning_is_a_warning(seed: int) -> None:
    lengths = noisy(seed, 200 * np.exp(np.linspace(0, 1.5, ROWS)), 0.08)
    found = findings_of(lengths, learnt(seed, 0.4, 0.4))
    assert [(item.variant, item.severity) for item in found] == [("slow", Severity.WARNING)]
    assert found[0].first_bad_step <= ROWS / 3


@pytest.mark.parametrize("seed", range(20))
def test_growth_with_learning_is_none(seed: int) -> None:
    lengths = noisy(seed, 200 * np.exp(np.linspace(0, 1.5, ROWS)), 0.08)
    assert not findings_of(lengths, learnt(seed, 0.2, 0.7))


@pytest.mark.parametrize("seed", range(20))
def test_level_lengths_are_none(seed: int) -> None:
    lengths = noisy(seed, np.full(ROWS, 200.0), 0.15)
    assert not findings_of(lengths, learnt(seed, 0.4, 0.4))


@pytest.mark.parametrize("seed", range(20))
def test_a_run_away_begins_after_harder_data(seed: int) -> None:
    level = np.full(140, 900.0)
    level[100:] *= 1.12
    level[110:] = 900 * np.exp(np.minimum(2.5, 0.2 * np.arange(1, 31)))
    found = findings_of(noisy(seed, level, 0.04), np.full(140, 0.5))
    assert found
    assert 104 <= found[0].first_bad_step <= 114


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("last", "alarms"), [(0.3, 1), (0.55, 0)])
def test_an_evaluation_tells_whether_longer_is_better(seed: int, last: float, alarms: int) -> None:
    lengths = noisy(seed, 200 * np.exp(np.linspace(0, 1.5, ROWS)), 0.08)
    scores = np.linspace(0.3, last, ROWS) + np.random.default_rng(seed).normal(0, 0.01, ROWS)
    logged = [value if row % 20 == 0 else "-" for row, value in enumerate(scores.tolist())]
    assert len(findings_of(lengths, learnt(seed, 0.2, 0.9), accuracy=logged)) == alarms
