"""Which key of a row is its step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlprobe import schema
from rlprobe.importers.numbers import number

STEP_KEYS = schema.step_keys().keys
# Keys that count something, but measure nothing: two rows that share only these share no metric.
COUNTERS = schema.step_keys().counters


def step_number(value: object) -> int | None:
    """A step: a whole number, also as text, or the first part of `12/500`."""
    if isinstance(value, str) and "/" in value:
        value = value.partition("/")[0]
    counted = number(value)
    if counted is None or not counted.is_integer() or abs(counted) >= 2**62:
        return None
    return int(counted)


def step_of(row: Mapping[str, Any], keys: Iterable[str] = STEP_KEYS) -> int | None:
    """The step of a row, under the usual keys; None if it has none."""
    for key in keys:
        if key in row and (step := step_number(row[key])) is not None:
            return step
    return None


def choose(rows: Sequence[Mapping[str, Any]], keys: Iterable[str] = STEP_KEYS) -> str | None:
    """The key that tells the step of most of these rows; None if they have none."""
    for key in keys:
        stepped = [row for row in rows if step_number(row.get(key)) is not None]
        if stepped and len(stepped) * 2 >= len(rows):
            return None if _others_are_alike(rows, key, stepped[0]) else key
    return None


def _others_are_alike(
    rows: Sequence[Mapping[str, Any]], key: str, example: Mapping[str, Any]
) -> bool:
    """Whether many rows without the step measure what those with it do: then it tells little."""
    measured = set(example) - COUNTERS
    others = [row for row in rows if step_number(row.get(key)) is None]
    alike = sum(len(measured & set(row)) * 2 > len(measured) for row in others)
    return alike * 5 > len(rows)
