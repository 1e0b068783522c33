"""What rows say of themselves: the metric that their value is of, the run that they are of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rlprobe.importers.numbers import number

NAME_KEYS = ("metric", "tag", "metric_name", "name", "key", "variable", "scalar")
VALUE_KEYS = ("value", "metric_value", "val")
RUN_KEYS = ("run", "run_name", "run_id", "trial_id")


def keys_of(names: Collection[str]) -> tuple[str, str] | None:
    """The key of the metric's name and that of its value; None where there are not both."""
    name = next((key for key in NAME_KEYS if key in names), None)
    value = next((key for key in VALUE_KEYS if key in names), None)
    return None if name is None or value is None else (name, value)


def spread(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with its value under the name that it gives; as it is if it gives none."""
    keys = keys_of(row)
    if keys is None:
        return row
    name, value = row[keys[0]], row[keys[1]]
    if not isinstance(name, str) or not name or number(name) is not None:
        return row
    return {**{key: said for key, said in row.items() if key not in keys}, name: value}


def run_key(rows: Sequence[Mapping[str, Any]], step_key: str | None) -> str | None:
    """The key that tells the run of each row, where several runs have the same steps."""
    for key in RUN_KEYS:
        at: dict[str, set[float | None]] = {}
        for row in rows:
            if isinstance(row.get(key), str) and step_key is not None:
                at.setdefault(row[key], set()).add(number(row.get(step_key)))
        if len(at) > 1 and any(first & second for first, second in pairwise(at.values())):
            return key
    return None
