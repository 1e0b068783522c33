"""Stretches of a signal: their level, the same rows of another signal, what changed beside them."""

from __future__ import annotations

import math

import numpy as np

from rlprobe.rule import Judged, Signal, stretch_from
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

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
