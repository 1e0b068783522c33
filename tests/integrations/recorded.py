"""The table of what is recorded from inside, and its rows as trainings that are run."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe import naming
from rlprobe.importers import open_runs
from rlprobe.store.run import Run
from tests.integrations.conftest import ENVIRONMENT
from tests.launcher import processes

TABLE = Path(__file__).parents[2] / "schemas" / "recorded.toml"
SCRIPTS = Path(__file__).with_name("scripts")
LAUNCHERS = {
    "": [],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": [
        *("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    ],
}
STACKS = Path(sys.prefix) / "stacks"  # RL stacks, installed without what they depend on
OFFLINE = {
    **ENVIRONMENT,
    "CLEARML_SKIP_PIP_FREEZE": "1",
    "COMET_OFFLINE_DIRECTORY": "comet",
    "KERAS_BACKEND": "torch",
    "RAY_AUTH_MODE": "disabled",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_NO_RAY = "node timed out during startup"  # 30 seconds, which a busy machine may need
# Its process that reports can hang at the fork; a thread does not.
CLEARML = "sdk { development { report_use_subprocess: false } }\n"
Stored = dict[str, dict[float, float]]


@dataclass(frozen=True)
class Case:
    """A script of a row of the table."""

    framework: str
    package: str
    script: str
    arguments: tuple[str, ...]
    launcher: str
    single: bool
    is_stack: bool = False

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.launcher, Path(self.script).stem, *self.arguments]))


@functools.cache
def rows() -> list[dict[str, Any]]:
    """The table."""
    found: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["recorded"]
    return found


def cases() -> list[Case]:
    """Every script of every row."""
    return [
        Case(
            row["framework"],
            row["package"],
            *_split(script),
            row.get("launcher", ""),
            row.get("single", False),
            is_stack=key == "logging",
        )
        for row in rows()
        for key in ("scripts", "logging")
        for script in row.get(key, ())
    ]


def _split(script: str) -> tuple[str, tuple[str, ...]]:
    name, *arguments = script.split()
    return name, tuple(arguments)


@dataclass
class Outcome:
    """What a script left behind.

    Attributes:
        stored: of each run what its tracker stored, by name and step.
        state: digest of weights and random number generators.
        imported: top-level modules.
        run_dir: where it was recorded, if it was.
        said: by rlprobe and the script.
    """

    stored: list[Stored]
    state: str
    imported: frozenset[str]
    run_dir: Path
    said: str


def train(case: Case, folder: Path, *, recorded: bool, again: bool = True) -> Outcome:
    """Run a script in a folder of its own, as its user would."""
    folder.mkdir(parents=True)
    (folder / "clearml.conf").write_text(CLEARML)
    out, run_dir = folder / "out.json", folder / "recording"
    command = [sys.executable, *LAUNCHERS[case.launcher], str(SCRIPTS / case.script), str(out)]
    command += case.arguments
    if recorded:
        command = [*processes.RECORD, "--run", str(run_dir), "--", *command]
    home = {"HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio")}
    if case.is_stack:
        home["PYTHONPATH"] = os.pathsep.join(map(str, (STACKS, STACKS / "skyrl-gym")))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**OFFLINE, **home},
        cwd=folder,
        check=False,
        timeout=280,
    )
    said = done.stdout + done.stderr
    if done.returncode and again and _NO_RAY in said:
        return train(case, folder / "again", recorded=recorded, again=False)
    assert done.returncode == 0, said[-4000:]
    shutil.rmtree(folder / "wandb", ignore_errors=True)
    content = json.loads(out.read_text())
    stored = [{name: dict(series) for name, series in run.items()} for run in content["stored"]]
    return Outcome(stored, content["state"], frozenset(content["imported"]), run_dir, said)


def recorded_runs(outcome: Outcome) -> list[Run]:
    """The runs of a recording; all but the first lie beside it."""
    folders = sorted(outcome.run_dir.parent.glob(outcome.run_dir.name + "*"))
    return [run for folder in folders for run in open_runs(folder)]


def differences(run: Run, stored: Stored, *, single: bool) -> list[str]:
    """Where a recording says something else than the tracker: missing, more, or another value."""
    found = []
    for name, told in _told(run.info.framework or "generic", stored).items():
        series = run.steps.series(name)
        if series is None:
            found.append(f"no {name} in {run.steps.names}")
            continue
        got = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        if told.keys() != got.keys():
            found.append(f"{name}: at {sorted(got)}, not at {sorted(told)}")
            continue
        found += [
            f"{name} at {step}: {got[step]!r}, not {wanted}"
            for step, wanted in told.items()
            if not any(_same(got[step], value, single=single) for value in wanted)
        ]
    return found


def _told(framework: str, stored: Stored) -> dict[str, dict[int, list[float]]]:
    """By metric and step what a tracker stored; of keys that mean the same, one value each."""
    names = naming.every()[framework]
    told: dict[str, dict[int, list[float]]] = {}
    for key, series in stored.items():
        how = names.naming(key)
        factor, offset = how.transform or (1.0, 0.0)
        metric = told.setdefault(how.name, {})
        for step, value in series.items():
            if value != how.sentinel:
                metric.setdefault(int(step), []).append(factor * value + offset)
    return told


def _same(got: float, want: float, *, single: bool) -> bool:
    if single:
        got, want = float(np.float32(got)), float(np.float32(want))
    return got == want or (np.isnan(got) and np.isnan(want))
