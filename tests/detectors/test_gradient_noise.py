"""What is said of gradients, their scaler and what stands still does not hang on the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

SEEDS = range(20)
NAN, INF = float("nan"), float("inf")
Columns = dict[str, np.ndarray]
Told = tuple[str | None, str, int]  # variant, severity, first bad step

_MISSING = -1.0


def norms(rng: np.random.Generator, rows: int, level: float = 0.7, std: float = 0.3) -> np.ndarray:
    """Gradient norms of a healthy run: neighbours resemble each other."""
    noise = rng.normal(0, std, rows)
    for row in range(1, rows):
        noise[row] = 0.5 * noise[row - 1] + 0.87 * noise[row]
    result: np.ndarray = level * np.exp(noise)
    return result


def findings_of(detector: str, columns: Mapping[str, np.ndarray], **case: Any) -> list[Finding]:
    lists = {
        name: ["-" if value == _MISSING else value for value in column.tolist()]
        for name, column in columns.items()
    }
    rows = max(map(len, lists.values()))
    run = run_of({"name": "noise", "rows": rows, "columns": lists, **case})
    return list(catalog.load()[detector]().scan(Context(run)))


def told(detector: str, columns: Mapping[str, np.ndarray], **case: Any) -> list[Told]:
    found = findings_of(detector, columns, **case)
    return [(item.variant, item.severity.label, item.first_bad_step) for item in found]


def with_spikes(rows: int, at: Any, times: float) -> Callable[[np.random.Generator], Columns]:
    def build(rng: np.random.Generator) -> Columns:
        norm = norms(rng, rows)
        spiking = np.asarray(at) - 1
        norm[spiking] = times * 0.7 * np.exp(rng.normal(0, 0.1, len(spiking)))
        return {"grad_norm": norm}

    return build


# --- spikes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "at", "expected"),
    [
        (300, [150], ("spikes", "info", 150)),
        (300, [90, 230], ("spikes", "info", 90)),
        (500, [110, 240, 450], ("spikes", "warning", 110)),
        (500, range(70, 470, 35), ("spikes", "warning", 70)),
        (1000, range(30, 1000, 60), ("spikes", "warning", 30)),
        (300, range(200, 240, 4), ("spikes", "critical", 200)),
    ],
)
def test_spikes_are_counted_over_the_run(rows: int, at: Any, expected: Told) -> None:
    build = with_spikes(rows, list(at), 60)
    seen = {tuple(told("GRAD_PATHOLOGY", build(np.random.default_rng(seed)))) for seed in SEEDS}
    assert seen == {(expected,)}


@pytest.mark.parametrize("period", [25, 40, 75])
def test_the_period_is_named(period: int) -> None:
    build = with_spikes(600, list(range(60, 600, period)), 50)
    for seed in SEEDS:
        (finding,) = findings_of("GRAD_PATHOLOGY", build(np.random.default_rng(seed)))
        assert f"one every {period} steps" in finding.summary
        assert any(item.value == period for item in finding.evidence)


def test_spikes_without_a_beat_have_no_period() -> None:
    build = with_spikes(600, [60, 97, 190, 304, 401, 533], 50)
    for seed in SEEDS:
        (finding,) = findings_of("GRAD_PATHOLOGY", build(np.random.default_rng(seed)))
        assert "one every" not in finding.summary


@pytest.mark.parametrize("broken", [NAN, INF])
def test_spikes_that_lead_into_a_nan_are_one_finding(broken: float) -> None:
    build = with_spikes(400, [301, 304, 306, 309], 45)
    for seed in SEEDS:
        columns = build(np.random.default_rng(seed))
        columns["grad_norm"][311:] = broken
        assert told("GRAD_PATHOLOGY", columns) == [("nonfinite", "critical", 301)]


def test_numbers_of_a_finding_are_those_of_its_rows() -> None:
    build = with_spikes(400, [301, 304, 306, 309], 45)
    for seed in SEEDS:
        norm = build(np.random.default_rng(seed))["grad_norm"]
        (finding,) = findings_of("GRAD_PATHOLOGY", {"grad_norm": norm})
        first, highest, count = finding.evidence[:3]
        assert (first.step, first.value) == (301, norm[300])
        assert (highest.value, count.value) == (norm[300:310].max(), 4)
        assert 0.5 < (first.baseline or 0) / np.median(norm[:300]) < 2


# --- what looks like spikes ---------------------------------------------------------------------


def glides(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(norms(rng, 300) * (1 + 600 * np.exp(-np.arange(300) / 20)))


def cold_start(rng: np.random.Generator) -> np.ndarray:
    norm = norms(rng, 300)
    norm[:6] *= (6, 14, 80, 40, 30, 15)
    return norm


def new_level(rng: np.random.Generator) -> np.ndarray:
    norm = norms(rng, 300)
    norm[120:] *= 12
    return norm


def lower_level(rng: np.random.Generator) -> np.ndarray:
    norm = norms(rng, 300)
    norm[120:] *= 0.05
    return norm


def wide(rng: np.random.Generator) -> np.ndarray:
    return norms(rng, 600, std=0.6)


def dead_groups(rng: np.random.Generator) -> np.ndarray:
    norm = norms(rng, 400)
    norm[rng.random(400) < 0.6] = 0
    return norm


@pytest.mark.parametrize("shape", [glides, cold_start, new_level, lower_level, wide, dead_groups])
def test_healthy_norms_raise_no_warning(shape: Callable[[Any], np.ndarray]) -> None:
    for seed in SEEDS:
        found = told("GRAD_PATHOLOGY", {"grad_norm": shape(np.random.default_rng(seed))})
        assert all(severity == "info" for _, severity, _ in found), (seed, found)


def test_fortyfold_for_good_is_a_level() -> None:
    for seed in SEEDS:
        norm = norms(np.random.default_rng(seed), 300)
        norm[180:] *= 40
        assert told("GRAD_PATHOLOGY", {"grad_norm": norm}) == [("level", "warning", 181)]


# --- whether the update was skipped -------------------------------------------------------------


def test_a_nan_is_critical_unless_its_update_was_skipped() -> None:
    for seed in SEEDS:
        norm = norms(np.random.default_rng(seed), 200)
        norm[120] = NAN
        skipped, scale = np.zeros(200), np.full(200, 65536.0)
        skipped[120] = 1
        scale[121:] = 32768
        assert told("GRAD_PATHOLOGY", {"grad_norm": norm}) == [("nonfinite", "critical", 121)]
        known = {"grad_norm": norm, "update_skipped": skipped}
        assert told("GRAD_PATHOLOGY", known) == [("nonfinite", "warning", 121)]
        assert told("GRAD_PATHOLOGY", {"grad_norm": norm}, framework="verl")[0][1] == "warning"
        assert not told("GRAD_PATHOLOGY", {"grad_norm": norm, "loss_scale": scale})


# --- the loss scaler ----------------------------------------------------------------------------


def test_a_starving_scaler_is_found_at_any_distance() -> None:
    for distance in range(4, 84, 4):
        scale = 32768 / 2.0 ** np.clip((np.arange(600) - 100) // distance + 1, 0, 7)
        assert told("LOSS_SCALE_COLLAPSE", {"loss_scale": scale}) == [("starving", "warning", 101)]


def test_a_scaler_that_grows_again_is_at_work() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        moves = rng.choice([-1, 0, 1], 4000, p=[0.0011, 0.9979, 0.001])
        scale = 2.0 ** np.clip(15 + np.cumsum(moves), 8, 20)
        found = told("LOSS_SCALE_COLLAPSE", {"loss_scale": scale})
        assert all(severity == "info" for _, severity, _ in found), (seed, found)


def test_lines_of_the_scaler_at_its_overflows_only_are_no_floor() -> None:
    scale, skipped = np.full(600, _MISSING), np.zeros(600)
    scale[99::100], skipped[99::100] = 32768, 1
    assert not told("LOSS_SCALE_COLLAPSE", {"loss_scale": scale, "update_skipped": skipped})


# --- what stands still --------------------------------------------------------------------------


def test_a_norm_that_dwindles_while_rewards_differ() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        fade = np.exp(-np.clip(np.arange(400) - 100, 0, None) / 30)
        columns = {
            "grad_norm": norms(rng, 400) * fade,
            "zero_variance_group_fraction": rng.uniform(0.1, 0.4, 400),
        }
        ((variant, severity, first),) = told("DEAD_GRADIENT", columns)
        assert (variant, severity) == ("vanishing", "warning")
        assert 100 <= first <= 190
        columns["zero_variance_group_fraction"][130:] = 1.0
        assert not told("DEAD_GRADIENT", columns)


def test_a_learning_rate_of_zero() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        loss, norm = 1 + rng.normal(0, 0.1, 200), norms(rng, 200)
        lr = np.full(200, 2e-6)
        lr[130:] = 0
        base = {"loss": loss, "grad_norm": norm}
        assert told("DEAD_GRADIENT", base | {"lr": lr}) == [("lr", "warning", 131)]
        ramp = np.concatenate((np.linspace(0, 2e-6, 20), np.linspace(2e-6, 0, 180)))
        assert not told("DEAD_GRADIENT", base | {"lr": ramp})
