"""Accelerate: `Accelerator.log`, on every rank what that rank was told; also without trackers."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "accelerator.log"


def install(module: Any) -> None:
    """Tap `Accelerator`."""
    tap(module.Accelerator, "log", _log, _SOURCE)
    tap(module.Accelerator, "init_trackers", _init_trackers, "accelerator.init_trackers")


def _log(accelerator: Any, values: Any, step: Any = None, *_: Any, **__: Any) -> None:
    HUB.row(_SOURCE, _stream(accelerator), numbers(values), step, axes=step is None)


def _init_trackers(
    accelerator: Any, project_name: Any, config: Any = None, *_: Any, **__: Any
) -> None:
    if config:
        HUB.settings(_stream(accelerator), dict(config))


def _stream(accelerator: Any) -> Stream:
    return Stream("accelerate", HUB.identity(accelerator))
