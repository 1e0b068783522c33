"""Recorded rollouts tell of groups what the spread of a whole batch cannot."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe import Recorder, catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import contract, run_of

DETECTORS = catalog.load()
SIZE = 8
Screen = Callable[..., str]
SEEDS = range(8)


def loud(
    rewards: np.ndarray,
    recorded: int,
    detector: str = "ZERO_VARIANCE",
    every: int = 1,
    more: Any = None,
) -> list[Finding]:
    """What is found in a run of which some groups a step were recorded, beside batch statistics.

    Args:
        rewards: (steps, groups, rollouts).
        recorded: groups of a step whose rollouts were recorded.
    """
    columns = {
        "reward_mean": rewards.mean(axis=(1, 2)).tolist(),
        "reward_std": rewards.std(axis=(1, 2)).tolist(),
        "reward_max": rewards.max(axis=(1, 2)).tolist(),
        "reward_min": rewards.min(axis=(1, 2)).tolist(),
        **(more or {}),
    }
    rollouts = [
        {
            "step": step,
            "group_id": f"g{group}",
            "sample_id": f"{step}.{group}.{index}",
            "reward": float(rewards[step - 1, group, index]),
        }
        for step in range(1, len(rewards) + 1, every)
        for group in range(recorded)
        for index in range(rewards.shape[2])
    ]
    run = run_of({"name": "sampled", "rows": len(rewards), "columns": columns, "samples": rollouts})
    found, _ = contract.scan(DETECTORS[detector](), Context(run))
    return [item for item in found if item.severity >= Severity.WARNING]


def binary(rng: np.random.Generator, chance: np.ndarray, alike: float) -> np.ndarray:
    prompt = rng.beta((chance * alike)[:, None], ((1 - chance) * alike)[:, None], (len(chance), 16))
    right: np.ndarray = rng.random((*prompt.shape, SIZE)) < prompt[:, :, None]
    return right.astype(float)


def flat_groups(rng: np.random.Generator, steps: int) -> np.ndarray:
    each: np.ndarray = rng.integers(0, 2, (steps, 16, 1)).astype(float)
    return np.repeat(each, SIZE, axis=2)


@pytest.mark.parametrize("recorded", [1, 2, 4, 8])
def test_flat_groups_of_different_rewards_are_found(recorded: int) -> None:
    for seed in SEEDS:
        found = loud(flat_groups(np.random.default_rng(seed), 60), recorded)
        assert [(f.variant, f.first_bad_step) for f in found] == [("mixed", 1)], seed


@pytest.mark.parametrize("recorded", [1, 4, 8])
def test_flat_from_a_step_on(recorded: int) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rewards = binary(rng, np.full(200, 0.5), 30.0)
        rewards[100:] = flat_groups(rng, 100)
        found = loud(rewards, recorded)
        assert [f.variant for f in found] == ["mixed"], seed
        assert abs(found[0].first_bad_step - 101) <= 12 / recorded, (seed, found[0].first_bad_step)


HEALTHY = {
    "learns": (0.2 + 0.5 / (1 + np.exp((150 - np.arange(300)) / 30)), 3.0),
    "stands still": (np.full(300, 0.5), 3.0),
    "prompts differ much": (np.full(300, 0.5), 1.2),
    "rises fast": (0.3 + 0.4 / (1 + np.exp((60 - np.arange(300)) / 12)), 2.0),
    "is sparse": (0.05 + 0.5 / (1 + np.exp((150 - np.arange(300)) / 40)), 3.0),
}


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("recorded", [1, 2, 4, 8])
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_of_few_recorded_groups_are_quiet(
    name: str, recorded: int, every: int
) -> None:
    chance, alike = HEALTHY[name]
    for seed in SEEDS:
        rewards = binary(np.random.default_rng(seed), chance, alike)
        assert not loud(rewards, recorded, every=every), seed


def test_a_flat_batch_is_found_between_few_recorded_steps() -> None:
    rng = np.random.default_rng(0)
    rewards = binary(rng, np.full(400, 0.4), 3.0)
    rewards[200:] = 0.0
    found = loud(rewards, 8, every=150)  # steps 1, 151, 301
    assert [(f.variant, f.first_bad_step) for f in found] == [("too_hard", 201)]


def test_a_gradient_of_zero_is_no_wonder_where_recorded_groups_are_flat() -> None:
    rewards = flat_groups(np.random.default_rng(1), 60)
    norms = {
        "grad_norm": [1.0] * 5 + [0.0] * 55,
        "loss": [0.1 + 0.001 * (i % 7) for i in range(60)],
    }
    assert not loud(rewards, 8, "DEAD_GRADIENT", more=norms)
    mixed = binary(np.random.default_rng(1), np.full(60, 0.5), 30.0)
    assert loud(mixed, 8, "DEAD_GRADIENT", more=norms)


# --- the loop of the README ---------------------------------------------------------------------


def train(run_dir: Path, *, is_flat: bool, halves: bool = False, sized: bool = True) -> None:
    """The README's own loop: 4 prompts, 8 completions each."""
    rng = random.Random(0)
    with Recorder(run_dir, algorithm="GRPO") as recorder:
        for step in range(1, 41):
            each = [float(rng.random() < 0.5) for _ in range(32)]
            rewards = [each[index // 8 if is_flat else index] for index in range(32)]
            recorder.step(
                step, loss=rng.gauss(0, 0.01), grad_norm=1 + rng.random() / 9, rewards=rewards
            )
            prompts = [f"question {index // 8}" for index in range(32)]
            texts = [f"answer {rng.random()}" for _ in range(32)]
            for part in (slice(0, 16), slice(16, 32)) if halves else (slice(0, 32),):
                recorder.samples(
                    step,
                    prompts=prompts[part] if sized else ["the same"] * 16,
                    completions=texts[part],
                    rewards=rewards[part],
                    group_size=8 if sized else None,
                )


def test_every_group_flat_is_no_pass(tmp_path: Path, screen: Screen) -> None:
    for name, options in {"once": {}, "halves": {"halves": True}}.items():
        train(tmp_path / name, is_flat=True, **options)
        seen = screen("scan", tmp_path / name)
        assert "WARNING  ZERO_VARIANCE (mixed)   first bad step 1 " in seen, seen
        assert "100% of the groups had rewards that are all equal" in seen
        assert "PASS" not in seen
        assert "groups   4, of which 4 flat" in screen("show", tmp_path / name, "--step", 40)


def test_groups_that_differ_pass(tmp_path: Path, screen: Screen) -> None:
    train(tmp_path / "run", is_flat=False, halves=True)
    assert "PASS" in screen("scan", tmp_path / "run")
    assert "groups   4, of which 0 flat" in screen("show", tmp_path / "run", "--step", 40)


def test_ids_that_calls_or_ranks_name_alike_are_groups_of_their_own(
    tmp_path: Path, screen: Screen
) -> None:
    for rank in (0, 1):
        recorder = Recorder(tmp_path / "run", rank=rank, world_size=2, launch="one")
        for value in (0.0, 1.0):  # each group flat, both together not
            recorder.samples(
                1, prompts=["p"], completions=["a", "b"], rewards=[value] * 2, group_ids=["g"]
            )
            recorder.samples(2, prompts=["p"], completions=["a", "b"], rewards=[value] * 2)
        recorder.step(1, loss=1.0)
        recorder.step(2, loss=1.0)
        recorder.close()
    for step in (1, 2):
        seen = screen("show", tmp_path / "run", "--step", step)
        assert "groups   4, of which 4 flat" in seen, seen
    names = screen("query", tmp_path / "run", "select distinct group_id from samples order by 1")
    assert names.split() == ["group_id", "g", "g#2", "s2.g0", "s2.g1", "s2.r1.g0", "s2.r1.g1"]


def test_two_calls_with_the_same_prompt_are_two_groups(tmp_path: Path, screen: Screen) -> None:
    train(tmp_path / "run", is_flat=False, halves=True, sized=False)
    seen = screen("show", tmp_path / "run", "--step", "3")
    assert "groups   2, of which 0 flat" in seen
    assert "16 rollouts" in seen
