"""Logs that the libraries themselves have written, read back value for value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe.importers import open_runs
from rlprobe.store.run import Run
from tests.importers.real.conftest import Produce

pytestmark = pytest.mark.integration
VALUES = [0.1, math.nan, math.inf, -math.inf, 1 / 3]


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


def check(run: Run, name: str, expected: Mapping[int, float], *, single: bool = False) -> None:
    series = run.steps.series(name)
    assert series is not None, (name, run.steps.names)
    assert series.steps.tolist() == sorted(expected)
    wanted = np.array([expected[step] for step in sorted(expected)])
    if single:
        wanted = wanted.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(series.values, wanted)


@pytest.mark.parametrize("library", ["tensorboardX", "torch"])
def test_tensorboard(produce: Produce, tmp_path: Path, library: str) -> None:
    folder = tmp_path / "tb"
    needs = (library,) if library == "tensorboardX" else ("torch", "tensorboard")
    produce("log_tensorboard.py", library, folder, needs=needs)
    run = only(folder)
    spans = [(attempt.first_step, attempt.last_step) for attempt in run.info.attempts]
    assert spans == [(0, 29), (20, 49)]
    assert len(run.steps) == 60
    check(run, "loss", {s: VALUES[s % 5] for s in range(50)}, single=True)
    check(run, "reward_mean", {s: s / 7 for s in range(50)}, single=True)
    check(run, "kl_mean", {0: 0.5, 20: 0.5})
    check(run, "kl_max", {0: 2.0, 20: 2.0})
    if library == "torch":
        check(run, "new", {0: 0.25, 20: 0.25})
        check(run, "double", {0: 0.1, 20: 0.1})
    assert run.problems == ()


@pytest.mark.parametrize("code", [0, 1])
def test_wandb(produce: Produce, tmp_path: Path, code: int) -> None:
    produce("log_wandb.py", code, needs=("wandb",))
    run = only(tmp_path / "wandb" / "latest-run")
    values = [0.30000000000000004, *VALUES[1:]]
    check(run, "loss", {10 * step: value for step, value in enumerate(values)})
    check(run, "extra", {10 * step: float(step) for step in range(5)})
    check(run, "flag", {10 * step: float(step > 2) for step in range(5)})
    check(run, "many/2999", {40: 2999 / 3})
    assert run.info.settings == {"beta": 0.04, "nested": {"a": [1, 2]}, "name": "x"}
    assert not [name for name in run.steps.names if name.startswith(("table", "h/"))]
    crashes = [event.data for event in run.events if event.kind == "crash"]
    assert [data["exit_code"] for data in crashes] == [1] * code
    assert only(next((tmp_path / "wandb").glob("offline-run-*/*.wandb"))).steps.names


def test_trackio(produce: Produce, tmp_path: Path) -> None:
    produce("log_trackio.py", needs=("trackio",))
    database = tmp_path / "trackio" / "project.db"
    before = sorted(path.name for path in database.parent.iterdir())
    runs = {run.info.id: run for run in open_runs(database)}
    assert set(runs) == {"a", "b"}
    for run in runs.values():
        check(run, "loss", {10 * step: value for step, value in enumerate(VALUES)})
        check(run, "reward_mean", {10 * step: step / 7 for step in range(5)})
        assert run.info.settings == {"beta": 0.1, "text": "x"}
    assert sorted(path.name for path in database.parent.iterdir()) == before


@pytest.mark.parametrize("store", ["mlflow.db", "mlruns"])
def test_mlflow(produce: Produce, tmp_path: Path, store: str) -> None:
    files = store == "mlruns"
    scheme = "file" if files else "sqlite"
    needs = ("mlflow",) if files else ("mlflow", "sqlalchemy", "alembic")
    uri = f"{scheme}:///{tmp_path / store}"
    produce("log_mlflow.py", uri, needs=needs)
    runs = {run.info.id: run for run in open_runs(tmp_path / store)}
    assert set(runs) == {"a", "b"}
    for run in runs.values():
        check(run, "loss", {5 * step: value for step, value in enumerate(VALUES)})
        check(run, "reward_mean", {5 * step: step / 7 for step in range(5)})
        assert run.info.settings == {"beta": 0.04, "text": "x"}
    kinds = {name: [event.kind for event in run.events] for name, run in runs.items()}
    assert kinds == {"a": [], "b": ["crash"]}


def history(out: Path) -> dict[str, dict[int, float]]:
    """The Trainer's own log by key, without its closing row."""
    state = json.loads((out / "trainer_state.json").read_text())
    rows = [row for row in state["log_history"] if "train_runtime" not in row]
    keys = {key for row in rows for key in row if key not in {"step", "epoch"}}
    return {key: {row["step"]: row[key] for row in rows if key in row} for key in keys}


def test_trl_says_the_same_everywhere(produce: Produce, tmp_path: Path) -> None:
    out = tmp_path / "out"
    needs = ("trl", "torch", "datasets", "tensorboard", "wandb", "trackio", "pandas")
    produce("train_trl.py", out, "tensorboard", "wandb", "trackio", needs=needs)
    expected = history(out)
    assert len(expected["reward"]) == 12
    state = only(out / "trainer_state.json")
    (events,) = {path.parent for path in tmp_path.rglob("events.out.tfevents.*")}
    compare(state, only(events), single=True)
    compare(state, only(tmp_path / "wandb" / "latest-run"))
    (database,) = (tmp_path / "trackio").glob("*.db")
    compare(state, only(database))
    rollouts(out, expected)


def compare(state: Run, other: Run, *, single: bool = False) -> None:
    for name in state.steps.names:
        if name == "epoch":
            continue
        series = state.steps.series(name)
        assert series is not None
        pairs = zip(series.steps.tolist(), series.values.tolist(), strict=True)
        theirs = name if name in other.steps.names else f"train/{name}"
        check(other, theirs, dict(pairs), single=single)


def rollouts(out: Path, expected: Mapping[str, Mapping[int, float]]) -> None:
    import pandas as pd

    runs = open_runs(out / "completions")
    seen = {step: run.rollouts(step) for run in runs for step in run.sample_steps()}
    assert sorted(seen) == list(range(1, 13))
    for step, found in seen.items():
        frame = pd.read_parquet(out / "completions" / f"completions_{step:05d}.parquet")
        told: list[Any] = [[r.prompt, r.completion, r.advantage] for r in found]
        given = frame[["prompt", "completion", "advantage"]].to_numpy().tolist()
        assert sorted(told) == sorted(given)
        assert len({rollout.group_id for rollout in found}) == frame["prompt"].nunique()
        rewards = [rollout.reward or 0.0 for rollout in found]
        assert sum(rewards) / 8 == pytest.approx(expected["reward"][step], rel=1e-5)
        for rollout in found:
            silent = rollout.prompt == "3+3="
            assert set(rollout.reward_components) == {"digits"} | (set() if silent else {"form"})
