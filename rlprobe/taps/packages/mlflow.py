"""MLflow: `log_metric`, `log_metrics`, `log_params`, by the client that all of them call.

A metric without a step is the n-th of its name; MLflow gives all of them step 0.
"""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import scalar
from ..wrapping import tap

_SOURCE = "mlflow.log_metric"


def install(module: Any) -> None:
    """Tap `MlflowClient`."""
    client = module.MlflowClient
    tap(client, "log_metric", _log_metric, _SOURCE)
    tap(client, "log_batch", _log_batch, _SOURCE)
    tap(client, "log_param", _log_param, "mlflow.log_param")


def _log_metric(
    client: Any,
    run_id: str,
    key: Any,
    value: Any,
    timestamp: Any = None,
    step: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    number = scalar(value)
    if number is not None:
        _row(run_id, key, number, step)


def _row(run_id: Any, key: Any, number: Any, step: Any) -> None:
    stream = Stream("mlflow", str(run_id))
    HUB.row(_SOURCE, stream, {str(key): number}, HUB.count((stream, key)) if step is None else step)


def _log_batch(
    client: Any, run_id: Any, metrics: Any = (), params: Any = (), *_: Any, **__: Any
) -> None:
    for metric in metrics:
        _row(run_id, metric.key, metric.value, metric.step)
    if params:
        HUB.settings(Stream("mlflow", str(run_id)), {one.key: one.value for one in params})


def _log_param(client: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    HUB.settings(Stream("mlflow", str(run_id)), {str(key): value})
