"""Ranks over many seeds of noise: those that leave the others, and those that only differ."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import FloatArray

ROWS = 160
ALL = np.ones(ROWS, dtype=np.bool_)


def found(detector: str, metric: str, values: FloatArray) -> list[Finding]:
    """Findings at warning or above, of one value per row and rank."""
    rows, ranks = values.shape
    steps = np.arange(1, rows + 1)
    run = TableRun(
        RunInfo(path="ranks", id="ranks", source="recording"),
        frame_of(steps, {metric: (values.mean(axis=1), ALL)}),
        ranks=frame_of(
            np.tile(steps, ranks),
            {metric: (values.T.ravel(), np.tile(ALL, ranks))},
            rank=np.repeat(np.arange(ranks), rows).astype(np.int64),
        ),
    )
    findings = catalog.load()[detector]().scan(Context(run))
    return [item for item in findings if item.severity >= Severity.WARNING]


def of_first_rank(metric: str, values: FloatArray) -> list[Finding]:
    """Non-finite metrics where every rank has a log of its own, and the first stands for all."""
    rows, ranks = values.shape
    steps = np.arange(1, rows + 1)
    whole = np.ones(rows, dtype=np.bool_)
    run = TableRun(
        RunInfo(path="ranks", id="ranks", source="jsonl"),
        frame_of(steps, {metric: (values[:, 0], whole)}),
        ranks=frame_of(
            np.tile(steps, ranks),
            {metric: (values.T.ravel(), np.tile(whole, ranks))},
            rank=np.repeat(np.arange(ranks), rows).astype(np.int64),
        ),
    )
    return list(catalog.load()["NONFINITE_METRIC"]().scan(Context(run)))


def test_nan_on_one_rank_is_no_health_of_the_others() -> None:
    loss = 2.0 + np.random.default_rng(0).normal(0, 0.03, (100, 4))
    loss[29:, 2] = np.nan
    (finding,) = of_first_rank("loss", loss)
    assert (finding.severity, finding.first_bad_step) == (Severity.CRITICAL, 30)
    assert (finding.ranks, finding.metrics, finding.state) == ((2,), ("loss",), "ongoing")
    assert finding.summary == "Not finite on rank 2 from step 30 on: loss."
    assert [(item.rank, item.step) for item in finding.evidence] == [(2, 30)]


def test_the_rank_that_turned_first_leads() -> None:
    loss = np.full((100, 4), 2.0)
    loss[29:, 3] = np.nan
    loss[30:] = np.nan
    (finding,) = of_first_rank("loss", loss)
    assert (finding.first_bad_step, finding.ranks) == (30, ())
    assert finding.evidence[0].rank == 3


def test_all_ranks_at_once_are_named_by_none() -> None:
    loss = np.full((100, 4), 2.0)
    loss[29:] = np.nan
    (finding,) = of_first_rank("loss", loss)
    assert (finding.first_bad_step, finding.ranks) == (30, ())
    assert [item.rank for item in finding.evidence] == [None]


def test_the_first_rank_alone_is_named_too() -> None:
    loss = np.full((100, 4), 2.0)
    loss[29:, 0] = np.nan
    (finding,) = of_first_rank("loss", loss)
    assert (finding.first_bad_step, finding.ranks) == (30, (0,))


def test_stages_without_a_loss_are_no_fault() -> None:
    loss = np.full((100, 4), 2.0)
    loss[:, 1:] = np.nan
    assert of_first_rank("loss", loss) == []


@pytest.mark.parametrize(
    ("metric", "severity"),
    [("loss", Severity.WARNING), ("reward_mean", Severity.INFO), ("policy_loss", Severity.WARNING)],
)
def test_a_rank_that_came_back_is_less(metric: str, severity: Severity) -> None:
    values = np.full((100, 4), 2.0)
    values[29:31, 2] = np.nan
    (finding,) = of_first_rank(metric, values)
    assert (finding.severity, finding.state, finding.ranks) == (severity, "recovered", (2,))
    assert (finding.first_bad_step, finding.last_bad_step) == (30, 31)


def test_what_single_ranks_alone_have_on_the_side_is_left_alone() -> None:
    values = np.full((100, 4), 2.0)
    values[29:, 2] = np.nan
    assert of_first_rank("tool_calls", values) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_a_rank_that_leaves_the_others_is_named(seed: int, ranks: int) -> None:
    rng = np.random.default_rng(seed)
    rank, first = int(rng.integers(ranks)), int(rng.integers(30, 100))
    loss = 2.0 + rng.normal(0, 0.03, (ROWS, ranks))
    loss[first - 1 :, rank] += rng.choice([-1, 1]) * 0.6
    (finding,) = found("RANK_OUTLIER", "loss", loss)
    assert (finding.variant, finding.ranks) == ("apart", (rank,))
    assert finding.first_bad_step == first


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_that_drifts_away_is_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss = 2.0 + rng.normal(0, 0.03, (ROWS, 8))
    loss[60:, 3] += 0.9 * np.minimum(1, np.arange(ROWS - 60) / 60)
    (finding,) = found("RANK_OUTLIER", "loss", loss)
    assert finding.ranks == (3,)
    assert 61 <= finding.first_bad_step <= 90


@pytest.mark.parametrize(
    ("ranks", "seed"), [*((n, seed) for n in (4, 16) for seed in range(20)), (256, 0), (256, 1)]
)
def test_ranks_that_differ_are_no_outliers(ranks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.03, (ROWS, ranks))
    row = np.arange(ROWS)[:, None]
    assert not found("RANK_OUTLIER", "loss", 2.0 + rng.normal(0, 0.4, ranks) + noise)
    one_task = 0.4 * (np.arange(ranks) == 3)
    assert not found("RANK_OUTLIER", "loss", 2.0 + one_task + noise)
    parting = one_task * (1 - np.exp(-row / 40))
    assert not found("RANK_OUTLIER", "loss", 2.0 + 9 * np.exp(-row / 40) + 2 * parting + noise)
    rare = rng.binomial(32, 0.01, (ROWS, ranks)) / 32
    assert not found("RANK_OUTLIER", "reward_mean", rare)
    assert not found("RANK_OUTLIER", "grad_norm", np.exp(rng.normal(0, 0.3, (ROWS, ranks))))


@pytest.mark.parametrize("seed", range(20))
def test_copies_that_part_are_named_and_equal_ones_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank, first = int(rng.integers(8)), int(rng.integers(20, 120))
    norm = np.tile(100 + np.cumsum(rng.exponential(0.01, ROWS))[:, None], (1, 8))
    assert not found("RANK_OUTLIER", "param_norm", norm)
    norm[first - 1 :, rank] *= 1 + 10 ** rng.uniform(-6, -2)
    (finding,) = found("RANK_OUTLIER", "param_norm", norm)
    assert (finding.variant, finding.ranks) == ("replica", (rank,))
    assert finding.first_bad_step == first


@pytest.mark.parametrize("seed", range(20))
def test_caches_of_single_ranks_are_told_and_uneven_ones_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    usage = 0.55 + rng.normal(0, 0.02, (ROWS, 16))
    usage[:, 2] += 0.2
    assert not found("KV_CACHE_PRESSURE", "kv_cache_usage", usage)
    full = [5, int(rng.integers(6, 16))]
    usage[79:, full] = np.minimum(1, 0.62 + 0.05 * np.arange(ROWS - 79))[:, None]
    (finding,) = found("KV_CACHE_PRESSURE", "kv_cache_usage", usage)
    assert (finding.variant, finding.ranks) == ("ranks", tuple(full))
    assert 78 <= finding.first_bad_step <= 84
