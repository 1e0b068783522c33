"""ClearML: `Logger.report_scalar`. A metric's name is title and series: `loss/train`."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import scalar
from ..wrapping import tap


def install(module: Any) -> None:
    """Tap `Logger`."""
    tap(module.Logger, "report_scalar", _report_scalar, "clearml.report_scalar")
    tap(module.Logger, "report_single_value", _report_single_value, "clearml.report_single_value")


def _stream(logger: Any) -> Stream:
    return Stream("clearml", HUB.identity(getattr(logger, "_task", logger)))


def _report_scalar(
    logger: Any, title: Any, series: Any, value: Any, iteration: Any, *_: Any, **__: Any
) -> None:
    number = scalar(value)
    name = str(title) if title == series else f"{title}/{series}"
    if number is not None:
        HUB.row("clearml.report_scalar", _stream(logger), {name: number}, int(iteration))


def _report_single_value(logger: Any, name: Any, value: Any, *_: Any, **__: Any) -> None:
    number = scalar(value)
    if number is not None:
        HUB.summary("clearml.report_single_value", _stream(logger), {str(name): number})
