"""The update guard."""

from __future__ import annotations

import math

import pytest

from rlprobe.errors import UsageError
from rlprobe.guards import UpdateGuard, UpdatesStoppedError


def warm(guard: UpdateGuard, norm: float = 1.0) -> UpdateGuard:
    for step in range(30):
        assert guard.allows(norm * (1 + 0.1 * (step % 3)))
    return guard


def test_wild_and_non_finite_norms_are_skipped() -> None:
    guard = warm(UpdateGuard())
    assert not guard.allows(math.nan)
    assert not guard.allows(math.inf)
    assert not guard.allows(100.0)
    assert guard.allows(5.0)
    assert (guard.skipped, guard.in_a_row, guard.steps) == (3, 0, 34)


def test_non_finite_norms_are_skipped_from_the_first_step() -> None:
    guard = UpdateGuard()
    assert not guard.allows(math.nan)
    assert guard.allows(1e9), "no past yet to judge it by"


def test_a_skipped_norm_does_not_become_the_usual() -> None:
    guard = warm(UpdateGuard(stop_after=1000))
    for _ in range(500):
        assert not guard.allows(1000.0)


@pytest.mark.parametrize("level", [1e-3, 1.0, 1e5])
def test_the_level_is_the_runs_own(level: float) -> None:
    guard = warm(UpdateGuard(), level)
    assert guard.allows(level * 10)
    assert not guard.allows(level * 30)


def test_it_stops_after_too_many() -> None:
    guard = warm(UpdateGuard(stop_after=3))
    assert not guard.allows(math.nan)
    assert not guard.allows(math.nan)
    with pytest.raises(UpdatesStoppedError, match="3 updates in a row"):
        guard.allows(math.nan)


@pytest.mark.parametrize("bad", [{"ratio": 1.0}, {"warm_up": 0}, {"stop_after": 0}])
def test_mistakes_are_named(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        UpdateGuard(**bad)  # type: ignore[arg-type]
