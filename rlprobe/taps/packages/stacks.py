"""RL stacks that log through an object of their own: verl, SkyRL, OpenRLHF, NeMo-RL.

The object is tapped, so that what goes to the console alone is recorded as well, and what goes to
several trackers once. Published call shapes: verl 0.9 and SkyRL 0.3 `Tracking.log(data, step)`;
OpenRLHF 0.11 `WandbLogger.log_train(global_step, logs)` and `log_eval`, also of its
`TensorboardLogger`; NeMo-RL `Logger.log_metrics(metrics, step, prefix, step_metric)` and
`log_hyperparams(params)`. Rows of NeMo-RL that bring an axis of their own (its monitor of GPUs
counts seconds) are no steps of the training, and left out.
"""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_CLASSES = ("WandbLogger", "TensorboardLogger")


def install(module: Any) -> None:
    """Tap what the stack has of these."""
    if hasattr(module, "Tracking"):
        tap(module.Tracking, "log", _log, "Tracking.log")
    for name in _CLASSES:
        owner = getattr(module, name, None)
        if hasattr(owner, "log_train"):
            tap(owner, "log_train", _log_train, f"{name}.log_train")
            tap(owner, "log_eval", _log_eval, f"{name}.log_eval")
    if hasattr(getattr(module, "Logger", None), "log_metrics"):
        tap(module.Logger, "log_metrics", _log_metrics, "Logger.log_metrics")
        tap(module.Logger, "log_hyperparams", _log_hyperparams, "Logger.log_hyperparams")


def _stream() -> Stream:
    """A process of these stacks trains once."""
    return Stream("stack", "")


def _log(tracking: Any, data: Any, step: Any = None, *_: Any, **__: Any) -> None:
    HUB.row("Tracking.log", _stream(), numbers(data), None if step is None else int(step))


def _log_train(logger: Any, global_step: Any, logs_dict: Any, *_: Any, **__: Any) -> None:
    HUB.row("log_train", _stream(), numbers(logs_dict, prefix="train/"), int(global_step))


def _log_eval(logger: Any, global_step: Any, logs_dict: Any, *_: Any, **__: Any) -> None:
    HUB.row("log_eval", _stream(), numbers(logs_dict, prefix="eval/"), int(global_step))


def _log_metrics(
    logger: Any,
    metrics: Any,
    step: Any,
    prefix: Any = "",
    step_metric: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    if step_metric and step_metric in metrics:
        return
    before = f"{prefix}/" if prefix else ""
    HUB.row("Logger.log_metrics", _stream(), numbers(metrics, prefix=before), int(step))


def _log_hyperparams(logger: Any, params: Any, *_: Any, **__: Any) -> None:
    HUB.settings(_stream(), dict(params))
