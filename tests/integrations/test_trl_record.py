"""An unchanged GRPO script under `rlprobe record`: everything it logs is there, and unharmed."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

import pytest

from rlprobe import naming
from rlprobe.store.recording import Recording
from rlprobe.values import Series

Training = Any
Train = Callable[..., Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _differences(recording: Recording, history: list[dict[str, Any]]) -> list[str]:
    """Where the recording says something else than the Trainer's own log."""
    names = naming.every()["trl"]
    columns: dict[str, Series | None] = {}
    found = []
    for row in history:
        for key, value in row.items():
            if key == "step" or value is None or value == names.naming(key).sentinel:
                continue
            name = names.canonical(key) or key
            series = columns.setdefault(name, recording.steps.series(name))
            at = {} if series is None else dict(zip(series.steps, series.values, strict=True))
            if row["step"] not in at or not _same(float(at[row["step"]]), float(value)):
                found.append(f"step {row['step']}: {key} is {value}, not {at.get(row['step'])}")
    return found


# --- an unharmed run -----------------------------------------------------------------------------


def test_every_logged_scalar_of_every_step(healthy: Training) -> None:
    assert healthy.code == 0, healthy.stderr.decode()
    history = healthy.log_history()
    assert len(history) == 200
    assert _differences(healthy.recording, history) == []
    assert healthy.recording.steps.step.tolist() == list(range(1, 201))


def test_the_ranks_own_scalars(healthy: Training) -> None:
    ranks = healthy.recording.ranks
    assert ranks.step.tolist() == list(range(1, 201))
    for row in healthy.log_history():
        index = row["step"] - 1
        for name, key in (("loss", "loss"), ("reward_mean", "reward"), ("grad_norm", "grad_norm")):
            values, valid = ranks.load(name)
            assert valid[index]
            assert values[index] == pytest.approx(row[key], rel=1e-5, abs=1e-7)
    for name in ("step_time", "param_norm", "completion_length_mean", "lr"):
        assert ranks.load(name)[1].all()


def test_all_groups_of_all_steps(healthy: Training) -> None:
    recording = healthy.recording
    assert recording.sample_steps() == tuple(range(1, 201))
    history = {row["step"]: row for row in healthy.log_history()}
    for step in (1, 77, 200):
        rollouts = recording.rollouts(step)
        groups = {rollout.group_id for rollout in rollouts}
        assert len(rollouts) == 8
        assert len(groups) == 2
        for group in groups:
            members = [rollout for rollout in rollouts if rollout.group_id == group]
            assert len({rollout.prompt for rollout in members}) == 1
            assert sum(rollout.advantage or 0.0 for rollout in members) == pytest.approx(
                0, abs=1e-3
            )
        rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
        assert math.fsum(rewards) / 8 == pytest.approx(history[step]["reward"], rel=1e-5)
        lengths = [rollout.completion_length or 0 for rollout in rollouts]
        assert sum(lengths) / 8 == history[step]["completions/mean_length"]
        cut = sum(bool(rollout.truncated) for rollout in rollouts) / 8
        assert cut == history[step]["completions/clipped_ratio"]
        for rollout in rollouts:
            silent = rollout.prompt == "3+3="  # there the function returns None
            assert set(rollout.reward_components) == {"digits"} | (set() if silent else {"form"})


def test_checkpoints_and_a_clean_end(healthy: Training) -> None:
    found = healthy.events("checkpoint")
    assert [event.step for event in found] == [50, 100, 150, 200]
    for event in found:
        assert event.data["path"] == str(healthy.out / f"checkpoint-{event.step}")
        assert {"model", "optimizer", "scheduler", "rng", "trainer_state"} <= set(event.data["has"])
        assert event.data["lacks"] == []
    (attempt,) = healthy.recording.info.attempts
    assert attempt.ended == "completed"
    assert [event.rank for event in healthy.recording.events if event.kind == "run_ended"]
    for kind in ("nan_detected", "crash", "halted", "lr_changed", "probe_disabled", "resumed"):
        assert healthy.events(kind) == [], kind
    assert healthy.recording.info.health == ""


def test_what_the_run_is(healthy: Training) -> None:
    info = healthy.recording.info
    assert (info.framework, info.algorithm, info.world_size) == ("trl", "GRPO", 1)
    assert info.model == str(healthy.out / "model")
    assert info.settings["beta"] == 0.04
    assert info.settings["num_generations"] == 4
    assert info.settings["max_completion_length"] == 12
    assert info.settings["max_steps"] == 200
    assert info.settings["reward_funcs"] == ["digits", "form"]


def test_training_is_not_changed(plain: Training, healthy: Training) -> None:
    """Same weights and same random states, bit for bit; same output but for times."""
    assert plain.state() == healthy.state()
    ours = [line for line in healthy.stderr.splitlines() if line.startswith(b"rlprobe:")]
    counted = "200 rows from the Trainer, 200 steps with rollouts"
    assert ours == [f"rlprobe: {counted}; recorded in {healthy.run_dir.name}".encode()]
    assert healthy.stdout.count(b"\n") == plain.stdout.count(b"\n")
    assert _losses(healthy.stdout) == _losses(plain.stdout)


def _losses(stdout: bytes) -> list[bytes]:
    return [line.split(b",")[0] for line in stdout.splitlines() if b"'loss'" in line]


# --- harm ----------------------------------------------------------------------------------------


def test_a_weight_that_turns_nan(nan_weight: Training) -> None:
    assert nan_weight.code == 1
    (nan,) = nan_weight.events("nan_detected")
    assert nan.step == 150
    assert nan.data["source"] == "weight"
    assert nan.data["nan_count"] == 1
    assert nan.data["names"] == ["lm_head.weight"]
    (crash,) = nan_weight.events("crash")
    assert crash.data["kind"] == "nan_probabilities"
    assert crash.step == 150
    (outside,) = nan_weight.events("crash", rank=-1)
    assert outside.data["exit_code"] == 1
    assert outside.data["kind"] == "nan_probabilities"
    assert nan_weight.recording.info.attempts[0].ended == "crashed"
    assert nan_weight.recording.steps.step.tolist() == list(range(1, 151))
    assert nan_weight.recording.sample_steps() == tuple(range(1, 151))


def test_gradients_that_overflow(grad_overflow: Training) -> None:
    assert grad_overflow.code == 1
    gradient, weight = grad_overflow.events("nan_detected")
    assert (gradient.step, gradient.data["source"]) == (150, "gradient")
    assert gradient.data["inf_count"] > 0
    assert gradient.data["names"] == ["lm_head.weight"]
    assert (weight.step, weight.data["source"]) == (150, "weight")
    inf_count = grad_overflow.recording.steps.series("inf_count")
    assert inf_count is not None
    assert inf_count.steps.tolist() == [150]
    assert inf_count.values.tolist() == [gradient.data["inf_count"]]


def test_a_verifier_that_dies(dead_verifier: Training) -> None:
    assert dead_verifier.code == 0
    flat = dead_verifier.recording.steps.series("zero_variance_group_fraction")
    assert flat is not None
    assert flat.values[19:].tolist() == [1.0] * 21
    rewards = {round(r.reward or 0.0, 6) for r in dead_verifier.recording.rollouts(30)}
    assert rewards <= {0.0, 0.1}


def test_resuming_is_a_second_attempt(nan_weight: Training, resumed: Training) -> None:
    assert resumed.code == 0, resumed.stderr.decode()
    recording = resumed.recording
    first, second = recording.info.attempts
    assert (first.ended, first.last_step) == ("crashed", 150)
    assert (second.ended, second.first_step, second.last_step) == ("completed", 101, 200)
    (event,) = resumed.events("resumed", attempt=2)
    assert event.step == 100
    assert event.data["path"] == str(resumed.out / "checkpoint-100")
    before, after = nan_weight.recording.steps, recording.steps
    earlier = after.attempt == 1
    assert after.step[earlier].tolist() == before.step.tolist()
    for name in before.names:
        values, valid = after.load(name)
        assert (
            values[earlier & valid].tolist() == before.load(name)[0][before.load(name)[1]].tolist()
        )


# --- several ranks -------------------------------------------------------------------------------


def test_every_rank_keeps_its_own(two_ranks: Training) -> None:
    assert two_ranks.code == 0, two_ranks.stderr.decode()
    recording = two_ranks.recording
    assert recording.info.world_size == 2
    assert len(recording.info.attempts) == 1
    for name in ("loss", "reward_mean", "grad_norm", "step_time", "completion_length_mean"):
        by_rank = recording.ranks.series_by_rank(name)
        assert sorted(by_rank) == [0, 1]
        assert all(series.steps.tolist() == list(range(1, 21)) for series in by_rank.values())
    rewards = recording.ranks.series_by_rank("reward_mean")
    assert rewards[0].values.tolist() != rewards[1].values.tolist()
    norms = recording.ranks.series_by_rank("grad_norm")
    assert norms[0].values.tolist() == norms[1].values.tolist()


def test_global_rows_are_written_once(two_ranks: Training) -> None:
    recording = two_ranks.recording
    history = two_ranks.log_history()
    assert [row["step"] for row in history] == [5, 10, 15, 20]
    assert _differences(recording, history) == []
    assert sorted(recording.steps.step.tolist()) == list(range(1, 21))
    losses = recording.ranks.series_by_rank("loss")
    for row in history:
        window = slice(row["step"] - 5, row["step"])
        mean = sum(float(losses[rank].values[window].mean()) for rank in (0, 1)) / 2
        assert mean == pytest.approx(row["loss"], rel=1e-4, abs=1e-7)
    grad_norm = recording.steps.series("grad_norm")
    assert grad_norm is not None
    assert len(grad_norm) == 20  # between logged rows too


def test_rollouts_of_all_ranks_are_there_once(two_ranks: Training) -> None:
    rollouts = two_ranks.recording.rollouts(7)
    assert len(rollouts) == 16  # 2 ranks x 4 per micro-batch x 2 micro-batches
    assert {rollout.rank for rollout in rollouts} == {0, 1}
    groups = [rollout.group_id for rollout in rollouts]
    assert {groups.count(group) for group in groups} == {4}


# --- stopped from outside ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_halts_the_run_and_nothing_is_lost(
    start: Callable[..., Any], number: signal.Signals
) -> None:
    process, training = start("halted", "--steps", "100000")
    seen = 0
    for line in process.stdout:
        seen += b"'loss'" in line
        if seen == 60:
            break
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    seen += rest.count(b"'loss'")
    assert process.returncode in {128 + number, 1, 130}
    assert training.recording.info.attempts[0].ended == "halted"
    assert len(training.recording.steps) >= seen - 1  # a row is printed, then recorded
    assert [event.data["signal"] for event in training.events("halted")] == [number]
    assert [event.data["signal"] for event in training.events("halted", rank=-1)] == [number]
    assert training.events("crash") == training.events("crash", rank=-1) == []
