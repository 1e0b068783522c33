"""One metric of all ranks: the grid, what most ranks have in common, what each used to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlprobe import stats
from rlprobe.errors import Inconclusive
from rlprobe.rule import Judged, RankGrid, all_steps
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray, IntArray

LOSS: dict[int, list[float | str]] = {0: [1.0, 2.0, 3.0], 1: [1.0, "-", 5.0], 3: ["-", 2.0, 9.0]}
VALUES = arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 9)),
    elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan)),
)


def context_of(ranks: dict[int, list[float | str]], metric: str = "loss") -> Context:
    by_rank = {str(rank): {metric: values} for rank, values in ranks.items()}
    return Context(run_of({"name": "run", "rows": 3, "ranks": by_rank}))


def grid_of(values: FloatArray) -> RankGrid:
    rows, ranks = (np.arange(size, dtype=np.int64) for size in values.shape)
    return RankGrid(Context(run_of({"name": "run"})), "loss", rows, ranks, values)


# --- the grid -------------------------------------------------------------------------------------


def test_a_grid_has_a_row_per_step_and_a_column_per_rank() -> None:
    run = context_of(LOSS)
    (grid,) = RankGrid.each(run, ["entropy", "loss"], lacking="")
    assert (grid.metric, grid.ranks.tolist(), grid.steps.tolist()) == ("loss", [0, 1, 3], [1, 2, 3])
    np.testing.assert_array_equal(grid.values, [[1, 1, np.nan], [2, np.nan, 2], [3, 5, 9]])


def test_one_rank_alone_is_no_grid() -> None:
    with pytest.raises(Inconclusive, match="no losses of single ranks"):
        list(
            RankGrid.each(
                context_of({0: [1.0, 2.0, 3.0]}), ["loss"], lacking="no losses of single ranks"
            )
        )


def test_a_stretch_of_a_rank_tells_whose_it_is() -> None:
    (grid,) = RankGrid.each(context_of(LOSS), ["loss"], lacking="")
    own = grid.of_rank(2)
    (stretch,) = Judged(own, own.values > 5).runs()
    assert stretch.at_onset(2.0).rank == 3
    assert (stretch.first, stretch.onset, stretch.recovered) == (3, 9.0, False)


def test_other_values_stand_at_the_same_steps_and_ranks() -> None:
    grid = grid_of(np.array([[1.0, np.e]]))
    logs = grid.with_values(np.log(grid.values))
    assert logs.values.tolist() == [[0, 1]]
    assert (logs.steps is grid.steps, logs.ranks is grid.ranks) == (True, True)


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=5))
def test_all_steps_are_the_union_in_order(parts: list[set[int]]) -> None:
    arrays_: list[IntArray] = [np.array(sorted(part), dtype=np.int64) for part in parts]
    assert all_steps(arrays_).tolist() == sorted(set[int]().union(*parts))


# --- what a rank is compared with -----------------------------------------------------------------


@given(VALUES)
def test_the_majority_is_the_median_of_those_that_report(values: FloatArray) -> None:
    center, spread, usual = grid_of(values).majority()
    assert center.shape == spread.shape == usual.shape == (len(values), 1)
    for row, here, around in zip(values, center[:, 0], spread[:, 0], strict=True):
        finite = row[np.isfinite(row)]
        np.testing.assert_allclose(here, stats.median(finite), rtol=1e-12)
        np.testing.assert_allclose(around, stats.robust_std(finite), rtol=1e-9, atol=1e-9)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_ranks_does_not_matter(values: FloatArray, random: object) -> None:
    order = list(range(values.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    for one, two in zip(
        grid_of(values).majority(), grid_of(values[:, order]).majority(), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


@given(arrays(np.float64, (12, 5), elements=st.floats(-1e3, 1e3)), st.floats(-1e6, 1e6))
def test_one_rank_of_five_does_not_carry_the_majority_away(values: FloatArray, off: float) -> None:
    changed = values.copy()
    changed[:, 2] = off
    center = grid_of(changed).majority()[0][:, 0]
    others = np.delete(values, 2, axis=1)
    assert (others.min(axis=1) <= center).all()
    assert (center <= others.max(axis=1)).all()


def test_the_usual_spread_is_that_of_the_steps_before() -> None:
    values = np.array([[0.0, 1, 2, 3, 4]] * 6 + [[0.0, 100, 200, 300, 400]])
    _, spread, usual = grid_of(values).majority()
    assert np.isnan(usual[:3]).all()
    assert spread[-1] == 100 * spread[0]
    assert usual[-1] == spread[0]


def test_a_rank_is_compared_with_its_own_past_alone() -> None:
    values = np.stack([np.full(20, 1.0), np.arange(20.0)], axis=1)
    level, std = grid_of(values).own_pasts()
    assert np.isnan(level[:8]).all()
    assert (level[8:, 0] == 1).all()
    assert (std[8:, 0] == 0).all()
    assert level[-1, 1] == np.median(np.arange(19))


def test_a_rank_that_is_far_off_is_not_learnt_from() -> None:
    values = np.concatenate([np.full(10, 1.0), np.full(12, 5.0)])[:, None]
    assert grid_of(values).own_pasts(above=2)[0][-1, 0] == 1
    assert grid_of(values).own_pasts()[0][-1, 0] == 5
