"""What is said of groups, advantages and rewards that stand still does not hang on the noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.config import Config
from rlprobe.findings import Finding, ScanReport, Severity
from rlprobe.scan.context import Context
from rlprobe.scan.engine import scan
from rlprobe.testing import contract, run_of

SEEDS = range(20)
PROMPTS, GROUP = 24, 6
DETECTORS = catalog.load()
Columns = dict[str, np.ndarray]


def grpo(rng: np.random.Generator, chance: np.ndarray, alike: float | np.ndarray = 3.0) -> Columns:
    """Rewards of 0 and 1, and advantages in groups, of a run whose chance of being right is given.

    Args:
        alike: how alike prompts are: the smaller, the more groups pass or fail as a whole.
    """
    a = np.broadcast_to(np.asarray(alike, float), chance.shape)
    mean: np.ndarray = chance.clip(1e-4, 1 - 1e-4)
    prompt = rng.beta((mean * a)[:, None], ((1 - mean) * a)[:, None], (len(chance), PROMPTS))
    right = rng.random((len(chance), PROMPTS, GROUP)) < prompt[:, :, None]
    spread = right.std(axis=2, keepdims=True)
    advantages = (right - right.mean(axis=2, keepdims=True)) / (spread + 1e-4)
    return {
        "reward_mean": right.mean(axis=(1, 2)),
        "reward_std": right.std(axis=(1, 2)),
        "zero_variance_group_fraction": (spread[:, :, 0] == 0).mean(axis=1),
        "advantage_max": advantages.max(axis=(1, 2)),
        "advantage_min": advantages.min(axis=(1, 2)),
        "advantage_std": advantages.std(axis=(1, 2)),
    }


def loud(detector: str, columns: Columns, **case: Any) -> list[Finding]:
    lists = {name: column.tolist() for name, column in columns.items()}
    rows = len(next(iter(lists.values())))
    run = run_of({"name": "noise", "rows": rows, "columns": lists, **case})
    found, _ = contract.scan(DETECTORS[detector](), Context(run))
    return [item for item in found if item.severity >= Severity.WARNING]


def rise(rows: int, low: float, high: float, middle: float, width: float) -> np.ndarray:
    """A learning curve."""
    row = np.arange(rows)
    curve: np.ndarray = low + (high - low) / (1 + np.exp((middle * rows - row) / (width * rows)))
    return curve


# --- healthy ----------------------------------------------------------------------------------

HEALTHY: dict[str, tuple[np.ndarray, float | np.ndarray]] = {
    "learns": (rise(300, 0.2, 0.7, 0.5, 0.1), 3.0),
    "learns fast and stays below its top": (rise(300, 0.2, 0.65, 0.2, 0.04), 3.0),
    "solves its task": (rise(300, 0.3, 0.99, 0.3, 0.06), 2.0),
    "prompts differ much": (rise(300, 0.25, 0.75, 0.4, 0.1), 1.2),
    "harder data from 150 on": (np.where(np.arange(300) < 150, 0.6, 0.45), 3.0),
    "stands still": (np.full(300, 0.5), 3.0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_are_quiet(name: str) -> None:
    chance, alike = HEALTHY[name]
    for seed in SEEDS:
        columns = grpo(np.random.default_rng(seed), chance, alike)
        case = {"settings": {"num_generations": GROUP}}
        for detector in ("ZERO_VARIANCE", "ADVANTAGE_NOISE", "NO_LEARNING"):
            assert not loud(detector, columns, **case), (seed, detector)


@pytest.mark.parametrize("rows", [5, 12, 25, 60, 120])
def test_beginnings_of_healthy_runs_are_quiet(rows: int) -> None:
    for seed in SEEDS:
        columns = grpo(np.random.default_rng(seed), rise(300, 0.2, 0.7, 0.5, 0.1))
        begun = {name: column[:rows] for name, column in columns.items()}
        for detector in ("ZERO_VARIANCE", "ADVANTAGE_NOISE", "NO_LEARNING"):
            assert not loud(detector, begun), (seed, detector)


# --- flat groups ------------------------------------------------------------------------------


def test_a_low_reward_with_flat_groups_is_too_hard_and_not_solved() -> None:
    for seed in SEEDS:
        (found,) = loud("ZERO_VARIANCE", grpo(np.random.default_rng(seed), np.full(250, 0.06), 2.0))
        assert (found.variant, found.severity) == ("too_hard", Severity.WARNING), seed
        assert found.first_bad_step <= 8, seed
        assert "solved" not in found.summary


def test_groups_that_go_flat_slowly_at_an_unchanged_reward() -> None:
    alike = np.concatenate((np.full(150, 8.0), np.geomspace(8, 0.25, 200), np.full(50, 0.25)))
    for seed in SEEDS:
        columns = grpo(np.random.default_rng(seed), np.full(400, 0.5), alike)
        (found,) = loud("ZERO_VARIANCE", columns)
        assert found.variant in ("rising", "mixed"), seed
        assert 140 <= found.first_bad_step <= 150 + 200 / 3 + 60, seed  # slow at first


def test_prompts_become_impossible_on_one_row() -> None:
    chance = np.where(np.arange(240) < 120, 0.55, 0.004)
    for seed in SEEDS:
        (found,) = loud("ZERO_VARIANCE", grpo(np.random.default_rng(seed), chance))
        assert (found.variant, found.first_bad_step) == ("too_hard", 121), seed


# --- advantages -------------------------------------------------------------------------------


def noisy(rng: np.random.Generator, first: int) -> Columns:
    """From a row on, nearly all groups are wrong, and rounding is divided by rounding."""
    columns = grpo(rng, np.where(np.arange(200) < first, 0.55, 0.02))
    rows = np.arange(200) >= first
    columns["advantage_max"][rows] = rng.uniform(9, 40, rows.sum())
    columns["advantage_min"][rows] = -rng.uniform(9, 40, rows.sum())
    return columns


@pytest.mark.parametrize("settings", [{"num_generations": GROUP}, {}])
def test_advantages_that_no_group_can_give(settings: dict[str, int]) -> None:
    for seed in SEEDS:
        columns = noisy(np.random.default_rng(seed), 140)
        for left_out in ((), ("zero_variance_group_fraction", "reward_std")):
            kept = {name: column for name, column in columns.items() if name not in left_out}
            (found,) = loud("ADVANTAGE_NOISE", kept, settings=settings)
            assert (found.variant, found.first_bad_step) == ("impossible", 141), seed


def test_advantages_that_die() -> None:
    fade = np.concatenate((np.ones(150), np.linspace(1, 0.03, 80), np.full(70, 0.03)))
    for seed in SEEDS:
        columns = grpo(np.random.default_rng(seed), np.full(300, 0.5))
        columns["advantage_std"] *= fade
        (found,) = loud("NO_LEARNING", columns)
        assert found.variant == "advantages", seed
        assert 140 <= found.first_bad_step <= 177, seed


# --- the root ---------------------------------------------------------------------------------


def incident(rng: np.random.Generator) -> Columns:
    """Flat groups, impossible advantages and gradients from 141 on; the rest follows."""
    rows = 160
    columns = {name: column[:rows] for name, column in noisy(rng, 140).items()}
    late = np.arange(rows) - 140

    def about(level: float, spread: float) -> np.ndarray:
        return level * np.exp(rng.normal(0, spread, rows))

    grow = np.where(late >= 1, 1.25 ** np.maximum(late, 0), 1.0)
    return columns | {
        "grad_norm": np.where(late >= 0, about(60, 0.5), about(0.6, 0.2)),
        "loss": np.where(late >= 0, 0.3 + 0.4 * late, rng.normal(0.03, 0.004, rows)),
        "kl_mean": about(0.06, 0.15) * grow**2,
        "completion_length_mean": np.minimum(about(1400, 0.04) * grow, 8192),
        "truncation_rate": np.clip((late - 6) / 8, 0.01, 1) * 0.95,
    }


@pytest.mark.parametrize("without", [(), ("advantage_max", "advantage_min", "advantage_std")])
def test_the_root_is_in_the_groups_whatever_is_logged(without: tuple[str, ...]) -> None:
    wrong = []
    for seed in SEEDS:
        columns = incident(np.random.default_rng(seed))
        lists = {k: v.tolist() for k, v in columns.items() if k not in without}
        settings = {"num_generations": GROUP, "max_completion_length": 8192}
        report = scan(
            run_of({"name": "incident", "columns": lists, "settings": settings}), Config()
        )
        if not _rooted_in_groups(report):
            wrong.append((seed, report.incidents[0].story))
    assert not wrong


def _rooted_in_groups(report: ScanReport) -> bool:
    links = report.incidents[0].chain
    named = [link.detector for link in links]
    rooted = named[0] in ("ZERO_VARIANCE", "ADVANTAGE_NOISE") and links[0].step == 141
    return rooted and "GRAD_PATHOLOGY" in named and min(link.lead for link in links) >= -2


TRUNCATED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "from a row on": lambda row: np.where(row < 100, 0.02, 1.0),
    "within a few rows": lambda row: np.clip((row - 99) / 4, 0.02, 1.0),
    "from the first row on": lambda row: np.ones(len(row)),
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_cut_completions_are_the_root_of_flat_groups(name: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        cut = rng.binomial(144, TRUNCATED[name](np.arange(150))) / 144
        columns = grpo(rng, 0.55 * (1 - cut))
        columns["truncation_rate"] = cut
        columns["completion_length_mean"] = 700 * np.exp(rng.normal(0, 0.03, 150)) * (1 - cut)
        columns["completion_length_mean"] += 1024 * cut
        lists = {k: v.tolist() for k, v in columns.items()}
        settings = {"max_completion_length": 1024}
        report = scan(run_of({"name": "cut", "columns": lists, "settings": settings}), Config())
        links = report.incidents[0].chain
        assert links[0].detector in ("TRUNCATION", "LENGTH_EXPLOSION"), (seed, links)
        assert "ZERO_VARIANCE" in [link.detector for link in links], seed
