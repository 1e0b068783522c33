"""Which metric tells the share of flat groups, and when rewards are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlprobe import Recorder
from rlprobe.rule import equal, flat_shares
from rlprobe.scan.context import Context
from rlprobe.store.recording import Recording


@pytest.mark.parametrize(
    ("spread", "reward", "verdict"),
    [(0, 0.5, 1), (1e-8, 0.5, 1), (1e-5, 0.5, 0), (1e-4, 1000.0, 1), (1e-8, np.nan, 1)],
)
def test_rewards_are_equal_up_to_a_millionth(spread: float, reward: float, verdict: int) -> None:
    assert equal(spread, reward) == verdict
    assert equal(spread, -reward) == verdict


def test_nothing_is_said_of_an_unknown_spread() -> None:
    assert np.isnan(equal(np.array([np.nan, np.inf]), 1.0)).all()


def run_of(path: Path, **columns: list[float]) -> Context:
    with Recorder(path) as recorder:
        for step, row in enumerate(zip(*columns.values(), strict=True)):
            recorder.step(step, **dict(zip(columns, row, strict=True)))
    return Context(Recording(path))


def test_the_share_itself_comes_before_what_tells_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, zero_variance_group_fraction=[0.25, 1.0], reward_std=[0.0, 0.5])
    told = [(signal.metric, share.tolist()) for signal, share in flat_shares(run)]
    assert told == [("zero_variance_group_fraction", [0.25, 1]), ("reward_std", [1, 0])]


def test_groups_that_pass_are_as_flat_as_groups_that_fail(tmp_path: Path) -> None:
    run = run_of(tmp_path, group_all_pass_fraction=[0.25, 0.5], group_all_fail_fraction=[0.5, 0.5])
    assert [share.tolist() for _, share in flat_shares(run)] == [[0.75, 1]]


def test_steps_that_tell_nothing_are_left_out(tmp_path: Path) -> None:
    nan = float("nan")
    run = run_of(tmp_path, reward_min=[0.0, nan, 0.0], reward_max=[0.0, 1.0, 1.0])
    ((signal, share),) = flat_shares(run)
    assert (signal.steps.tolist(), share.tolist()) == ([0, 2], [1, 0])
    assert not list(flat_shares(run_of(tmp_path / "b", reward_max=[1.0])))


def test_groups_that_were_dropped_for_being_flat_count(tmp_path: Path) -> None:
    kept = run_of(
        tmp_path / "a",
        zero_variance_group_fraction=[0.0, 0.2],
        filtered_group_fraction=[0.5, 0.5],
    )
    assert next(flat_shares(kept))[1] == pytest.approx([0.5, 0.6])
    among_all = run_of(
        tmp_path / "b",
        zero_variance_group_fraction=[0.5, 0.7],
        filtered_group_fraction=[0.5, 0.6],
    )
    assert next(flat_shares(among_all))[1] == pytest.approx([0.5, 0.7])
    alone = run_of(tmp_path / "c", filtered_group_fraction=[0.5, 0.6])
    assert next(flat_shares(alone))[1] == pytest.approx([0.5, 0.6])
