"""Abrupt changes: found where they are, and not made of noise, trends or coarse values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.rule import Signal, leaps, shifts
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

RUN = Context(run_of({"name": "run"}))
KINDS = ("white", "trend", "coarse", "rare", "heavy")


def signal_of(values: FloatArray) -> Signal:
    return Signal(RUN, "loss", np.arange(len(values), dtype=np.int64), values)


def _noise(kind: str, seed: int, rows: int = 200) -> FloatArray:
    rng = np.random.default_rng(seed)
    white = rng.normal(size=rows)
    if kind == "trend":
        return white + 0.05 * np.arange(rows)
    if kind == "coarse":
        return rng.binomial(16, 0.5, rows) / 16
    if kind == "rare":
        return np.where(rng.random(rows) < 0.15, rng.integers(1, 4, rows) / 32, 0.0)
    return rng.standard_t(3, rows) if kind == "heavy" else white


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_noise_makes_no_shift(kind: str, seed: int) -> None:
    assert shifts(signal_of(_noise(kind, seed))) == ()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["white", "trend", "coarse"])
def test_ten_sigma_in_one_row_are_found_at_the_row(kind: str, seed: int) -> None:
    values = _noise(kind, seed)
    values[120:] += 10 * np.std(np.diff(values)) / math.sqrt(2)
    (shift,) = shifts(signal_of(values))
    assert shift.row == 120
    assert shift.up
    assert shift.lasts
    assert shift.stretch.first == shift.step


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_back_does_not_last(seed: int) -> None:
    values = _noise("white", seed)
    values[120:150] -= 12
    first = shifts(signal_of(values))[0]
    assert (first.row, first.up, first.lasts) == (120, False, False)
    assert abs(first.until - 149) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_ramp_and_a_spike_are_no_shift(seed: int) -> None:
    ramp, spike = _noise("white", seed), _noise("white", seed)
    ramp[100:] += np.minimum(np.arange(100), 40) * 0.5
    spike[100:102] += 50
    assert shifts(signal_of(ramp)) == ()
    assert shifts(signal_of(spike)) == ()


def test_a_shift_in_a_long_signal_is_found_at_its_row() -> None:
    values = np.random.default_rng(1).normal(size=100_000)
    values[70_003:] += 30
    (shift,) = shifts(signal_of(values))
    assert shift.row == 70_003


def test_a_constant_that_moves_is_one_of_infinitely_many_times() -> None:
    values = np.repeat([0.0, 1.0], 40)
    (shift,) = shifts(signal_of(values))
    assert (shift.row, shift.times) == (40, math.inf)
    assert shifts(signal_of(values), least=1.0) == ()


@pytest.mark.parametrize("seed", range(20))
def test_a_leap_needs_not_last(seed: int) -> None:
    values = _noise("white", seed)
    values[150] += 40
    assert leaps(signal_of(values)).tolist() == [150]


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.floats(0.1, 100))
def test_a_change_of_unit_changes_nothing(values: list[float], unit: float) -> None:
    signal = signal_of(np.asarray(values))
    other = signal.with_values(np.asarray(values) * 2.0 ** round(math.log2(unit)))
    assert [s.row for s in shifts(signal)] == [s.row for s in shifts(other)]
