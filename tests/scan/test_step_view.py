"""What `show` knows about a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from rlprobe.errors import StepNotFoundError, UsageError
from rlprobe.scan.step_view import StepView, view
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Event, Rollout


def frame(
    columns: dict[str, Sequence[float | None]],
    steps: Sequence[int] | None = None,
    attempts: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
) -> Frame:
    size = len(next(iter(columns.values())))
    data = {
        name: (
            np.array([math.nan if value is None else value for value in values]),
            np.array([value is not None for value in values], dtype=np.bool_),
        )
        for name, values in columns.items()
    }
    return frame_of(
        np.array(range(1, size + 1) if steps is None else steps, dtype=np.int64),
        data,
        attempt=None if attempts is None else np.array(attempts, dtype=np.int64),
        rank=None if ranks is None else np.array(ranks, dtype=np.int64),
    )


def run_of(steps: Frame, **parts: object) -> TableRun:
    return TableRun(RunInfo("a.jsonl", "a", "jsonl"), steps, **parts)  # type: ignore[arg-type]


def metric(seen: StepView, name: str) -> float:
    return next(item.off for item in seen.metrics if item.name == name)


def test_metrics_are_measured_against_their_own_past() -> None:
    calm = [1.0, 1.1, 0.9] * 20
    steps = frame({"grad_norm": [*calm, 168.0], "reward_mean": [*([0.58] * 60), 0.1]})
    seen = view(run_of(steps), 61)
    assert metric(seen, "grad_norm") == pytest.approx(168.0)
    assert metric(seen, "reward_mean") == pytest.approx(-0.48)
    assert all(item.unusual for item in seen.metrics)
    assert [item.past for item in seen.metrics] == [50, 50]


def test_rounding_noise_is_not_unusual() -> None:
    noise = [1e-8 * (step % 5 - 2) for step in range(60)]
    seen = view(run_of(frame({"advantage_mean": [*noise, 5e-7]})), 61)
    assert not seen.metrics[0].unusual


def test_the_past_holds_only_what_came_before() -> None:
    seen = view(run_of(frame({"loss": [1.0] * 10 + [50.0] * 10})), 10)
    assert metric(seen, "loss") == 0
    assert not seen.metrics[0].unusual


def test_non_finite_values_come_first() -> None:
    steps = frame({"a": [1.0] * 20 + [1e9], "loss": [1.0] * 20 + [math.nan], "z": [1.0] * 21})
    seen = view(run_of(steps), 21)
    assert [item.name for item in seen.metrics] == ["loss", "a", "z"]


def test_a_metric_that_was_not_logged_at_the_step_is_left_out() -> None:
    seen = view(run_of(frame({"loss": [1.0, 1.0, 1.0], "eval/loss": [1.0, None, None]})), 3)
    assert [item.name for item in seen.metrics] == ["loss"]


def test_without_a_past_nothing_is_unusual() -> None:
    seen = view(run_of(frame({"loss": [5.0]})), 1)
    assert (seen.metrics[0].past, seen.metrics[0].unusual) == (0, False)
    assert math.isnan(seen.metrics[0].median)


def test_the_latest_attempt_is_shown_and_the_others_named() -> None:
    steps = frame(
        {"loss": [1.0, 2.0, 3.0, 20.0, 30.0]}, steps=[1, 2, 3, 2, 3], attempts=[1, 1, 1, 2, 2]
    )
    seen = view(run_of(steps), 3)
    assert (seen.attempt, seen.attempts) == (2, (1, 2))
    assert seen.metrics[0].recent == (1.0, 20.0, 30.0)
    earlier = view(run_of(steps), 3, attempt=1)
    assert earlier.metrics[0].recent == (1.0, 2.0, 3.0)


def test_a_missing_step_names_its_neighbours() -> None:
    run = run_of(frame({"loss": [1.0, 1.0, 1.0]}, steps=[10, 20, 30]))
    with pytest.raises(StepNotFoundError, match="25") as caught:
        view(run, 25)
    assert "20 and 30" in caught.value.hint
    with pytest.raises(StepNotFoundError) as caught:
        view(run, 99)
    assert "30 (logged: 10 to 30)" in caught.value.hint
    with pytest.raises(StepNotFoundError, match="attempt 2"):
        view(run, 10, attempt=2)


def test_a_run_without_steps_says_so() -> None:
    with pytest.raises(StepNotFoundError) as caught:
        view(run_of(frame({"loss": []})), 1)
    assert "No step" in caught.value.hint


def _ranks(values: Sequence[float]) -> Frame:
    size = len(values)
    return frame({"loss": values}, steps=[1] * size, ranks=range(size))


def test_a_rank_that_sticks_out_is_named() -> None:
    steps = frame({"loss": [2.6]})
    seen = view(run_of(steps, ranks=_ranks([2.0 + 0.01 * (i % 5) for i in range(63)] + [40.0])), 1)
    assert [(item.rank, item.value) for item in seen.ranks.outliers] == [(63, 40.0)]
    assert seen.ranks.reporting == 64


def test_no_rank_sticks_out_among_a_thousand() -> None:
    values = np.random.default_rng(7).normal(2.0, 0.1, 1000).tolist()
    seen = view(run_of(frame({"loss": [2.0]}), ranks=_ranks(values)), 1)
    assert not seen.ranks.outliers


def test_a_rank_with_nan_sticks_out_even_among_two() -> None:
    seen = view(run_of(frame({"loss": [2.0]}), ranks=_ranks([2.0, math.nan])), 1)
    assert [item.rank for item in seen.ranks.outliers] == [1]


def test_one_rank_against_its_own_past() -> None:
    ranks = frame({"loss": [1.0, 5.0, 1.0, 6.0]}, steps=[1, 1, 2, 2], ranks=[0, 1, 0, 1])
    seen = view(run_of(frame({"loss": [3.0, 3.5]}), ranks=ranks), 2, rank=1)
    assert [item.recent for item in seen.ranks.own] == [(5.0, 6.0)]
    with pytest.raises(UsageError) as caught:
        view(run_of(frame({"loss": [3.0, 3.5]}), ranks=ranks), 2, rank=7)
    assert "0, 1" in caught.value.hint


def rollouts(group: str, rewards: Sequence[float], advantages: Sequence[float]) -> list[Rollout]:
    pairs = enumerate(zip(rewards, advantages, strict=True))
    return [
        Rollout(1, group, f"{group}-{index}", reward=reward, advantage=advantage)
        for index, (reward, advantage) in pairs
    ]


def test_noise_comes_before_groups_that_differ() -> None:
    found = [
        *rollouts("flat", [0.1, 0.1], [0.0, 0.0]),
        *rollouts("good", [0.1, 1.1], [-0.7, 0.7]),
        *rollouts("noise", [0.1, 0.1 + 8e-9], [-18.4, 24.7]),
    ]
    seen = view(run_of(frame({"loss": [1.0]}), rollouts=found), 1)
    assert [group.group_id for group in seen.groups] == ["noise", "good", "flat"]
    assert [(group.flat, group.noise) for group in seen.groups] == [
        (True, True),
        (False, False),
        (True, False),
    ]
    assert seen.groups[0].rewards == ((0.1, 2),)
    assert seen.groups[0].rollouts[0].advantage == 24.7


def test_a_step_with_rollouts_but_no_metrics_can_be_shown() -> None:
    run = run_of(frame({"loss": []}), rollouts=rollouts("g", [1.0, math.nan], [0.0, math.nan]))
    seen = view(run, 1)
    assert seen.metrics == ()
    assert not seen.groups[0].flat


def test_nearby_events_hold_the_checkpoint_before() -> None:
    events = [
        Event("checkpoint", 100),
        Event("run_started", 150),
        *(Event("lr_changed", step) for step in range(190, 210)),
        Event("nan_detected", 201, rank=0),
        Event("nan_detected", 201, rank=1),
    ]
    seen = view(run_of(frame({"loss": [1.0] * 200}), events=events), 200)
    kinds = [event.kind for event in seen.events]
    assert kinds[0] == "checkpoint"
    assert kinds.count("nan_detected") == 1
    assert "run_started" not in kinds
