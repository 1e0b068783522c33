"""Which of its own numbers a row's step is, where the writer's counter is something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlprobe import schema
from rlprobe.importers.numbers import number
from rlprobe.importers.rows import RowTable

AXES = schema.step_keys().axes
EVALUATION = frozenset({"val", "valid", "validation", "test", "eval", "evaluation", "dev"})
_COUNTED = "_step"
_OWN = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})


class StepAxis:
    """Numbers rows by the trainer's step where they carry one, else by the writer's counter.

    W&B and its kin count calls of `log`, and trainers call it several times per step: rows of one
    step in a row become one. A row without the trainer's step belongs to the step logged last.
    """

    def __init__(self, counter: str) -> None:
        self._table = RowTable()
        self._open: tuple[int, dict[str, Any]] | None = None
        self._counter = counter
        self._axes: dict[str, None] = dict.fromkeys(AXES)
        self._used: dict[str, None] = {}
        self._carried = 0
        self._latest: int | None = None

    def declare(self, axis: str, metric: str = "") -> None:
        """Prefer this key: the writer said that it is the axis of a metric, or a pattern of them.

        The axis of evaluations alone counts evaluations: rows of training would stand still on it.
        """
        of_evaluations = metric.replace(".", "/").partition("/")[0].lower() in EVALUATION
        if axis and axis not in self._axes and not of_evaluations:
            self._axes = {axis: None, **self._axes}

    def add(self, row: Mapping[str, Any], counted: int) -> None:
        """Add a row; `counted` is the writer's own number of it."""
        axis, step = self._axis_of(row)
        if axis is not None:
            self._used[axis] = None
            self._latest = step
        elif self._latest is not None:
            self._carried += 1
            step = self._latest
        else:
            step = counted
        metrics = {k: v for k, v in row.items() if k not in _OWN and not _media(v)}
        metrics = _without_flat_media(metrics)
        if axis is not None and metrics:
            metrics[_COUNTED] = counted  # a counter, where the user asks for it
        if self._open is not None and self._open[0] == step:
            self._open[1].update(metrics)
        else:
            self._close()
            self._open = (step, metrics)

    def _close(self) -> None:
        if self._open is not None:
            self._table.add(*self._open)
        self._open = None

    def table(self) -> RowTable:
        """The rows, without what numbers and times them, and without media."""
        self._close()
        return self._table

    def _axis_of(self, row: Mapping[str, Any]) -> tuple[str | None, int]:
        for axis in self._axes:
            value = number(row.get(axis))
            if value is not None and value.is_integer() and abs(value) < 2**63:
                return axis, int(value)
        return None, 0

    def notes(self) -> list[str]:
        """What was assumed, as sentences."""
        if not self._used:
            return []
        notes = [f"step read from {', '.join(self._used)}, not from {self._counter}"]
        if self._carried:
            notes.append(f"{self._carried:,} rows without a step of their own: at the step before")
        return notes


def _media(value: object) -> bool:
    """Tables, histograms and pictures are objects that name their type."""
    return isinstance(value, Mapping) and "_type" in value


def _without_flat_media(row: dict[str, Any]) -> dict[str, Any]:
    """W&B's files spread such an object over keys: `table/_type`, `table/size`."""
    media = tuple(key.removesuffix("_type") for key in row if key.endswith("/_type"))
    return {k: v for k, v in row.items() if not k.startswith(media)} if media else row
