"""Which of several counters is the step."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.counters import is_counter
from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.importers.steps import best_step_key
from tests.importers.reading import log, points


@pytest.mark.parametrize(
    ("keys", "best"),
    [
        (["inner iter", "ppo epoch", "global iter"], "global iter"),
        (["counters/examples", "counters/updates", "loss/train"], "counters/updates"),
        (["timesteps_total", "episodes_total", "training_iteration"], "training_iteration"),
        (["total/epochs", "total/episodes", "total/steps"], "total/steps"),
        (["Diagnostics/CumSteps", "Diagnostics/Iteration"], "Diagnostics/Iteration"),
        (["reward", "iterations"], "iterations"),
        (["epoch", "global_step", "step"], "step"),
        (["global_step", "training_step"], "training_step"),
        (["time/iterations", "train/n_updates", "time/total_timesteps"], "time/total_timesteps"),
        (["time/total timesteps", "rollout/num_episodes"], "time/total timesteps"),
        (["TotalEnvSteps", "Iteration"], "Iteration"),
        (["Epoch", "Step", "PPO Epoch"], "Step"),
        (["_step", "train/global_step"], "train/global_step"),
        (["consumed samples", "iteration"], "iteration"),
        (["tokens", "n_updates"], "n_updates"),
        (["timing_s/step", "perf/step", "epoch"], "epoch"),
        (["loss", "reward/step_bonus"], None),
        (["loss", "num_tokens", "counters/examples"], None),
    ],
)
def test_the_key_that_counts_optimizer_steps_wins(keys: list[str], best: str | None) -> None:
    assert best_step_key(keys) == best
    assert best_step_key(reversed(keys)) == best


def test_the_user_may_ask_for_another_counter() -> None:
    keys = ["global iter", "inner iter", "counters/examples"]
    assert best_step_key(keys, "inner iter") == "inner iter"
    assert best_step_key(keys, "Inner_Iter") == "inner iter"
    assert best_step_key(keys, "examples") == "counters/examples"
    assert best_step_key(keys, "tokens") is None


@pytest.mark.parametrize(
    "key",
    ["step", "num_tokens", "consumed samples", "PPO Epoch", "timesteps_total", "CumSteps",
     "counters/examples", "num_env_steps_sampled_lifetime", "total/episodes", "data_epochs",
     "iterations_since_restore", "time/iterations", "wall_time"],
)  # fmt: skip
def test_a_counter_counts_and_measures_nothing(key: str) -> None:
    assert is_counter(key)


@pytest.mark.parametrize(
    "key",
    ["tokens_per_second", "step_time", "loss", "timing_s/step", "time/step", "completion_tokens",
     "number of skipped iterations", "batch_size", "mean_episode_length", "epoch_loss"],
)  # fmt: skip
def test_a_measure_is_no_counter(key: str) -> None:
    assert not is_counter(key)


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ("samples", [64, 128, 192]),
        ("counters/updates", [2, 4, 6]),
        ("global step", [2, 4, 6]),  # another word for what it has
    ],
)
def test_another_counter_of_console_output(tmp_path: Path, wanted: str, steps: list[int]) -> None:
    text = "".join(
        f"{{'loss': 0.{n}, 'counters/updates': {n}, 'counters/samples': {32 * n}}}\n"
        for n in (2, 4, 6)
    )
    (run,) = open_runs(log(tmp_path, "run.log", text), wanted)
    assert points(run, "loss") == [(step, n / 10) for step, n in zip(steps, (2, 4, 6), strict=True)]


def test_console_output_without_such_a_counter(tmp_path: Path) -> None:
    path = log(tmp_path, "run.log", "{'loss': 0.5, 'step': 1}\n{'loss': 0.25, 'step': 2}\n")
    with pytest.raises(InputError, match="no such counter"):
        open_runs(path, "tokens")
