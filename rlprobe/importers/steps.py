"""Which key of a row is its step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlprobe.importers.numbers import number

# The better comes first: W&B's own counter `_step` is the last resort, and `global_step` of
# open-instruct counts episodes, beside which its `training_step` is the step.
STEP_KEYS = (
    "step",
    "training_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "global_step",
    "current_steps",
    "global_step/max_steps",
    "Step",
    "iteration",
    "iter",
    "update",
    "progress/batch",
    "time/total_timesteps",
    "train/step",
    "rollout/step",
    "steps",
    "num_updates",
    "system/step",
    "_step",
    "episode",
)
# Keys that count something, but measure nothing: two rows that share only these share no metric.
COUNTERS = frozenset(
    {
        *STEP_KEYS,
        "epoch",
        "train/epoch",
        "training/epoch",
        "time",
        "timestamp",
        "_timestamp",
        "_runtime",
        "_wandb",
        "total_steps",
        "percentage",
        "attempt",
        "wall_time",
    }
)


def step_number(value: object) -> int | None:
    """A step: a whole number, also as text, or the first part of `12/500`."""
    if isinstance(value, str) and "/" in value:
        value = value.partition("/")[0]
    found = number(value)
    if found is None or not found.is_integer() or abs(found) >= 2**62:
        return None
    return int(found)


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step of a row, under the usual keys; None if it has none."""
    for key in STEP_KEYS:
        if key in row and (step := step_number(row[key])) is not None:
            return step
    return None


def choose(rows: Sequence[Mapping[str, Any]], keys: Iterable[str] = STEP_KEYS) -> str | None:
    """The key that tells the step of most of these rows; None if they have none."""
    for key in keys:
        told = [row for row in rows if step_number(row.get(key)) is not None]
        if told and len(told) * 2 >= len(rows):
            return None if _others_are_alike(rows, key, told[0]) else key
    return None


def _others_are_alike(
    rows: Sequence[Mapping[str, Any]], key: str, example: Mapping[str, Any]
) -> bool:
    """Whether many rows without the step measure what those with it do: then it tells little."""
    measured = set(example) - COUNTERS
    others = [row for row in rows if step_number(row.get(key)) is None]
    alike = sum(len(measured & set(row)) * 2 > len(measured) for row in others)
    return alike * 5 > len(rows)
