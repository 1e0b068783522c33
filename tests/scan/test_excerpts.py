"""What reporters draw of a finding: small, whatever the run, and drawn as the whole series is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.report.sparkline import Onset, around
from rlprobe.scan import excerpts
from rlprobe.scan.context import Context
from rlprobe.scan.excerpts import CELLS, excerpt, with_excerpts
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Series

BYTES = 16_384  # of one excerpt: a report on a thousand findings stays in 16 MB


def series(values: Sequence[float], every: int = 1) -> Series:
    steps = np.arange(1, len(values) + 1, dtype=np.int64) * every
    return Series("grad_norm", steps, np.array(values, dtype=np.float64))


def finding(
    *metrics: str, first: int = 3, ranks: tuple[int, ...] = (), evidence: str = "grad_norm"
) -> Finding:
    return Finding(
        detector="X",
        severity=Severity.WARNING,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=first,
        state="recovered",
        summary="",
        evidence=(Evidence(evidence, first, 1.0),),
        remedies=(),
        metrics=metrics,
        ranks=ranks,
    )


def frame(columns: dict[str, list[float]], rank: list[int] | None = None) -> Frame:
    size = len(next(iter(columns.values())))
    every = np.ones(size, dtype=np.bool_)
    steps = np.arange(1, size + 1) if rank is None else np.arange(size) // len(set(rank)) + 1
    return frame_of(
        steps,
        {name: (np.array(values), every) for name, values in columns.items()},
        rank=None if rank is None else np.array(rank),
    )


def test_a_short_episode_holds_its_surroundings_value_by_value() -> None:
    picture = excerpt(series([float(step) for step in range(1, 101)], every=10), 500, 520)
    assert picture is not None
    assert picture.steps[picture.onset] == 500
    assert picture.values[picture.onset] == 50.0
    assert np.array_equal(picture.rows, np.arange(len(picture)))
    assert picture.before == 39.0
    assert picture.steps[0] == 280
    assert picture.steps[-1] == 600


def test_there_is_no_picture_of_what_was_not_logged_any_more() -> None:
    assert excerpt(series([1.0] * 10), 11, 20) is None


def test_a_long_episode_stays_small_and_keeps_its_spike() -> None:
    values = [1.0] * 200_000 + [2.0] * 200_000
    values[300_000] = 500.0
    values[350_000] = math.nan
    picture = excerpt(series(values), 200_001, 400_000)
    assert picture is not None
    assert sum(part.nbytes for part in (picture.steps, picture.values, picture.rows)) < BYTES
    assert 500.0 in picture.values
    assert np.isnan(picture.values).any()
    assert (picture.steps[0], picture.steps[-1]) == (1, 400_000)
    assert picture.before == 1.0


@pytest.mark.parametrize("length", range(300, 320))
def test_what_comes_right_after_a_long_episode_is_not_its_worst(length: int) -> None:
    picture = excerpt(series([1.0] * 400 + [2.0] * length + [900.0] * 200), 401, 400 + length)
    assert picture is not None
    assert len(picture) < 512
    assert around(picture, 400 + length).worst == 2.0


def test_a_picture_holds_on_to_no_column() -> None:
    whole = series([1.0] * 1000)
    picture = excerpt(whole, 500, 501)
    assert picture is not None
    assert not np.shares_memory(picture.values, whole.values)
    assert picture.steps.base is None


NUMBERS = st.floats(width=32) | st.just(math.nan) | st.just(1.0)


@given(
    st.lists(NUMBERS, min_size=1, max_size=150),
    st.integers(1, 160),
    st.integers(-2, 160),
    st.sampled_from(CELLS),
)
def test_a_squeezed_picture_is_drawn_as_the_whole(
    values: list[float], first: int, length: int, cells: int
) -> None:
    """Holding every row, or stretches of them: no width can tell the one from the other."""
    whole = excerpt(series(values), first, first + length)
    with pytest.MonkeyPatch.context() as patch:
        # a view of more rows than any drawing of a short episode takes
        patch.setattr(excerpts, "_WHOLE", 60)
        squeezed = excerpt(series(values), first, first + length)
    if whole is None or squeezed is None:
        assert whole is squeezed
        return
    drawn = [repr(around(picture, first + length, cells)) for picture in (whole, squeezed)]
    assert drawn[0] == drawn[1]


def test_a_drawing_says_which_steps_are_in_view() -> None:
    picture = excerpt(series([1.0] * 40 + [9.0] * 4 + [1.0] * 40, every=5), 205, 220)
    assert picture is not None
    drawn = around(picture, 220, 20)
    assert drawn == Onset("▁" * 13 + "█" * 4 + "▁" * 3, 1.0, 9.0, 13, 140, 235)


def test_the_picture_is_of_the_first_metric_that_was_logged() -> None:
    run = TableRun(RunInfo("x", "x", "test"), frame({"loss": [1.0] * 9, "grad_norm": [2.0] * 9}))
    asked = [finding("absent", "loss"), finding("absent"), finding("absent", evidence="absent")]
    metrics = [
        None if item.excerpt is None else item.excerpt.metric
        for item in with_excerpts(asked, Context(run))
    ]
    assert metrics == ["loss", "grad_norm", None]


def test_the_picture_of_a_rank_is_its_own() -> None:
    ranks = frame({"loss": [1.0, 7.0] * 9}, rank=[0, 1] * 9)
    run = TableRun(RunInfo("x", "x", "test"), frame({"loss": [4.0] * 9}), ranks=ranks)
    (picture,) = (
        item.excerpt for item in with_excerpts([finding("loss", ranks=(1,))], Context(run))
    )
    assert picture is not None
    assert set(picture.values.tolist()) == {7.0}


def test_a_column_of_ranks_is_read_once_for_all_of_them() -> None:
    reads: list[str] = []
    ranks = frame({"loss": [1.0, 7.0] * 9}, rank=[0, 1] * 9)

    def load(name: str) -> object:
        reads.append(name)
        return ranks.load(name)

    counted = replace(ranks, load=load)  # type: ignore[arg-type]
    run = TableRun(RunInfo("x", "x", "test"), frame({"loss": [4.0] * 9}), ranks=counted)
    with_excerpts([finding("loss", ranks=(number % 2,)) for number in range(20)], Context(run))
    assert reads == ["loss"]


def test_a_finding_knows_whether_its_first_step_can_be_shown() -> None:
    run = TableRun(RunInfo("x", "x", "test"), frame({"loss": [1.0] * 9}))
    first, second = with_excerpts([finding(first=9), finding(first=10)], Context(run))
    assert (first.onset_logged, second.onset_logged) == (True, False)


def test_a_picture_makes_no_difference_between_findings() -> None:
    run = TableRun(RunInfo("x", "x", "test"), frame({"grad_norm": [math.nan] * 9}))
    bare = finding("grad_norm")
    (drawn,) = with_excerpts([bare], Context(run))
    assert drawn == bare
    assert hash(drawn) == hash(bare)
