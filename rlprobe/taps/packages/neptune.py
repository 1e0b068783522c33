"""Neptune: `run["train/loss"].append(value)`, and `log`, its earlier name.

A value without a step is the n-th of its series.
"""

from __future__ import annotations

from typing import Any, Mapping

from ..hub import HUB
from ..streams import Stream
from ..values import numbers, scalar
from ..wrapping import tap

_SOURCE = "neptune.append"


def install(module: Any) -> None:
    """Tap what `run[...]` gives: a handler, or a series once there is one."""
    handler = getattr(module, "Handler", None)
    if handler is not None:
        tap(handler, "append", _append, _SOURCE)
        tap(handler, "log", _append, _SOURCE)
        tap(handler, "extend", _extend, _SOURCE)
    series = getattr(module, "Series", None)
    if series is not None:
        tap(series, "append", _append, _SOURCE)
        tap(series, "log", _append, _SOURCE)


def _name_of(owner: Any) -> str:
    path = getattr(owner, "_path", "")
    return path if isinstance(path, str) else "/".join(map(str, path))


def _stream(owner: Any) -> Stream:
    return Stream("neptune", HUB.identity(getattr(owner, "_container", owner)))


def _append(owner: Any, value: Any, step: Any = None, *_: Any, **__: Any) -> None:
    name = _name_of(owner)
    number = scalar(value)
    values = {name: number} if number is not None else {}
    if isinstance(value, Mapping):
        values = numbers(value, prefix=name + "/")
    _row(owner, name, values, step)


def _extend(owner: Any, values: Any, steps: Any = None, *_: Any, **__: Any) -> None:
    if isinstance(values, Mapping):
        return
    name = _name_of(owner)
    for place, value in enumerate(values):
        number = scalar(value)
        if number is not None:
            _row(owner, name, {name: number}, None if steps is None else steps[place])


def _row(owner: Any, name: str, values: Any, step: Any) -> None:
    stream = _stream(owner)
    if values:
        HUB.row(_SOURCE, stream, values, HUB.count((stream, name)) if step is None else int(step))
