"""Runs the demo's training under the recorder."""

from __future__ import annotations

import time
from pathlib import Path

from rlprobe.demo import training
from rlprobe.errors import UsageError
from rlprobe.recorder import Recorder


def fresh_directory(wanted: Path | None) -> Path:
    """The directory to record into, which must be new or empty.

    Raises:
        UsageError: it holds something already.
    """
    if wanted is None:
        return Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise UsageError(
            f"Couldn't record the demo into '{wanted}': it is not empty",
            hint="Give a new directory.",
        )
    return wanted


def record(directory: Path, *, seed: int = 0, steps: int = training.STEPS) -> None:
    """Train and record."""
    settings = {
        "num_generations": training.GROUP_SIZE,
        "max_completion_length": training.CAP,
        "learning_rate": training.LEARNING_RATE,
        "seed": seed,
    }
    with Recorder(
        directory, algorithm="GRPO", model="softmax policy (NumPy)", config=settings
    ) as recorder:
        training.train(recorder, seed=seed, steps=steps)
