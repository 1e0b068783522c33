"""A metric, what stands beside it, and what it was like before each row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlprobe.errors import Inconclusive
from rlprobe.rule import WHOLE, Signal, early
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

NAN = math.nan
RUN = Context(run_of({"name": "run"}))
VALUES = arrays(np.float64, st.integers(6, 80), elements=st.floats(-1e3, 1e3))
LARGE = arrays(np.float64, st.integers(6, 80), elements=st.floats(0.01, 1e3))


def loss_of(values: FloatArray) -> Signal:
    return Signal(RUN, "loss", np.arange(len(values), dtype=np.int64), values)


def signal_of(metric: str, **columns: list[float | str]) -> Signal:
    signal = Signal.logged(Context(run_of({"name": "run", "columns": columns})), metric)
    assert signal is not None
    return signal


def test_another_metric_alongside_has_the_rows_of_the_signal() -> None:
    reward = signal_of("reward_mean", reward_mean=[1, NAN, 3, 4], entropy=[0.1, 0.2, "-", 0.4])
    entropy = reward.alongside("entropy")
    assert entropy.metric == "entropy"
    assert entropy.steps.tolist() == [1, 3, 4]
    np.testing.assert_array_equal(entropy.values, [0.1, NAN, 0.4])


def test_rows_within_the_scatter_of_a_known_past() -> None:
    past = signal_of("loss", loss=[1, 2, 3, 2.5, 9]).past(warmup=3)
    assert past.robust_std[3] > 0
    assert past.within(2).tolist() == [False, False, False, True, False]


def test_rows_left_out_never_become_the_best_level() -> None:
    reward = signal_of("reward_mean", reward_mean=[1, 1, 9, 9, 9, 9, 1])
    without = reward.values > 5
    assert reward.best_level(4).level[-1] == 9
    assert reward.best_level(4, without=without).level[-1] == 1


def test_distance_from_the_best_level_has_a_least_standard_deviation() -> None:
    best = signal_of("reward_mean", reward_mean=[10, 10, 10, 12]).best_level(4)
    assert best.robust_std[-1] == 0
    assert best.z(least_share=0.1)[-1] == 2


# --- what a rule needs ----------------------------------------------------------------------------


def test_a_signal_is_what_was_measured() -> None:
    loss = signal_of("loss", loss=[1.0, NAN, "-", math.inf, 0.0, 2.0])
    assert (loss.steps.tolist(), loss.values.tolist()) == ([1, 5, 6], [1, 0, 2])
    run = loss.run
    above = Signal.of(run, "loss", above=0)
    assert (above.steps.tolist(), above.values.tolist()) == ([1, 6], [1, 2])
    assert Signal.logged(run, "entropy") is None


@pytest.mark.parametrize(
    ("values", "word"),
    [([1.0], "loss: 1 point, needs 3"), ([1.0, NAN, 2.0], "loss: 2 points, needs 3")],
)
def test_too_few_values_are_inconclusive(values: list[float | str], word: str) -> None:
    run = signal_of("loss", loss=values).run
    with pytest.raises(Inconclusive, match=f"^{word}$"):
        Signal.of(run, "loss", minimum=3)
    assert len(Signal.of(run, "loss", minimum=1)) > 0


def test_what_single_ranks_logged_says_nothing_of_the_run() -> None:
    run = Context(run_of({"name": "run", "ranks": {"0": {"loss": {"level": 1}}}}))
    with pytest.raises(Inconclusive, match="loss: logged by single ranks only"):
        Signal.of(run, "loss")


def test_the_first_rows() -> None:
    assert early(2, 3).tolist() == [True, True, False]
    assert early(5, 2).tolist() == [True, True]


# --- the past -------------------------------------------------------------------------------------


@given(VALUES, st.data())
def test_no_row_is_judged_by_what_comes_after_it(values: FloatArray, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(values) - 1))
    changed = values.copy()
    changed[row + 1 :] = data.draw(
        arrays(np.float64, len(values) - row - 1, elements=st.floats(-1e3, 1e3))
    )
    one, two = loss_of(values).past(), loss_of(changed).past()
    for mask in ("times", "under"):
        before = getattr(one, mask)(2.0)[: row + 1]
        np.testing.assert_array_equal(before, getattr(two, mask)(2.0)[: row + 1])
    best, other = (loss_of(item).best_level(4).lost(0.5) for item in (values, changed))
    np.testing.assert_array_equal(best[: row + 1], other[: row + 1])


@given(LARGE, st.sampled_from([1.5, 2.0, 8.0]))
def test_times_means_the_same_on_either_scale(values: FloatArray, factor: float) -> None:
    """Up to the level: that of logarithms is the geometric mean of the two in the middle."""
    odd = np.concatenate([values[:5], values[-1:]])
    plain, log = loss_of(odd).past(), loss_of(odd).past(log=1e-9)
    near = np.isclose(odd, factor * plain.level) | np.isclose(odd, plain.level / factor)
    agree = (plain.times(factor) == log.times(factor)) | near
    agree &= (plain.under(1 / factor) == log.under(1 / factor)) | near
    np.testing.assert_allclose(log.level, plain.level)
    assert agree.all()


@given(VALUES, st.floats(0, 10), st.floats(0, 10), st.floats(0, 1))
def test_a_row_is_above_or_below_or_neither(
    values: FloatArray, sigmas: float, at_least: float, floor: float
) -> None:
    past = loss_of(values).past()
    above = past.above(sigmas=sigmas, at_least=at_least, floor=floor)
    below = past.below(sigmas=sigmas, at_least=at_least, floor=floor)
    assert not (above & below).any()
    assert not (above | below)[np.isnan(past.center)].any()
    assert (past.rise[above] > at_least).all()
    assert (past.rise[above] > sigmas * floor).all()
    mirrored = loss_of(-values).past()
    np.testing.assert_array_equal(
        below, mirrored.above(sigmas=sigmas, at_least=at_least, floor=floor)
    )


@given(LARGE, st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_unit_of_a_metric_does_not_matter(values: FloatArray, unit: float) -> None:
    one, two = loss_of(values).past(), loss_of(values * unit).past()
    np.testing.assert_array_equal(one.times(3), two.times(3))
    np.testing.assert_array_equal(one.under(0.25), two.under(0.25))
    np.testing.assert_array_equal(one.above(sigmas=4), two.above(sigmas=4))
    best, other = (loss_of(item).best_level(4).lost(0.5) for item in (values, values * unit))
    np.testing.assert_array_equal(best, other)


def test_rows_out_of_the_band_are_not_learnt_from() -> None:
    loss = loss_of(np.array([1.0] * 10 + [9.0] * 60))
    assert loss.past(above=2).times(5)[10:].all()
    assert not loss.past(window=16).times(5)[40:].any()
    assert not loss.past(above=2).times(5)[:10].any()


def test_the_whole_past_forgets_nothing() -> None:
    loss = loss_of(np.array([1.0] * 100 + [2.0] * 90))
    assert loss.past(window=WHOLE).level[-1] == 1
    assert loss.past(window=16).level[-1] == 2


def test_rows_left_out_do_not_make_the_level() -> None:
    loss = loss_of(np.array([1.0, 1, 1, 1, 1, 50, 50, 50, 50, 50, 50, 50, 1]))
    assert loss.past().level[-1] == 50
    assert loss.past(without=loss.values > 9).level[-1] == 1


# --- the best level -------------------------------------------------------------------------------


@given(VALUES)
def test_the_best_level_never_falls(values: FloatArray) -> None:
    best = loss_of(values).best_level(4)
    known = best.level[~np.isnan(best.level)]
    assert (np.diff(known) >= 0).all()
    assert not (best.lost(0.5) & best.gained(sigmas=0)).any() or (known < 0).any()


def test_a_share_of_the_best_level_is_lost_or_more_than_the_scatter_gained() -> None:
    lost = loss_of(np.array([0.5, 0.5, 0.8, 0.8, 0.8, 0.8, 0.3, 0.5])).best_level(4).lost(0.5)
    assert lost.tolist() == [False] * 6 + [True, False]
    best = loss_of(np.array([0.5] * 6 + [0.55, 0.9])).best_level(4)
    assert best.gained(sigmas=3, at_least=0.1).tolist() == [False] * 7 + [True]
    assert not best.gained(sigmas=5, at_least=0.1).any()
