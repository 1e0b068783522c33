"""The data of an event, as it may lie in a recording from anywhere.

Detectors compute with the fields of the kinds that rlprobe knows: one that is not what it should be
is left out there, as if it had not been told. The data of other kinds is the user's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rlprobe import schema
from rlprobe.store import limits

_MOST_COUNT = 10**15
_MOST_RANK = 1 << 20


def decoded(kind: str, text: str | None) -> tuple[dict[str, Any], bool]:
    """The object that a text of JSON is, and whether that is all of it.

    Of a known kind only fields that are what they should be. Text that is no JSON, or larger or
    deeper than data ever is, is no data.
    """
    data = _parsed(text or "{}")
    if data is None:
        return {}, False
    if not isinstance(data, dict):
        data = {"value": data}
    if kind not in schema.event_kinds():
        return data, True
    fitting = {name: value for name, value in data.items() if _fits(name, value)}
    lacking = any(data[name] is not None for name in data.keys() - fitting.keys())
    return fitting, not lacking


def _parsed(text: str) -> Any:
    if len(text) > limits.MOST_DATA and not limits.lifted():
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if nested_at_most(data, limits.MOST_NESTING) else None


def nested_at_most(value: Any, depth: int) -> bool:
    """Whether lists and objects lie in each other at most so deep."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return not any(isinstance(item, dict | list) for item in level)


def _scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _count(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < _MOST_COUNT  # false of NaN


def _rank(value: Any) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and -_MOST_RANK < value < _MOST_RANK
    )


def _measured(value: Any) -> bool:
    """A double: infinite or NaN at most."""
    return isinstance(value, float) or _count(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("path", "source", "exception", "kind", "meaning", "remedy"), _scalar),
    **dict.fromkeys(("signal", "op", "group", "group_name", "device", "what"), _scalar),
    **dict.fromkeys(("name", "probe", "checkpoint", "line"), _scalar),
    **dict.fromkeys(("nan_count", "inf_count", "exit_code", "seq", "enqueued"), _count),
    **dict.fromkeys(("completed", "ran_ms", "requests", "total", "count"), _count),
    **dict.fromkeys(("names", "has", "lacks", "tail"), _texts),
    **dict.fromkeys(("kl", "grad_norm"), _measured),
    "rank": _rank,
}


def _fits(name: str, value: Any) -> bool:
    test = _FIELDS.get(name)
    return test is None or test(value)
