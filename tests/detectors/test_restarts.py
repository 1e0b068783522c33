"""What is seen of a restart, over 20 noise seeds: it goes on elsewhere, or with other data."""

from __future__ import annotations

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.testing.contract import scan
from rlprobe.values import Attempt, FloatArray, Rollout

LAST, BACK, END = 100, 81, 160


def found(detector: str, run: TableRun) -> list[Finding]:
    findings, _ = scan(catalog.get(detector)(), Context(run))
    return [item for item in findings if item.severity >= Severity.WARNING]


def rolled_back(columns: dict[str, FloatArray], rollouts: tuple[Rollout, ...] = ()) -> TableRun:
    """Two launches of the same columns; the second one's rows follow the first one's."""
    steps = np.concatenate([np.arange(1, LAST + 1), np.arange(BACK, END + 1)])
    attempt = np.repeat([1, 2], [LAST, END - BACK + 1])
    data = {name: (values, np.ones(len(steps), dtype=bool)) for name, values in columns.items()}
    launches = (Attempt(1, 1, LAST, "crashed"), Attempt(2, BACK, END, "completed"))
    info = RunInfo("x", "x", "recording", attempts=launches)
    return TableRun(info, frame_of(steps, data, attempt=attempt), rollouts=rollouts)


def metrics(seed: int) -> dict[str, FloatArray]:
    """A run that learns, its noise with a memory."""
    rng = np.random.default_rng(seed)
    size = LAST + END - BACK + 1
    time = np.concatenate([np.arange(LAST), np.arange(BACK - 1, END)])

    def noise() -> FloatArray:
        noise = rng.normal(size=size)
        for row in range(1, size):
            noise[row] = 0.5 * noise[row - 1] + 0.87 * noise[row]
        return noise

    return {
        "loss": 0.5 + 0.02 * noise(),
        "grad_norm": np.exp(0.2 * noise()),
        "kl_mean": 0.02 * np.exp(0.01 * time + 0.15 * noise()),
        "reward_mean": 0.3 + 0.003 * time + 0.04 * noise(),
        "entropy": 0.6 - 0.002 * time + 0.02 * noise(),
        "completion_length_mean": 500 + 2 * time + 20 * noise(),
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_goes_on_elsewhere(seed: int) -> None:
    columns = metrics(seed)
    assert not found("RESTART_DISCONTINUITY", rolled_back(columns))
    columns["kl_mean"][LAST:] *= 3.5
    columns["completion_length_mean"][LAST:] += 300
    (episode,) = found("RESTART_DISCONTINUITY", rolled_back(columns))
    assert episode.first_bad_step == BACK
    for item in episode.evidence:
        assert item.value == columns[item.metric][LAST]


def batches(ahead: int | None, seed: int, reason: str = "all groups") -> tuple[Rollout, ...]:
    """Eight prompts a step; the second launch's batches are ahead, or drawn anew (None)."""
    order = np.random.default_rng(seed).permutation(10_000)
    steps = [(1, step, step) for step in range(1, LAST + 1)]
    steps += [(2, step, step + (500 if ahead is None else ahead)) for step in range(BACK, END + 1)]
    return tuple(
        Rollout(
            step,
            f"{launch}.{step}.{prompt}",
            f"{launch}.{step}.{prompt}",
            launch,
            prompt_id=str(order[8 * batch + prompt]),
            capture_reason=reason,
        )
        for launch, step, batch in steps
        for prompt in range(8)
    )


@pytest.mark.parametrize("seed", range(20))
def test_data_that_go_back_with_the_weights_or_do_not(seed: int) -> None:
    columns = {"loss": np.ones(LAST + END - BACK + 1)}

    def told(ahead: int | None, reason: str = "all groups") -> list[tuple[str | None, int]]:
        run = rolled_back(columns, batches(ahead, seed, reason))
        return [(item.variant, item.first_bad_step) for item in found("DATA_REPLAY", run)]

    assert told(0) == []
    assert told(5) == [("skipped", BACK)]
    assert told(20) == [("lost", BACK)], "goes on after the last batch of the first launch"
    assert told(None) == [("lost", BACK)]
    assert told(None, "first groups") == [], "the batches may be there, unrecorded"
    assert told(1 - BACK) == [("replayed", BACK)]
