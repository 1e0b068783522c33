"""SwanLab: `swanlab.log`; also offline and disabled.

A row's step is the trainer's own where it holds one, else SwanLab's.
"""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "swanlab.log"


def install(module: Any) -> None:
    """Tap a run's class, which later versions call `Run` and earlier ones `SwanLabRun`."""
    for name in ("Run", "SwanLabRun"):
        if hasattr(module, name):
            tap(getattr(module, name), "log", _log, _SOURCE)


def _log(run: Any, data: Any, step: Any = None, *_: Any, **__: Any) -> None:
    stream = Stream("swanlab", HUB.identity(run))
    HUB.row(_SOURCE, stream, numbers(data), step, axes=True)
