"""Aim: `Run.track`. A value without a step is the n-th of its name and context."""

from __future__ import annotations

from typing import Any, Mapping

from ..hub import HUB
from ..streams import Stream
from ..values import numbers, scalar
from ..wrapping import tap

_SOURCE = "aim.track"
_TRAINING = ("", "train", "training")


def install(module: Any) -> None:
    """Tap `Run`."""
    tap(module.Run, "track", _track, _SOURCE)


def _track(
    run: Any,
    value: Any,
    name: Any = None,
    step: Any = None,
    epoch: Any = None,
    *_: Any,
    context: Any = None,
    **__: Any,
) -> None:
    stream = Stream("aim", getattr(run, "hash", None) or HUB.identity(run))
    before = _before(context)
    if isinstance(value, Mapping):
        values = numbers(value, prefix=before)
    else:
        number = scalar(value)
        values = {} if number is None else {before + str(name): number}
    if values:
        at = HUB.count((stream, before, str(name))) if step is None else int(step)
        HUB.row(_SOURCE, stream, values, at)


def _before(context: Any) -> str:
    """What tells `{"subset": "val"}` from training, before a name."""
    subset = str(context.get("subset", "")) if isinstance(context, Mapping) else ""
    return "" if subset in _TRAINING else subset + "/"
