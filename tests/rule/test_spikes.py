"""Rows far above what is usual before and after them."""

from __future__ import annotations

import numpy as np

from rlprobe.rule import Signal, Spikes, period
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray


def spikes_of(values: FloatArray) -> Spikes:
    run = Context(
        run_of({"name": "x", "rows": len(values), "columns": {"grad_norm": values.tolist()}})
    )
    signal = Signal.of(run, "grad_norm", above=0)
    return Spikes.of(signal, ratio=10, sigmas=4, least_std=0.1, opening=16, lasts=32)


def flat(rows: int, **at: float) -> FloatArray:
    values = np.ones(rows)
    for row, value in at.items():
        values[int(row[1:])] = value
    return values


def test_a_spike_is_far_above_both_sides() -> None:
    assert spikes_of(flat(100, r40=30, r70=9)).rows.tolist() == [40]


def test_what_comes_last_has_no_other_side() -> None:
    assert spikes_of(flat(100, r98=30, r99=50)).rows.tolist() == [98, 99]


def test_the_first_rows_of_a_cold_start_are_none() -> None:
    assert not len(spikes_of(flat(100, r0=500, r1=200, r2=60)).rows)


def test_a_level_that_lasts_is_none() -> None:
    values = flat(200)
    values[120:] = 30
    found = spikes_of(values)
    assert not len(found.rows)
    assert [(stretch.start, stretch.end) for stretch in found.lasting] == [(120, 199)]
    assert found.high.sum() == 80


def test_spikes_on_a_level_that_lasts() -> None:
    values = flat(200)
    values[100:] = 30
    values[150] = 900
    assert spikes_of(values).rows.tolist() == [150]


def test_the_rows_that_lead_to_a_step() -> None:
    found = spikes_of(flat(200, r60=30, r120=30, r134=30, r149=30, r190=30))
    near = {"reach": 5, "burst": 20, "least": 3}
    assert found.leading_to(166, **near).tolist() == [120, 134, 149]  # a burst, 16 rows before
    assert found.leading_to(194, **near).tolist() == [190]
    assert found.leading_to(66, **near).tolist() == [60]
    assert not len(found.leading_to(100, **near))
    assert not len(found.leading_to(20, **near))


def test_without_some_rows() -> None:
    found = spikes_of(flat(100, r40=30, r70=40))
    gone = np.zeros(100, dtype=np.bool_)
    gone[35:45] = True
    assert found.without(gone).rows.tolist() == [70]


def test_the_period_of_steps() -> None:
    assert period(np.array([10, 35, 60, 86, 110]), slack=1) == 25
    assert period(np.array([10, 35, 90, 101, 160]), slack=1) == 0
    assert period(np.array([10, 35]), slack=1) == 0
