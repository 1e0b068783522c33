"""Stable-Baselines3: what `Logger.record` collected, at each `dump`; the step is its own."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "stable_baselines3.Logger"


def install(module: Any) -> None:
    """Tap `Logger`."""
    tap(module.Logger, "dump", _dump, _SOURCE)


def _dump(logger: Any, step: Any = 0, *_: Any, **__: Any) -> None:
    stream = Stream("stable_baselines3", HUB.identity(logger), goes_on=True)
    HUB.row(_SOURCE, stream, numbers(logger.name_to_value), int(step))
