"""Where gradients are not finite, and what shows that an update was skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlprobe.rule import BadGradients, skipped_updates
from rlprobe.scan.context import Context
from rlprobe.testing import run_of

NAN = float("nan")
NORM = {"level": 0.5, "set": [{"at": 20, "value": NAN}]}
RAMP = [*range(1, 21), 20, *range(21, 40)]


def context(columns: dict[str, Any], **case: Any) -> Context:
    return Context(run_of({"name": "x", "rows": 40, "columns": columns, **case}))


def skipped(columns: dict[str, Any], **case: Any) -> bool:
    run = context({"grad_norm": NORM, **columns}, **case)
    return bool(skipped_updates(run, np.array([20]))[0])


@pytest.mark.parametrize("framework", ["verl", "slime", "areal"])
def test_frameworks_that_skip(framework: str) -> None:
    assert skipped({}, framework=framework)


def test_nothing_shows_it() -> None:
    assert not skipped({}, framework="trl")
    assert not skipped({"update_skipped": {"level": 0}, "loss_scale": {"level": 1024}})


def test_the_row_or_a_guard_says_so() -> None:
    assert skipped({"update_skipped": {"level": 0, "set": [{"at": 20, "value": 1}]}})
    assert skipped({}, events=[{"kind": "update_skipped", "step": 20}])


@pytest.mark.parametrize("falls", [20, 21])
def test_the_scale_falls_there_or_at_the_next_row(falls: int) -> None:
    scale = {"level": 1024, "set": [{"from": falls, "value": 512}]}
    assert skipped({"loss_scale": scale})
    assert not len(BadGradients.of(context({"grad_norm": NORM, "loss_scale": scale})).steps)


def test_a_schedule_that_stands_still_on_one_row() -> None:
    assert skipped({"lr": [1e-6 * step for step in RAMP]})
    assert skipped({"lr": [1e-6 * step for step in [*range(1, 20), 19, *range(20, 40)]]})
    assert not skipped({"lr": [1e-6 * step for step in range(1, 41)]})
    assert not skipped({"lr": {"level": 1e-6}})


def test_all_that_was_logged_of_bad_gradients() -> None:
    event = {"kind": "nan_detected", "step": 30, "data": {"source": "weight", "nan_count": 3}}
    bad = BadGradients.of(
        context(
            {"grad_norm": NORM, "inf_count": {"level": 0, "set": [{"at": 25, "value": 2}]}},
            events=[event],
        )
    )
    assert bad.steps.tolist() == [20, 25, 30]
    assert [item.metric for item in bad.proof(20, 20)] == ["grad_norm"]
    assert [item.value for item in bad.proof(30, 30)] == [3]
    assert bad.finite_after(25)
    assert len(bad.during(21, 30)) == 1
