"""Shared by the importers' tests: write a log, read its one run, look at its points."""

from __future__ import annotations

import math
from pathlib import Path

from rlprobe.importers import open_runs
from rlprobe.store.run import Run

Points = list[tuple[int, float]]


def log(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


def read(folder: Path, name: str, text: str | bytes) -> Run:
    return only(log(folder, name, text))


def points(run: Run, metric: str) -> Points:
    """The line of a metric: (step, value), NaN as the text that compares."""
    series = run.steps.series(metric)
    return [] if series is None else list(zip(series.steps.tolist(), series.values, strict=True))


def is_nan(value: float) -> bool:
    return math.isnan(value)
