"""Every row of the table of what is recorded: value for value, and the training unharmed."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integrations.recorded import (
    STACKS,
    Case,
    Outcome,
    cases,
    differences,
    recorded_runs,
    train,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
CASES = cases()
# What recording itself needs, and what that brings along.
OURS = {"rlprobe", "numpy", "pyarrow", "tzdata"}
TRACKERS = {
    *("accelerate", "aim", "clearml", "comet_ml", "keras", "lightning", "mlflow", "neptune", "ray"),
    *("pytorch_lightning", "stable_baselines3", "swanlab", "tensorboard", "tensorboardX"),
    *("torch", "trackio", "transformers", "trl", "wandb"),
}
MODULES = {"stable-baselines3": "stable_baselines3", "mlflow-skinny": "mlflow"}
Both = Callable[[Case], tuple[Outcome, Outcome]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A script, run plain and recorded."""

    @functools.cache
    def run(case: Case) -> tuple[Outcome, Outcome]:
        package = re.split(r"[\[><=]", case.package)[0]
        module = MODULES.get(package, package)
        there = (STACKS / package).is_dir() if case.is_stack else importlib.util.find_spec(module)
        if not there:
            pytest.skip(f"{case.package} is not installed")
        folder: Path = tmp_path_factory.mktemp(case.name)
        return (
            train(case, folder / "plain", recorded=False),
            train(case, folder / "recorded", recorded=True),
        )

    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_value_for_value_and_unharmed(case: Case, both: Both) -> None:
    plain, recorded = both(case)
    assert recorded.state == plain.state, "weights or random numbers differ"
    more = (recorded.imported - plain.imported) & TRACKERS
    assert not more, "imported by the recording alone"
    runs = recorded_runs(recorded)
    assert len(runs) == len(recorded.stored), recorded.said[-2000:]
    for stored in recorded.stored:
        tried = [differences(run, stored, single=case.single) for run in runs]
        assert [] in tried, "\n".join(min(tried, key=len)[:20]) + recorded.said[-1500:]


@pytest.mark.parametrize("name", ["accelerate-accelerate_loop", "ray_train"])
def test_each_rank_keeps_its_own(name: str, both: Both) -> None:
    case = next(case for case in CASES if case.name == name)
    _, recorded = both(case)
    (run,) = recorded_runs(recorded)
    assert run.info.world_size == 2
    of_ranks = run.ranks.series_by_rank("loss")
    (stored,) = recorded.stored
    steps = [int(step) for step in stored[next(key for key in stored if key.endswith("loss"))]]
    assert {rank: series.steps.tolist() for rank, series in of_ranks.items()} == {
        0: steps,
        1: steps,
    }
    assert [attempt.ended for attempt in run.info.attempts] == ["completed"]
