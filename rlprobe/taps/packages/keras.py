"""Keras: the logs of each epoch of `fit`, under the epoch's number (that of its History)."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "keras fit"


def install(module: Any) -> None:
    """Tap the list of callbacks of a `fit`."""
    tap(module.CallbackList, "on_epoch_end", _on_epoch_end, _SOURCE)


def _on_epoch_end(callbacks: Any, epoch: Any, logs: Any = None, *_: Any, **__: Any) -> None:
    stream = Stream("keras", HUB.identity(callbacks), goes_on=True)
    HUB.row(_SOURCE, stream, numbers(logs or {}), int(epoch))
