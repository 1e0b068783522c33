"""Breaks that metrics share: at the row where they took place, in order of their size."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe.rule import Signal, breaks_in, held_until, moments
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

RUN = Context(run_of({"name": "run"}))


def signal_of(values: FloatArray, metric: str = "loss") -> Signal:
    return Signal(RUN, metric, np.arange(len(values), dtype=np.int64), values)


def _noise(seed: int, rows: int = 200) -> FloatArray:
    return np.random.default_rng(seed).normal(0, 0.05, rows)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_found_at_its_row(seed: int) -> None:
    values = 0.5 + _noise(seed)
    values[120:] += 0.6
    (item, *_) = breaks_in(signal_of(values), times=1.5)
    assert abs(item.row - 120) <= 1
    assert item.up
    assert held_until(item) == 199


def test_one_row_is_no_break() -> None:
    values = 0.5 + _noise(1)
    values[120] = 9
    assert breaks_in(signal_of(values), times=1.5) == ()


def test_drift_is_no_break() -> None:
    assert breaks_in(signal_of(np.linspace(0, 3, 200) + _noise(2)), times=1.5) == ()


def test_a_coarse_metric_breaks_by_several_of_its_steps() -> None:
    values = np.zeros(200)
    values[120:] = 1 / 8
    values[180] = 2 / 8
    assert breaks_in(signal_of(values), times=1.5) == ()
    values[150:] = 1
    assert [item.row for item in breaks_in(signal_of(values), times=1.5)] == [150]


def test_a_break_that_heals_ends() -> None:
    values = 0.5 + _noise(3)
    values[120:140] += 1
    item = max(breaks_in(signal_of(values), times=1.5), key=lambda item: item.times)
    assert 138 <= held_until(item) <= 140


def test_long_series_keep_the_row() -> None:
    values = 0.5 + _noise(4, 100_000)
    values[60_001:] += 1
    (item,) = breaks_in(signal_of(values), times=1.5)
    assert abs(item.row - 60_001) <= 2


def test_breaks_of_one_moment_are_together() -> None:
    steps = [np.where(np.arange(200) < row, 0.0, 1.0) + _noise(row) for row in (100, 101, 150)]
    broken = [item for values in steps for item in breaks_in(signal_of(values), times=2)]
    assert [len(group) for group in moments(broken, 1)] == [2, 1]
    assert list(moments([], 1)) == []


@pytest.mark.parametrize("rows", [0, 1, 10, 27])
def test_few_rows_have_no_breaks(rows: int) -> None:
    assert breaks_in(signal_of(np.arange(rows, dtype=np.float64)), times=1.5) == ()
