"""TRUNCATION: a share that jumps, creeps or shifts, over many seeds of noise."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

ROWS = 240
SEEDS = range(20)


def findings_of(shares: FloatArray) -> list[Finding]:
    columns = {"truncation_rate": shares.tolist()}
    run = run_of({"name": "shares", "rows": len(shares), "columns": columns})
    return list(catalog.load()["TRUNCATION"]().scan(Context(run)))


def shares_of(seed: int, chance: FloatArray, completions: int) -> FloatArray:
    """Shares of so many completions, each cut with a chance."""
    cut: FloatArray = np.random.default_rng(seed).binomial(completions, chance) / completions
    return cut


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("completions", [2, 4, 64])
def test_what_is_cut_all_along_is_chronic(seed: int, completions: int) -> None:
    found = findings_of(shares_of(seed, np.full(ROWS, 0.7), completions))
    warnings = [item for item in found if item.severity is Severity.WARNING]
    assert warnings
    assert warnings[0].first_bad_step <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_what_creeps_up_began_where_it_left_its_level(seed: int) -> None:
    chance = np.concatenate([np.full(80, 0.03), np.linspace(0.03, 0.45, ROWS - 80)])
    found = [
        item for item in findings_of(shares_of(seed, chance, 128)) if item.state != "recovered"
    ]
    assert [item.severity for item in found] == [Severity.WARNING]
    assert 75 <= found[0].first_bad_step <= 80 + (ROWS - 80) / 3


@pytest.mark.parametrize("seed", SEEDS)
def test_what_shifts_began_at_the_row(seed: int) -> None:
    chance = np.where(np.arange(ROWS) < 120, 0.04, 0.4)
    (found,) = findings_of(shares_of(seed, chance, 128))
    assert (found.variant, found.severity, found.first_bad_step) == ("shift", Severity.WARNING, 121)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("last", [0.02, 0.15])
def test_a_few_more_are_none(seed: int, last: float) -> None:
    assert not findings_of(shares_of(seed, np.linspace(0.05, last, ROWS), 64))
