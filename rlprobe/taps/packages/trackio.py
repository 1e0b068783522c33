"""trackio: `trackio.log`. A row's step is the trainer's own where it holds one, else trackio's."""

from __future__ import annotations

from typing import Any, Set

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "trackio.log"
_known: Set[Stream] = set()  # streams whose settings are told


def install(module: Any) -> None:
    """Tap `Run`."""
    tap(module.Run, "log", _log, _SOURCE)


def _log(run: Any, metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
    stream = Stream("trackio", HUB.identity(run))
    own = getattr(run, "_next_step", None) if step is None else step
    HUB.row(_SOURCE, stream, numbers(metrics), own, axes=True)
    if stream not in _known:
        _known.add(stream)
        HUB.settings(stream, dict(getattr(run, "config", None) or {}))
