"""What is said of losses, accuracies and critics, over twenty seeds of noise for each kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.testing import run_of
from rlprobe.values import FloatArray

Rng = np.random.Generator
Columns = dict[str, FloatArray]
Fault = tuple[Columns, str, int]  # columns, detector, row (from 1) at which it begins

SEEDS = range(20)
JUDGES = ("DIVERGENCE", "LOSS_SPIKE", "VALUE_DIVERGENCE", "PREFERENCE_COLLAPSE")
DETECTORS = catalog.load(())


def alarms(columns: Columns) -> list[Finding]:
    case = {"name": "run", "columns": {name: list(column) for name, column in columns.items()}}
    run = Context(run_of(case))
    judges = [
        DETECTORS[name]() for name in JUDGES if any(set(need) <= {*columns} for need in needs(name))
    ]
    found = [finding for judge in judges for finding in judge.scan(run)]
    return [finding for finding in found if finding.severity > Severity.INFO]


def needs(name: str) -> tuple[tuple[str, ...], ...]:
    return DETECTORS[name].needs


def times(rng: Rng, rows: int, scatter: float) -> FloatArray:
    return np.exp(rng.normal(0, scatter, rows))


def around(rng: Rng, rows: int, scatter: float) -> FloatArray:
    return rng.normal(0, scatter, rows)


def falling(rows: int, start: float, end: float) -> FloatArray:
    return end + (start - end) * np.exp(-np.arange(rows) / 20)


def pairs(rng: Rng, rows: int, size: int, sign: FloatArray | float = 1.0) -> Columns:
    learnt = 3 * (1 - np.exp(-np.arange(rows) / 60))
    margins = learnt[:, None] + (0.2 + learnt)[:, None] * rng.normal(0, 0.6, (rows, size))
    margins = margins * np.broadcast_to(sign, (rows,))[:, None]
    return {
        "loss": np.log1p(np.exp(-margins)).mean(1),
        "entropy": 3 + around(rng, rows, 0.05),
        "preference_accuracy": (margins > 0).mean(1),
        "preference_margin": margins.mean(1),
    }


# --- faults ---------------------------------------------------------------------------------------


def lasts(rng: Rng) -> Fault:
    """A step up that lasts ten times as long as what was before it."""
    good = int(rng.integers(39, 60))
    loss = np.concatenate((np.full(good, 2.05), np.full(10 * good, rng.uniform(2.6, 3.2))))
    return {"loss": loss + around(rng, len(loss), 0.03)}, "DIVERGENCE", good + 1


def fine_tuning_undone(rng: Rng) -> Fault:
    loss, accuracy = falling(240, 2.7, 0.4), 1 - falling(240, 0.8, 0.05)
    loss[169:], accuracy[169:] = 3.4, 0.28
    return (
        {
            "loss": loss * times(rng, 240, 0.1),
            "entropy": loss * 0.9,
            "token_accuracy": accuracy + around(rng, 240, 0.01),
        },
        "DIVERGENCE",
        170,
    )


def only_the_policy_loss(rng: Rng) -> Fault:
    loss, gradient = 0.04 + around(rng, 120, 0.01), times(rng, 120, 0.15)
    loss[108:], gradient[108:] = np.linspace(1, 13, 12), 60 * gradient[108:]
    return {"policy_loss": loss, "grad_norm": gradient}, "DIVERGENCE", 109


def a_spike_of_two_rows(rng: Rng) -> Fault:
    loss = falling(240, 2.7, 0.4)
    loss[179:181] = 4.6
    return {"loss": loss * times(rng, 240, 0.08), "entropy": loss * 0.9}, "LOSS_SPIKE", 180


def high_for_fifty_rows(rng: Rng) -> Fault:
    loss = np.full(400, 2.05)
    loss[150:200] *= rng.uniform(1.4, 1.9)
    return {"loss": loss * times(rng, 400, 0.03)}, "LOSS_SPIKE", 151


def swapped_pairs(rng: Rng) -> Fault:
    sign = np.where(np.arange(220) < 140, 1.0, -1.0)
    return pairs(rng, 220, int(rng.choice([2, 8])), sign), "PREFERENCE_COLLAPSE", 141


def critic_forgets_slowly(rng: Rng) -> Fault:
    variance = np.concatenate((np.linspace(0.2, 0.5, 250), np.linspace(0.5, -0.6, 250)))
    loss = np.concatenate((np.linspace(0.4, 0.2, 250), np.linspace(0.2, 1, 250)))
    columns = {
        "explained_variance": variance + around(rng, 500, 0.04),
        "value_loss": loss * times(rng, 500, 0.05),
    }
    return columns, "VALUE_DIVERGENCE", 251


WITHIN = {"VALUE_DIVERGENCE": 80}  # rows: a third of the drift
FAULTS = (
    lasts,
    fine_tuning_undone,
    only_the_policy_loss,
    a_spike_of_two_rows,
    high_for_fifty_rows,
    swapped_pairs,
    critic_forgets_slowly,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_is_found_where_it_began(fault: Callable[[Rng], Fault], seed: int) -> None:
    columns, name, row = fault(np.random.default_rng(seed))
    found = [finding for finding in alarms(columns) if finding.detector == name]
    assert len(found) == 1
    assert row - 2 <= found[0].first_bad_step <= row + WITHIN.get(name, 2)


# --- healthy look-alikes --------------------------------------------------------------------------


def learning_rate_in_steps(rng: Rng) -> Columns:
    loss = np.repeat((3.0, 2.5, 2.2), 100)
    return {"loss": loss * times(rng, 300, 0.03)}


def learnt_by_heart(rng: Rng) -> Columns:
    loss = np.repeat((1.4, 0.8, 0.3), 100)
    return {
        "loss": loss * times(rng, 300, 0.15),
        "entropy": loss,
        "token_accuracy": 1 - 0.3 * loss + around(rng, 300, 0.02),
    }


def one_minibatch(rng: Rng) -> Columns:
    return {"loss": 1.5 * np.exp(0.12 * rng.laplace(0, 1, 400)), "grad_norm": times(rng, 400, 0.5)}


def begins_at_519(rng: Rng) -> Columns:
    return {"loss": falling(120, 519, 1.5) * times(rng, 120, 0.1)}


def healthy_pairs(rng: Rng) -> Columns:
    return pairs(rng, 300, int(rng.choice([2, 8])))


def around_zero(rng: Rng) -> Columns:
    return {
        "loss": np.linspace(0, 0.05, 300) + around(rng, 300, 0.01),
        "kl_mean": np.linspace(0, 1, 300) * times(rng, 300, 0.2),
        "grad_norm": times(rng, 300, 0.3),
        "reward_mean": np.linspace(0.2, 0.8, 300) + around(rng, 300, 0.05),
    }


def total_loss_falls(rng: Rng) -> Columns:
    """A loss with a value part that falls from 2.7 to 0.3 while the gradient jumps at times."""
    gradient = times(rng, 300, 0.3)
    gradient[100::50] *= 20
    value = 2 * falling(300, 2.7, 0.3) * times(rng, 300, 0.2)
    return {
        "loss": value / 2 + around(rng, 300, 0.01),
        "value_loss": value,
        "grad_norm": gradient,
        "reward_mean": np.linspace(0.2, 0.8, 300),
    }


def cold_critic(rng: Rng) -> Columns:
    variance = 0.7 - 4 * np.exp(-np.arange(200) / 20)
    return {"explained_variance": variance + around(rng, 200, 0.1)}


HEALTHY = (
    learning_rate_in_steps,
    learnt_by_heart,
    one_minibatch,
    begins_at_519,
    healthy_pairs,
    around_zero,
    total_loss_falls,
    cold_critic,
)


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda healthy: healthy.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_run_and_its_prefixes_are_quiet(
    healthy: Callable[[Rng], Columns], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = healthy(rng)
    rows = len(next(iter(columns.values())))
    for cut in (rows, *rng.integers(20, rows, 2).tolist()):
        assert not alarms({name: column[:cut] for name, column in columns.items()})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("broken", [True, False])
def test_a_loss_that_is_undone_in_one_row_is_told_though_it_fell_fast(
    seed: int, *, broken: bool
) -> None:
    rng, rows = np.random.default_rng(seed), 140
    harm = np.where((np.arange(rows) >= 90) & (np.arange(rows) < 105), 1.0, 0.0) * broken
    columns = {
        "loss": falling(rows, 3.2, 1.1) * times(rng, rows, 0.045) * (1 + 0.5 * harm),
        "token_accuracy": 0.66 - falling(rows, 0.6, 0.0) ** 2 - 0.14 * harm,
    }
    columns["token_accuracy"] += around(rng, rows, 0.025)
    run = Context(run_of({"name": "run", "columns": {k: list(v) for k, v in columns.items()}}))
    told = [it for it in DETECTORS["REGIME_CHANGE"]().scan(run) if it.severity > Severity.INFO]
    assert [it.first_bad_step for it in told] == ([91] if broken else [])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by_heart", [True, False])
def test_what_is_learnt_by_heart_is_told_by_the_held_out_loss(seed: int, *, by_heart: bool) -> None:
    rng, rows = np.random.default_rng(seed), 160
    since = np.maximum(np.arange(rows) - 80, 0)
    gone, worse = (np.exp(-since / 15), 0.5) if by_heart else (0.6 + 0.4 * np.exp(-since / 15), 0.1)
    found = alarms(
        {
            "loss": falling(rows, 3.2, 1.1) * gone * times(rng, rows, 0.05),
            "token_accuracy": np.minimum(0.66 + 0.3 * (1 - gone), 1) + around(rng, rows, 0.01),
            "eval/loss": falling(rows, 2.6, 1.1) * times(rng, rows, 0.005)
            + worse * (1 - np.exp(-since / 15)),
        }
    )
    assert [it.detector for it in found] == (["DIVERGENCE"] if by_heart else [])
    assert all(77 <= it.first_bad_step <= 88 for it in found)
