"""FORMAT_GAMING: all that was learnt is the format, over many seeds of noise."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

ROWS = 320
SEEDS = range(20)


def findings_of(seed: int, task: FloatArray, rising_at: int) -> list[Finding]:
    rng = np.random.default_rng(seed)
    form = np.interp(np.arange(ROWS), [rising_at, rising_at + 60], [0.25, 0.98])
    columns = {
        "reward_component/format": (form + rng.normal(0, 0.02, ROWS)).tolist(),
        "reward_component/accuracy": (task + rng.normal(0, 0.02, ROWS)).tolist(),
    }
    run = run_of({"name": "rewards", "rows": ROWS, "columns": columns})
    return list(catalog.load()["FORMAT_GAMING"]().scan(Context(run)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("level", "rising_at"), [(0.03, 5), (0.03, 120), (0.45, 120)])
def test_a_format_that_is_all_that_was_learnt(seed: int, level: float, rising_at: int) -> None:
    (found,) = findings_of(seed, np.full(ROWS, level), rising_at)
    assert found.variant == "form_alone"
    assert rising_at - 10 <= found.first_bad_step <= rising_at + 30


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("first", "last"), [(0.1, 0.5), (0.3, 0.7), (0.85, 0.9)])
def test_a_format_that_helps_the_task_is_none(seed: int, first: float, last: float) -> None:
    assert not findings_of(seed, np.linspace(first, last, ROWS), 10)
