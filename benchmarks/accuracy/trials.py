"""Trials of the lab: each trained once per directory, in a process of its own."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.faults import Fault

ENVIRONMENT = {
    "ACCELERATE_USE_CPU": "true",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


FORKS = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Trial:
    """One run of the lab: a fault with a seed, at a step."""

    fault: Fault
    seed: int
    at: int
    steps: int
    out: Path

    @property
    def log(self) -> Path:
        return self.out / "trainer_state.json"


def prepare() -> None:
    """Say so before the first trial: torch and TRL are imported once, in the process that forks."""
    os.environ.update(ENVIRONMENT)
    FORKS.set_forkserver_preload(["benchmarks.accuracy.training"])


def trained(trial: Trial) -> Trial:
    """The same trial, with its run in its directory."""
    if trial.log.exists():
        return trial
    shutil.rmtree(trial.out, ignore_errors=True)
    for arguments in _launches(trial):
        _prepare(trial, resumed="--resume" in arguments)
        process = FORKS.Process(target=_train, args=(str(trial.out), *arguments))
        process.start()
        process.join(1200)
        process.kill()
    return trial


def _train(out: str, *arguments: str) -> None:
    """In a process of its own, forked from one that has imported torch; ends as a program does."""
    from benchmarks.accuracy import training

    output = os.open(f"{out}/output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        training.main([out, *arguments])
    except Exception:
        sys.excepthook(*sys.exc_info())  # as set by the recorder
    finally:
        atexit._run_exitfuncs()


def _launches(trial: Trial) -> Iterator[list[str]]:
    common = ["--trainer", trial.fault.trainer, "--seed", str(trial.seed)]
    common += ["--steps", str(trial.steps), *trial.fault.options]
    if not trial.fault.restarts:
        yield [*common, "--fault", trial.fault.breaks, "--at", str(trial.at)]
        return
    yield [*common, "--stop", str(trial.at)]
    yield [*common, "--resume", str(trial.out / f"checkpoint-{trial.at}")]


def _prepare(trial: Trial, *, resumed: bool) -> None:
    trial.out.mkdir(parents=True, exist_ok=True)
    if resumed and trial.fault.name == "lost_optimizer":
        for name in ("optimizer.pt", "scheduler.pt"):
            (trial.out / f"checkpoint-{trial.at}" / name).unlink(missing_ok=True)
