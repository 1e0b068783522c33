"""Slow ruin, jumps and states over twenty seeds of noise, and healthy runs that resemble them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.testing.contract import scan
from rlprobe.values import FloatArray

DETECTORS = catalog.load()
SEEDS = range(20)
ROWS = 400
COUNT: FloatArray = np.arange(ROWS, dtype=np.float64)
X = COUNT / (ROWS - 1)
Columns = dict[str, FloatArray]


def _findings(detector: str, columns: Columns, **case: Any) -> list[Finding]:
    lists = {name: values.tolist() for name, values in columns.items()}
    run = Context(run_of({"name": "seeded", "columns": lists, **case}))
    return scan(DETECTORS[detector](), run)[0]


def _noisy(rng: np.random.Generator, level: Any, sd: float, *, log: bool = False) -> FloatArray:
    noise = rng.normal(0, sd, ROWS)
    values: FloatArray = level * np.exp(noise) if log else level + noise
    return values


def _after(row: int, values: FloatArray) -> FloatArray:
    """0 before a row, then the values from their first on."""
    return np.concatenate((np.zeros(row), values[: ROWS - row]))


def _kl_climbs(rng: np.random.Generator) -> Columns:
    reward = 0.2 + 0.3 * np.minimum(1, 3 * X)
    return {
        "kl_mean": np.abs(_noisy(rng, 0.02 + 4.5 * X**2.4, 0.004)),
        "reward_mean": _noisy(rng, reward, 0.02),
    }


def _kl_grows_exponentially(rng: np.random.Generator) -> Columns:
    growth = np.exp(4 * _after(200, COUNT) / 200)
    return {"kl_mean": _noisy(rng, (0.02 + 0.03 * X) * growth, 0.1, log=True)}


def _kl_stays(rng: np.random.Generator) -> Columns:
    return {"kl_mean": _noisy(rng, np.where(X < 0.5, 0.05, 1.84), 0.2, log=True)}


def _reference_swapped(rng: np.random.Generator) -> Columns:
    return {"kl_mean": _noisy(rng, np.where(X < 0.5, 0.05, 0.2), 0.2, log=True)}


def _entropy_fades(rng: np.random.Generator) -> Columns:
    entropy = 0.62 * np.exp(-6.5 * X) + 0.006
    return {
        "entropy": np.maximum(_noisy(rng, entropy, 0.006), 1e-4),
        "reward_mean": _noisy(rng, 0.5 - 0.3 * np.exp(-12 * X), 0.02),
    }


def _entropy_fades_late(rng: np.random.Generator) -> Columns:
    fall = np.exp(-5 * _after(200, COUNT) / 200)
    return {
        "entropy": _noisy(rng, (2.2 - 0.4 * X) * fall + 0.01, 0.03, log=True),
        "reward_mean": _noisy(rng, 0.2 + 0.35 * np.minimum(1, 2 * X), 0.02),
    }


def _entropy_rises(rng: np.random.Generator) -> Columns:
    return {
        "entropy": _noisy(rng, 0.3 + 0.01 * _after(200, COUNT), 0.05, log=True),
        "reward_mean": _noisy(rng, 0.5, 0.03),
    }


def _clipping_rises(rng: np.random.Generator) -> Columns:
    return {"clip_fraction": _noisy(rng, 0.15 + 0.44 * X, 0.006)}


def _clipping_jumps(rng: np.random.Generator) -> Columns:
    return {"clip_fraction": _noisy(rng, np.where(X < 0.5, 0.1, 0.42), 0.025)}


def _mismatch_climbs(rng: np.random.Generator) -> Columns:
    return {"mismatch_kl": _noisy(rng, 0.008 + _after(200, 0.0004 * COUNT), 0.1, log=True)}


def _optimizer_lost(rng: np.random.Generator) -> Columns:
    fade = _after(250, np.exp(-COUNT / 12))
    return {
        "grad_norm": _noisy(rng, 0.85 * (1 + 5 * fade), 0.14, log=True),
        "kl_mean": _noisy(rng, 0.05 * (1 + 3 * fade), 0.2, log=True),
        "clip_fraction": _noisy(rng, 0.01 * (1 + 9 * fade), 0.25, log=True),
        "entropy": _noisy(rng, 0.6 - 0.15 * fade, 0.02),
        "reward_mean": _noisy(rng, 0.5 - 0.2 * fade, 0.04),
    }


Fault = Callable[[np.random.Generator], Columns]
FAULTS: list[tuple[Fault, str, str | None, tuple[int, int]]] = [
    (_kl_climbs, "KL_BLOWUP", "far", (1, 133)),
    (_kl_grows_exponentially, "KL_BLOWUP", None, (190, 266)),
    (_kl_stays, "KL_BLOWUP", None, (200, 202)),
    (_reference_swapped, "KL_BLOWUP", "shift", (199, 203)),
    (_entropy_fades, "ENTROPY_COLLAPSE", "deterministic", (1, 133)),
    (_entropy_fades_late, "ENTROPY_COLLAPSE", "deterministic", (195, 266)),
    (_entropy_rises, "ENTROPY_EXPLOSION", None, (195, 266)),
    (_clipping_rises, "CLIP_SATURATION", "drifting", (1, 133)),
    (_clipping_jumps, "CLIP_SATURATION", "rising", (200, 202)),
    (_mismatch_climbs, "POLICY_MISMATCH", None, (190, 266)),
    (_optimizer_lost, "REGIME_CHANGE", None, (250, 252)),
]


@pytest.mark.parametrize(
    ("fault", "detector", "variant", "onset"), FAULTS, ids=[case[0].__name__ for case in FAULTS]
)
def test_faults_over_seeds(
    fault: Fault, detector: str, variant: str | None, onset: tuple[int, int]
) -> None:
    for seed in SEEDS:
        findings = _findings(detector, fault(np.random.default_rng(seed)))
        serious = [item for item in findings if item.severity >= Severity.WARNING]
        assert serious, f"seed {seed}: {findings}"
        first = min(serious, key=lambda item: item.first_bad_step)
        assert first.variant == variant, f"seed {seed}: {findings}"
        assert onset[0] <= first.first_bad_step <= onset[1], f"seed {seed}: {findings}"


def _healthy(rng: np.random.Generator) -> Columns:
    """What healthy runs do: entropy falls, KL, length and mismatch grow, the reward rises."""
    return {
        "kl_mean": np.abs(_noisy(rng, 0.02 + 0.35 * X**1.3, 0.006)),
        "entropy": _noisy(rng, 0.62 * np.exp(-2.3 * X), 0.05, log=True),
        "reward_mean": _noisy(rng, 0.18 + 0.48 / (1 + np.exp(-6 * (X - 0.5))), 0.02),
        "clip_fraction": np.abs(_noisy(rng, 0.05 + 0.1 * X, 0.02)),
        "mismatch_kl": _noisy(rng, 0.004 + 0.006 * X, 0.2, log=True),
        "grad_norm": _noisy(rng, 0.6 * np.exp(-0.6 * X), 0.2, log=True),
        "completion_length_mean": _noisy(rng, 380 + 200 * X, 0.04, log=True),
        "loss": _noisy(rng, 0.0, 0.03),
    }


def _heavy_tails(rng: np.random.Generator) -> Columns:
    """Estimates with rare huge single values."""
    columns = _healthy(rng)
    for name in ("kl_mean", "mismatch_kl", "grad_norm"):
        rows = rng.integers(0, ROWS, 4)
        columns[name][rows] *= rng.uniform(5, 60, 4)
    return columns


@pytest.mark.parametrize("run", [_healthy, _heavy_tails])
@pytest.mark.parametrize("detector", sorted({case[1] for case in FAULTS}))
def test_healthy_runs_over_seeds(run: Fault, detector: str) -> None:
    for seed in SEEDS:
        findings = _findings(detector, run(np.random.default_rng(seed)))
        serious = [item for item in findings if item.severity >= Severity.WARNING]
        assert not serious, f"seed {seed}: {serious}"


def test_intended_changes_are_info() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        columns = _healthy(rng)
        columns["kl_mean"][200:] *= 3
        columns["completion_length_mean"][200:] *= 2.5
        columns["reward_mean"][200:] *= 0.4
        told = [{"kind": "curriculum_changed", "step": 201, "message": "harder problems"}]
        for detector in ("REGIME_CHANGE", "KL_BLOWUP"):
            findings = _findings(detector, columns, events=told)
            assert all(item.severity is Severity.INFO for item in findings), (seed, findings)


def test_a_logged_setting_explains_a_change() -> None:
    columns = _optimizer_lost(np.random.default_rng(3))
    columns["lr"] = np.where(COUNT < 250, 1e-6, 3e-5)
    (found,) = _findings("REGIME_CHANGE", columns)
    assert "lr went from 1e-06 to 3e-05" in found.summary
    assert any(item.metric == "lr" for item in found.evidence)
    (unexplained,) = _findings("REGIME_CHANGE", _optimizer_lost(np.random.default_rng(3)))
    assert "nothing that is logged explains it" in unexplained.summary


def test_numbers_of_a_regime_change_are_those_of_its_rows() -> None:
    columns = _optimizer_lost(np.random.default_rng(5))
    (found,) = _findings("REGIME_CHANGE", columns)
    row = found.first_bad_step - 1
    assert {item.metric for item in found.evidence} == set(found.metrics)
    for item in found.evidence:
        values = columns[item.metric]
        assert item.value == pytest.approx(np.median(values[row : row + 4]))
        assert item.baseline == pytest.approx(np.median(values[row - 8 : row]))


def test_one_passing_row_names_no_checkpoint() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        kl = _noisy(rng, 0.0135, 0.05, log=True)
        kl[int(rng.integers(30, 380))] = 2.6
        for item in _findings("KL_BLOWUP", {"kl_mean": kl}):
            assert item.severity is Severity.INFO
            assert not any("checkpoint" in remedy for remedy in item.remedies)
