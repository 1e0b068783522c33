"""Comet: `log_metric` and `log_metrics` of an experiment; also offline and disabled.

A metric without a step is of the step that the experiment was set to, else the n-th of its name.
"""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers, scalar
from ..wrapping import tap


def install(module: Any) -> None:
    """Tap all kinds of experiments, by the class that they have in common."""
    for name in ("BaseExperiment", "CometExperiment", "Experiment"):
        owner = getattr(module, name, None)
        if owner is not None:
            tap(owner, "log_metric", _log_metric, "comet.log_metric")
            tap(owner, "log_metrics", _log_metrics, "comet.log_metrics")
            tap(owner, "log_parameters", _log_parameters, "comet.log_parameters")


def _stream(experiment: Any) -> Stream:
    return Stream("comet", HUB.identity(experiment))


def _step(experiment: Any, stream: Stream, name: str, step: Any) -> int:
    known = getattr(experiment, "curr_step", None) if step is None else step
    return int(known) if known is not None else HUB.count((stream, name))


def _log_metric(
    experiment: Any, name: Any, value: Any, step: Any = None, *_: Any, **__: Any
) -> None:
    number = scalar(value)
    if number is not None:
        stream = _stream(experiment)
        at = _step(experiment, stream, str(name), step)
        HUB.row("comet.log_metric", stream, {str(name): number}, at)


def _log_metrics(
    experiment: Any, dic: Any, prefix: Any = None, step: Any = None, *_: Any, **__: Any
) -> None:
    stream = _stream(experiment)
    values = numbers(dic, "_", prefix="" if prefix is None else f"{prefix}_")
    HUB.row("comet.log_metrics", stream, values, _step(experiment, stream, "", step))


def _log_parameters(experiment: Any, parameters: Any, *_: Any, **__: Any) -> None:
    HUB.settings(_stream(experiment), dict(parameters))
