"""Stretches of a signal: their level, the same rows of another signal, what changed beside them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlprobe.rule import Change, Judged, Period, Signal, known, stretch_from, together
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import BoolArray

LOSS = [1.0, 1.0, 5.0, 1.0, 6.0, 1.0]
KL = [-0.1, 0.1, -4.0, 4.0, -4.0, 0.1]


def loss_signal() -> Signal:
    run = Context(run_of({"name": "run", "columns": {"loss": LOSS, "kl_mean": KL}}))
    return Signal.of(run, "loss")


def test_a_stretch_knows_its_bad_rows_and_the_level_at_its_onset() -> None:
    loss = loss_signal()
    level = np.arange(6) / 10
    judged = Judged(loss, loss.values > 2, level=level)
    (stretch,) = judged.runs(gap=1)
    assert (stretch.first, stretch.seen, stretch.recovered) == (3, 5, True)
    assert judged.bad_rows(stretch).tolist() == [2, 4]
    assert stretch.onset_level == 0.2
    (without,) = Judged(loss, loss.values > 2).runs(gap=1)
    assert math.isnan(without.onset_level)


def test_the_same_rows_of_another_signal() -> None:
    loss = loss_signal()
    stretch = stretch_from(loss, 2, 4)
    other = stretch.of(loss.alongside("kl_mean"))
    assert other.usual == -4
    evidence = other.in_all(other.usual, None, "median")
    assert (evidence.metric, evidence.value) == ("kl_mean", -4.0)


def test_a_stretch_from_a_row_recovers_if_it_ends_before_the_run() -> None:
    loss = loss_signal()
    assert stretch_from(loss, 2, 4).recovered
    rest = stretch_from(loss, 2)
    assert not rest.recovered
    assert (rest.first, rest.last, len(rest)) == (3, 6, 4)


def test_what_changed_beside_a_stretch_may_be_compared_without_its_sign() -> None:
    stretch = stretch_from(loss_signal(), 2, 4)
    signed, unsigned = stretch.beside("kl_mean"), stretch.beside("kl_mean", unsigned=True)
    assert math.isnan(signed.times)
    assert (unsigned.before, unsigned.during) == (0.1, 4.0)
    assert math.isclose(unsigned.times, 40)


def test_what_was_before_may_be_all_that_was() -> None:
    stretch = stretch_from(loss_signal(), 4)
    assert stretch.beside("kl_mean", rows=1).before == 4.0
    assert stretch.beside("kl_mean", rows=None).before == 0.0


# --- where a rule says that it is bad -------------------------------------------------------------

MASKS = arrays(np.bool_, st.integers(1, 60))


def judged(bad: BoolArray, departed: BoolArray | None = None) -> Judged:
    rows = np.arange(len(bad), dtype=np.int64)
    run = Context(
        run_of({"name": "run", "first": 0, "rows": len(bad), "columns": {"loss": {"level": 1}}})
    )
    return Judged(Signal(run, "loss", rows, rows.astype(np.float64)), bad, departed)


def mask(rows: str) -> BoolArray:
    return np.array([letter == "x" for letter in rows])


@pytest.mark.parametrize(
    ("bad", "spans"),
    [
        ("..xxxxx..", [(2, 6)]),
        ("..xx.xx..", [(2, 6)]),
        ("..xxx.x..", [(2, 6)]),
        ("..x.x.x..", []),
        ("..xxx....", []),
        ("xxxx.", [(0, 3)]),
        ("xxx", [(0, 2)]),
        ("xx.", []),
        ("x", [(0, 0)]),
        ("xxxxx" + "." * 5 + "xxxxx", [(0, 14)]),
        ("xxxxx" + "." * 8 + "xxxxx", [(0, 4), (13, 17)]),
    ],
)
def test_persistent_is_most_of_five_rows(bad: str, spans: list[tuple[int, int]]) -> None:
    stretches = judged(mask(bad)).persistent()
    assert [(item.start, item.end) for item in stretches] == spans


def test_one_good_row_at_the_end_is_no_recovery() -> None:
    assert [item.recovered for item in judged(mask("..xxxxx.")).persistent()] == [False]
    assert [item.recovered for item in judged(mask("..xxxxx..")).persistent()] == [True]


@given(MASKS, MASKS)
def test_a_stretch_goes_back_over_rows_that_had_departed(bad: BoolArray, other: BoolArray) -> None:
    departed = np.resize(other, len(bad)) | bad
    plain, extended = judged(bad).persistent(), judged(bad, departed).persistent()
    for short, long in zip(plain, extended, strict=True):
        assert (long.sure, long.end) == (short.start, short.end)
        assert departed[long.start : long.sure].all()
        assert long.start == 0 or not departed[long.start - 1]
        assert short.values.tolist() == long.signal.values[long.core].tolist()


@given(MASKS, st.integers(0, 3), st.integers(1, 3))
def test_runs_hold_every_bad_row_of_those_long_enough(bad: BoolArray, gap: int, least: int) -> None:
    rule = judged(bad)
    stretches = rule.runs(gap=gap, least=least)
    rows = [row for item in stretches for row in rule.bad_rows(item).tolist()]
    assert set(rows) <= set(np.flatnonzero(bad).tolist())
    assert all(len(rule.bad_rows(item)) >= least for item in stretches)
    if least == 1:
        assert rows == np.flatnonzero(bad).tolist()


def test_a_drift_begins_before_it_is_surely_bad() -> None:
    values = np.array([0.0, 0.1, -0.1, 0.0, 0.1, 0.0] + [0.5, 1.0, 1.5, 2.0, 2.5] + [3.0] * 5)
    rows = np.arange(len(values), dtype=np.int64)
    loss = dataclasses.replace(loss_signal(), steps=rows, values=values)
    past = loss.past(above=0.2)
    (stretch,) = Judged(loss, past.above(at_least=1.9)).persistent()
    assert stretch.start == 9
    assert stretch.extend_to_drift(past, floor=0.1).start == 6
    fallen = dataclasses.replace(loss, values=-values)
    down = fallen.past(below=0.2)
    assert stretch.of(fallen).extend_to_drift(down, floor=0.1, down=True).start == 6


def test_a_level_stays_with_its_stretch() -> None:
    rule = dataclasses.replace(judged(mask("..xxxxx..")), level=np.arange(9.0))
    (stretch,) = rule.persistent()
    assert (stretch.onset_level, stretch.expected) == (2, 4)
    assert math.isnan(stretch_from(stretch.signal, 2).expected)


# --- periods --------------------------------------------------------------------------------------


def test_a_period_over_stretches_is_over_when_all_are() -> None:
    loss = loss_signal()
    early, late = stretch_from(loss, 1, 2), stretch_from(loss.alongside("kl_mean"), 2, 4)
    period = Period.over([early, late])
    assert (period.first, period.seen, period.last) == (2, 5, 5)
    assert (period.state, period.metrics) == ("recovered", ("loss", "kl_mean"))
    ongoing = Period.over([early, stretch_from(loss, 4)])
    assert (ongoing.first, ongoing.last, ongoing.state) == (2, 6, "ongoing")
    assert ongoing.metrics == ("loss",)


@dataclass(frozen=True)
class Lasting:
    first: int
    last: int


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(SPANS, st.integers(0, 10))
def test_together_parts_what_lies_far_apart(spans: list[tuple[int, int]], reach: int) -> None:
    items = sorted(
        (Lasting(first, first + length) for first, length in spans), key=lambda item: item.first
    )
    grouped = list(together(items, reach))
    assert [item for group in grouped for item in group] == items
    for one, two in itertools.pairwise(grouped):
        assert two[0].first > max(item.last for item in one) + reach
    for group in grouped:
        for row, item in enumerate(group[1:], 1):
            assert item.first <= max(earlier.last for earlier in group[:row]) + reach


# --- what else changed ----------------------------------------------------------------------------


def test_a_change_is_known_where_both_sides_are() -> None:
    change = Change("kl_mean", 2.0, 5.0, 1.0)
    assert (change.times, change.rose(), change.fell(0.5)) == (2.5, True, False)
    assert (change.rose(sigmas=2), change.rose(sigmas=4)) == (True, False)
    assert Change("kl_mean", 2.0, 0.5, 1.0).fell(0.5)
    evidence = change.evidence()
    assert evidence is not None
    assert (evidence.value, evidence.baseline) == (5, 2)
    missing = Change("kl_mean", math.nan, 5.0, math.nan)
    assert missing.evidence() is None
    assert (missing.rose(), missing.fell(0.5)) == (False, False)


@pytest.mark.parametrize(("value", "baseline"), [(None, None), (math.nan, None), (2, 2.0)])
def test_an_unknown_baseline_is_none(value: float | None, baseline: float | None) -> None:
    assert known(value) == baseline


def test_what_goes_on_after_the_last_value_is_told_to_the_end() -> None:
    columns = {"loss": [1.0, 1.0, 5.0, 6.0, math.nan, math.nan], "kl_mean": [1, 1, 2, -3, 4, -9]}
    loss = Signal.of(Context(run_of({"name": "run", "columns": columns})), "loss")
    finite = loss.where(np.isfinite(loss.values))
    stretch = stretch_from(finite, 2)
    assert stretch.beside("kl_mean", unsigned=True).during == 2.5
    assert stretch.since("kl_mean", unsigned=True).during == 3.5
    assert stretch.since("entropy").evidence() is None
