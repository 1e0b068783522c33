"""Rows of {key: value} -> columns under canonical names.

What every row-shaped format shares: numbers in any spelling, the framework told by its keys,
aliases applied, several rows of one step merged, a step that goes back opening a new attempt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe import schema
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray, Problem

STEP_KEYS = ("step", "global_step", "training_step", "_step", "iteration", "iter", "update")
_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
}


def number(value: object) -> float | None:
    """A logged value as a number; None if it is none. Never evaluates anything."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if isinstance(value, str):
        return _spelled(value)
    return None


def _spelled(text: str) -> float | None:
    word = text.strip()
    if len(word) > 64:
        return None
    try:
        return float(word)
    except ValueError:
        return _WORDS.get(word.lower())


@dataclass
class RowTable:
    """Collects rows and makes a run of them."""

    steps: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    columns: dict[str, dict[int, float]] = field(default_factory=dict)
    _attempt: int = 1

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add one row; a row of the step before joins it, a step that goes back starts anew."""
        if not self.steps or step != self.steps[-1]:
            if self.steps and step < self.steps[-1]:
                self._attempt += 1
            self.steps.append(step)
            self.attempts.append(self._attempt)
        row = len(self.steps) - 1
        for key, value in values.items():
            self.columns.setdefault(key, {})[row] = value

    def run(
        self,
        path: Path,
        source: str,
        *,
        framework: str | None = None,
        settings: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
        events: Iterable[Event] = (),
        problems: Iterable[Problem] = (),
    ) -> TableRun:
        """The collected rows as a run."""
        framework = framework or schema.detect_framework(self.columns)
        aliases = schema.aliases()[framework or "generic"]
        step: IntArray = np.array(self.steps, dtype=np.int64)
        attempt: IntArray = np.array(self.attempts, dtype=np.int64)
        columns: dict[str, tuple[FloatArray, BoolArray]] = {}
        unmapped = []
        for key in sorted(self.columns, key=aliases.rank):
            name = aliases.canonical(key)
            if name is None:
                unmapped.append(key)
            columns[name or key] = self._column(key, aliases.sentinel(key))
        info = RunInfo(
            path=str(path),
            id=path.name,
            source=source,
            framework=framework,
            algorithm=_algorithm(self.columns),
            settings=settings or {},
            attempts=_attempts(step, attempt),
            notes=tuple(notes),
            unmapped=tuple(sorted(unmapped)),
        )
        frame = frame_of(step, columns, attempt=attempt)
        return TableRun(info, frame, events=tuple(events), problems=tuple(problems))

    def _column(self, key: str, sentinel: float | None) -> tuple[FloatArray, BoolArray]:
        values = np.full(len(self.steps), np.nan)
        valid = np.zeros(len(self.steps), dtype=np.bool_)
        logged = self.columns[key]
        rows = np.fromiter(logged.keys(), np.int64, len(logged))
        values[rows] = np.fromiter(logged.values(), np.float64, len(logged))
        valid[rows] = True
        if sentinel is not None:
            valid &= values != sentinel
        return values, valid


def _attempts(step: IntArray, attempt: IntArray) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            int(n),
            first_step=int(step[attempt == n].min()),
            last_step=int(step[attempt == n].max()),
        )
        for n in np.unique(attempt)
    )


def _algorithm(keys: Iterable[str]) -> str | None:
    present = {key.removeprefix("train/") for key in keys}
    if present & {"frac_reward_zero_std", "completions/mean_length", "completion_length"}:
        return "GRPO"
    if {"rewards/chosen", "rewards/rejected"} <= present:
        return "DPO"
    return "SFT" if "mean_token_accuracy" in present else None
