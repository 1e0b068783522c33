"""Labelled logs: a folder with `cases.json`, and what of a case a set of findings gets right.

A case has an `id`, a file (`norm`, or `raw`), whether it is `healthy`, the classes of fault that it
may be called by (`expect`), its `first_bad_step` (and others that are as good), how far off the
onset may be (`tolerance_steps`), and whether people would agree on it (`ambiguity`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe.errors import RlprobeError
from rlprobe.findings import Finding, Severity
from rlprobe.importers import open_runs
from rlprobe.scan.context import Context

CLASSES: dict[str, tuple[str, ...]] = {
    "GRAD_PATHOLOGY:nonfinite": ("grad_nan",),
    "GRAD_PATHOLOGY:spikes": ("grad_spikes",),
    "GRAD_PATHOLOGY": ("grad_nan", "grad_spikes"),
    "NONFINITE_METRIC": ("grad_nan",),
    "LOST_SIGNAL": ("grad_nan", "other"),
    "KL_BLOWUP": ("kl_blowup",),
    "LENGTH_EXPLOSION": ("length_explosion",),
    "LENGTH_COLLAPSE": ("length_collapse",),
    "TRUNCATION": ("truncation",),
    "ZERO_VARIANCE": ("zero_variance",),
    "ECHO_TRAP": ("zero_variance", "other"),
    "ADVANTAGE_NOISE": ("zero_variance", "grad_spikes"),
    "FORMAT_GAMING": ("reward_hacking",),
    "REWARD_HACKING": ("reward_hacking",),
    "REWARD_COLLAPSE": ("reward_collapse",),
    "PREFERENCE_COLLAPSE": ("reward_collapse", "divergence", "other"),
    "ENTROPY_COLLAPSE": ("entropy_collapse",),
    "ENTROPY_EXPLOSION": ("entropy_explosion",),
    "DEAD_GRADIENT": ("dead_gradient",),
    "NO_LEARNING": ("dead_gradient", "other"),
    "CLIP_SATURATION": ("clip_saturation",),
    "VALUE_DIVERGENCE": ("divergence",),
    "DIVERGENCE": ("divergence",),
    "OVERFIT": ("divergence", "other"),
    "LOSS_SPIKE": ("loss_spike",),
    "POLICY_MISMATCH": ("mismatch",),
    "LOSS_SCALE_COLLAPSE": ("loss_scale",),
    "RANK_OUTLIER": ("rank",),
    "RANK_SILENT": ("rank",),
    "STRAGGLER": ("rank",),
    "RESTART_DISCONTINUITY": ("restart",),
    "DATA_REPLAY": ("restart",),
}
BY_METRIC: dict[str, tuple[str, ...]] = {  # part of a metric's name: what REGIME_CHANGE may mean
    "kl": ("kl_blowup", "mismatch"),
    "reward": ("reward_collapse", "reward_hacking"),
    "length": ("length_explosion", "length_collapse"),
    "truncation": ("truncation",),
    "entropy": ("entropy_collapse", "entropy_explosion"),
    "zero_variance": ("zero_variance",),
    "grad": ("grad_spikes",),
    "loss": ("loss_spike", "divergence"),
    "clip": ("clip_saturation",),
    "accuracy": ("divergence",),
}


@dataclass(frozen=True)
class Case:
    """One labelled log.

    Attributes:
        source: who it comes from: a repository, the author of a report, a lab.
        onsets: steps at which the fault may be said to begin.
        slack: rows that the onset may be off.
        steps: the run's logged steps.
    """

    name: str
    source: str
    healthy: bool
    clear: bool
    expect: frozenset[str]
    onsets: tuple[int, ...]
    slack: int
    context: Context

    @property
    def steps(self) -> np.ndarray[Any, Any]:
        steps: np.ndarray[Any, Any] = self.context.steps
        return steps

    def found(self, findings: Iterable[Finding]) -> bool:
        """Whether the fault is called by a right name, in time."""
        return any(self._timely(item) for item in findings if classes(item) & self.expect)

    def _timely(self, finding: Finding) -> bool:
        if not self.onsets or not len(self.steps):
            return True
        row = int(np.searchsorted(self.steps, finding.first_bad_step))
        rows = np.searchsorted(self.steps, self.onsets)
        return int(np.abs(rows - row).min()) <= self.slack


def classes(finding: Finding) -> frozenset[str]:
    """The classes of fault that a finding stands for."""
    if finding.detector == "REGIME_CHANGE":
        parts = [
            names
            for part, names in BY_METRIC.items()
            if any(part in metric for metric in finding.metrics)
        ]
        return frozenset(name for names in parts for name in names) | {"other"}
    whole = CLASSES.get(finding.detector, ("other",))
    return frozenset(CLASSES.get(f"{finding.detector}:{finding.variant}", whole))


def loud(findings: Iterable[Finding]) -> list[Finding]:
    return [item for item in findings if item.severity >= Severity.WARNING]


def load(folder: Path) -> list[Case]:
    """The cases that are scored and can be read, each with its run in memory."""
    listed = json.loads((folder / "cases.json").read_text())
    cases = [_case(folder, entry) for entry in listed if entry.get("scored", True)]
    return [case for case in cases if case is not None]


def _case(folder: Path, entry: dict[str, Any]) -> Case | None:
    path = folder / (entry.get("norm") or entry["raw"])
    try:
        run = next(iter(open_runs(path)))
    except (RlprobeError, StopIteration):
        return None
    given = [entry["first_bad_step"], *entry.get("alt_first_bad", ())]
    every = max(1, int(entry.get("logging_interval") or 1))
    return Case(
        name=entry["id"],
        source=source(entry),
        healthy=bool(entry["healthy"]),
        clear=entry.get("ambiguity", "clear") == "clear",
        expect=frozenset(entry["expect"]),
        onsets=tuple(int(step) for step in given if step is not None),
        slack=max(2, round(entry.get("tolerance_steps", 0) / every)),
        context=Context(run),
    )


def source(entry: dict[str, Any]) -> str:
    """Who a log comes from: its repository, the report it was pasted in, or the name before `-`."""
    repository = re.search(
        r"(?:github\.com|huggingface\.co)/([\w.-]+/[\w.-]+)", entry.get("url") or ""
    )
    if repository:
        return repository[1]
    if entry.get("source") == "bugreport":
        report = re.match(r"[A-Z]+-\d+", entry["id"])
        return report[0] if report else str(entry["id"])
    return str(entry["id"]).partition("-")[0]
