"""trackio: `trackio.log`. A row's step is the trainer's own where it holds one, else trackio's."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "trackio.log"


def install(module: Any) -> None:
    """Tap `Run`."""
    tap(module.Run, "log", _log, _SOURCE)


def _log(run: Any, metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
    stream = Stream("trackio", HUB.identity(run))
    own = getattr(run, "_next_step", None) if step is None else step
    HUB.row(_SOURCE, stream, numbers(metrics), own, axes=True)
    config = getattr(run, "config", None)
    if config and HUB.count((stream, "settings")) == 0:
        HUB.settings(stream, dict(config))
