"""Properties of the statistics that detectors rest on."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlprobe import stats
from rlprobe.stats import Episode
from rlprobe.values import BoolArray, FloatArray, Series

FINITE = st.floats(-1e6, 1e6, allow_nan=False)
KNOWN = st.one_of(FINITE, st.just(np.nan))
ANY = st.one_of(FINITE, st.sampled_from([np.nan, np.inf, -np.inf]))


def series_of(elements: st.SearchStrategy[float], least: int = 0) -> st.SearchStrategy[FloatArray]:
    return arrays(np.float64, st.integers(least, 120), elements=elements)


MASKS = arrays(np.bool_, st.integers(0, 120))


# --- baselines ------------------------------------------------------------------------------------


@given(series_of(ANY, 1), st.data(), st.sampled_from([4, 16, 256]))
def test_a_baseline_never_sees_the_future(
    values: FloatArray, data: st.DataObject, blocks: int
) -> None:
    row = data.draw(st.integers(0, len(values) - 1))
    changed = values.copy()
    changed[row:] = data.draw(arrays(np.float64, len(values) - row, elements=ANY))
    before = stats.past_baseline(values, above=3, below=3, blocks=blocks)
    after = stats.past_baseline(changed, above=3, below=3, blocks=blocks)
    np.testing.assert_array_equal(before.center[: row + 1], after.center[: row + 1])
    np.testing.assert_array_equal(before.robust_std[: row + 1], after.robust_std[: row + 1])


@given(series_of(ANY))
def test_non_finite_values_never_enter(values: FloatArray) -> None:
    baseline = stats.past_baseline(values, warmup=1)
    known = baseline.center[~np.isnan(baseline.center)]
    finite = values[np.isfinite(values)]
    assert np.isfinite(known).all()
    assert not len(known) or (finite.min() <= known.min() and known.max() <= finite.max())
    kept = np.where(np.isfinite(values), values, np.nan)
    np.testing.assert_array_equal(baseline.center, stats.past_baseline(kept, warmup=1).center)


@given(series_of(FINITE), st.floats(-1e3, 1e3), st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_a_baseline_moves_and_scales_with_the_series(
    values: FloatArray, shift: float, factor: float
) -> None:
    plain = stats.past_baseline(values)
    moved = stats.past_baseline(values * factor + shift)
    size = max(1.0, float(np.abs(values).max(initial=0)) * factor, abs(shift))
    np.testing.assert_allclose(moved.center, plain.center * factor + shift, atol=1e-9 * size)
    np.testing.assert_allclose(moved.robust_std, plain.robust_std * factor, atol=1e-9 * size)


def test_a_baseline_stands_still_during_an_excursion() -> None:
    values = np.concatenate([np.full(50, 1.0), np.full(400, 9.0)])
    baseline = stats.past_baseline(values, above=2)
    assert baseline.center[-1] == 1.0
    assert stats.past_baseline(values).center[-1] == 9.0


def test_a_baseline_follows_slow_growth() -> None:
    values = np.linspace(0, 10, 1000)
    baseline = stats.past_baseline(values, above=2)
    assert baseline.center[-1] > 8


def test_a_baseline_needs_its_warmup() -> None:
    baseline = stats.past_baseline(np.arange(10.0), warmup=4)
    assert np.isnan(baseline.center[:4]).all()
    assert baseline.center[4] == 1.5


def test_an_empty_series_has_an_empty_baseline() -> None:
    assert len(stats.past_baseline(np.empty(0)).center) == 0


# --- values ---------------------------------------------------------------------------------------


@given(series_of(ANY), st.integers(1, 20))
def test_rolling_mean_is_the_mean_of_the_last_finite_values(values: FloatArray, width: int) -> None:
    got = stats.rolling_mean(values, width)
    for row in range(len(values)):
        last = values[max(0, row + 1 - width) : row + 1]
        last = last[np.isfinite(last)]
        wanted = last.mean() if len(last) else np.nan
        np.testing.assert_allclose(got[row], wanted, atol=1e-6)


@given(series_of(ANY))
def test_rolling_max_never_falls(values: FloatArray) -> None:
    highest = stats.rolling_max(values)
    known = highest[~np.isnan(highest)]
    assert (np.diff(known) >= 0).all()
    assert np.isfinite(known).all()


@given(series_of(ANY))
def test_medians_pass_over_what_is_not_finite(values: FloatArray) -> None:
    finite = values[np.isfinite(values)]
    assert np.isnan(stats.median(values)) if not len(finite) else np.isfinite(stats.median(values))
    assert np.isnan(stats.robust_std(values)) or stats.robust_std(values) >= 0
    assert np.isnan(stats.quantile(values, 0.9)) or stats.quantile(values, 0.9) <= finite.max()


@given(arrays(np.float64, st.tuples(st.integers(0, 20), st.integers(1, 9)), elements=KNOWN))
def test_row_medians_are_the_median_of_each_row(values: FloatArray) -> None:
    expected = np.array([stats.median(row) for row in values])
    np.testing.assert_allclose(stats.row_medians(values), expected, rtol=1e-12)


def test_logs_have_a_floor() -> None:
    logs = stats.logs(np.array([-1.0, 0.0, np.e, np.inf, np.nan]), 1.0)
    np.testing.assert_array_equal(logs, [0.0, 0.0, 1.0, np.nan, np.nan])


def test_values_at_steps() -> None:
    series = Series("x", np.array([2, 4, 9], dtype=np.int64), np.array([1.0, np.inf, 3.0]))
    steps = np.array([1, 2, 4, 5, 9, 12], dtype=np.int64)
    np.testing.assert_array_equal(
        stats.at_steps(series, steps), [np.nan, 1.0, np.inf, np.nan, 3.0, np.nan]
    )
    assert np.isnan(stats.at_steps(None, steps)).all()


# --- episodes -------------------------------------------------------------------------------------


def disjoint_and_ordered(found: tuple[Episode, ...], mask: BoolArray) -> bool:
    return all(
        episode.start <= episode.end
        and mask[episode.start]
        and mask[episode.end]
        and len(episode) == len(mask[episode.rows])
        for episode in found
    ) and all(one.end < two.start for one, two in itertools.pairwise(found))


@given(MASKS, st.integers(0, 5), st.integers(1, 4))
def test_episodes_are_disjoint_and_ordered(mask: BoolArray, gap: int, least: int) -> None:
    found = stats.episodes(mask, gap=gap, least=least)
    assert disjoint_and_ordered(found, mask)
    assert all(int(mask[episode.rows].sum()) >= least for episode in found)
    assert all(two.start - one.end > gap + 1 for one, two in itertools.pairwise(found))
    assert all(episode.recovered == (episode.end < len(mask) - 1) for episode in found)


@given(MASKS, st.integers(0, 5))
def test_episodes_hold_every_bad_row(mask: BoolArray, gap: int) -> None:
    covered = np.zeros(len(mask), dtype=np.bool_)
    for episode in stats.episodes(mask, gap=gap):
        covered[episode.rows] = True
    assert covered[mask].all()


@given(MASKS, st.integers(1, 12), st.sampled_from([0.5, 0.8, 1.0]), st.integers(0, 8))
def test_sustained_episodes_are_disjoint_and_dense(
    mask: BoolArray, width: int, share: float, gap: int
) -> None:
    found = stats.persistent(mask, width=width, share=share, gap=gap)
    assert disjoint_and_ordered(found, mask)
    if not gap and share == 1.0:
        assert all(mask[episode.rows].all() for episode in found)
        assert all(len(episode) >= min(width, len(mask)) for episode in found)


def test_noise_is_not_sustained() -> None:
    mask = np.zeros(100, dtype=np.bool_)
    mask[[10, 11, 40, 41, 42]] = True
    assert stats.persistent(mask, width=5, share=0.8) == ()
    mask[60:] = True
    mask[[63, 80]] = False
    assert stats.persistent(mask, width=5, share=0.8) == (Episode(60, 99, recovered=False),)


@given(MASKS, st.data(), st.integers(0, 3))
def test_walking_back_stays_outside(mask: BoolArray, data: st.DataObject, slack: int) -> None:
    if not len(mask):
        return
    start = data.draw(st.integers(0, len(mask) - 1))
    first = stats.extend_back(mask, start, slack=slack)
    assert 0 <= first <= start
    assert first == start or mask[first]
    inside = np.flatnonzero(~mask[first:start])
    assert not (np.diff(inside) == 1).any() or slack > 1


def test_walking_back_over_a_long_stretch() -> None:
    outside = np.ones(10_000, dtype=np.bool_)
    outside[:100] = False
    assert stats.extend_back(outside, 9_999) == 100


def test_change_point() -> None:
    assert stats.change_point(np.concatenate([np.zeros(30), np.full(20, 5.0)])) == 30
    assert stats.change_point(np.array([1.0, np.nan, 2.0, np.inf])) is None


@given(series_of(FINITE, 8))
def test_change_point_is_inside(values: FloatArray) -> None:
    point = stats.change_point(values)
    assert point is not None
    assert 0 < point < len(values)


def test_drift_onset_is_where_the_climb_began() -> None:
    z = np.concatenate([np.zeros(40), [2.0, 1.5, 2.5, 3.0, 4.0]])
    assert stats.drift_onset(z, 44) == 40
    assert stats.drift_onset(np.zeros(10), 9) == 9


# --- cost -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_block_medians_agree_with_plain_ones(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=40)
    got = stats.past_baseline(values, warmup=1, window=100, blocks=4)
    assert got.center[10] == pytest.approx(np.median(values[:10]))


def test_a_million_rows_cost_a_fraction_of_a_second() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000)
    started = time.perf_counter()
    baseline = stats.past_baseline(values, above=3)
    found = stats.persistent(values > baseline.center + 2, width=10, share=0.8)
    assert not found
    assert time.perf_counter() - started < 2  # a loop over the rows would take ten times that


def test_a_quantile_of_the_past_never_looks_ahead() -> None:
    values = np.arange(200.0)
    quantiles = stats.past_quantile(values, 0.9)
    assert np.isnan(quantiles[0])
    assert (quantiles[4:] < values[4:]).all()
    assert len(stats.past_quantile(values[:0], 0.9)) == 0
