"""Where a drift set in: found near it, whatever its shape, and not before a level that held."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe.rule import Signal, beginning, from_drift, stretch_from
from rlprobe.rule.drift import drift_onset
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

RUN = Context(run_of({"name": "run"}))
ROWS, ONSET = 400, 200
X = np.arange(ROWS, dtype=np.float64)
PAST = np.maximum(X - ONSET, 0.0)


def signal_of(values: FloatArray) -> Signal:
    return Signal(RUN, "loss", np.arange(len(values), dtype=np.int64), values)


SHAPES = {
    "linear": PAST / 100,
    "after a slow drift": X / 2_000 + PAST / 50,
    "exponential, on a log scale": 4 * PAST / 200,
    "after an early climb that ended": 2 * np.minimum(X / 60, 1) + PAST / 60,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", SHAPES)
def test_onset_is_where_the_drift_set_in(shape: str, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.05, ROWS)
    onset = drift_onset(SHAPES[shape] + noise, 380)
    assert ONSET - 4 <= onset <= ONSET + 40


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_from_the_first_row_on_begins_there(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.02, ROWS)
    assert drift_onset(X / 100 + noise, 380) <= 20


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7])
def test_few_rows_are_no_drift(rows: int) -> None:
    assert 0 <= drift_onset(np.arange(rows, dtype=np.float64), rows - 1) <= rows - 1


def test_long_series_are_judged_in_blocks() -> None:
    values = np.maximum(np.arange(100_000.0) - 60_000, 0) / 10_000
    assert 59_000 <= drift_onset(values, 99_000) <= 62_000


def test_what_comes_abruptly_keeps_its_onset() -> None:
    values = np.where(X < ONSET, 0.1, 5.0)
    jump = stretch_from(signal_of(values), ONSET)
    assert from_drift([jump], values) == [jump]


def test_stretches_of_one_drift_are_one() -> None:
    values = PAST / 100
    first, second = (stretch_from(signal_of(values), row, row + 20) for row in (320, 345))
    (joined,) = from_drift([first.starting(260), second.starting(270)], values)
    assert ONSET <= joined.start <= ONSET + 10
    assert (joined.sure, joined.end) == (320, 365)


def test_downwards_is_the_same_upside_down() -> None:
    values = PAST / 100
    late = stretch_from(signal_of(values), 350).starting(300)
    assert from_drift([late], values) == from_drift([late], -values, down=True)


def test_the_beginning_of_a_long_run_is_a_share_of_it() -> None:
    assert beginning(signal_of(X), 10) == pytest.approx(9.5)
    assert beginning(signal_of(X[:40]), 10) == pytest.approx(4.5)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_learnt_first_is_no_part_of_a_later_rise(seed: int) -> None:
    past = 0.1 + 0.3 * (1 - np.exp(-X / 60))
    noise = np.random.default_rng(seed).normal(0, 0.12, ROWS)
    kl = np.where(X < 1, 0.0, (X / 30).clip(max=1) * past) * np.exp(noise) * np.exp(PAST / 50)
    assert ONSET - 4 <= drift_onset(np.log(np.maximum(kl, 0.01)), 300) <= ONSET + 40
