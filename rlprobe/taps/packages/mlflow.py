"""MLflow: `log_metric`, `log_metrics`, `log_params`, by the client that all of them call.

A metric without a step is the n-th of its name; MLflow gives all of them step 0, before the client
sees them: so the functions of `mlflow` itself are listened to for that alone.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Dict

from ..hub import HUB
from ..streams import Stream
from ..values import scalar
from ..wrapping import tap

_SOURCE = "mlflow.log_metric"
_STEP_AT = {"log_metric": 2, "log_metrics": 1}  # place of the argument


class _Call(threading.local):
    """Of a thread: whether it is in a call that was given no step."""

    is_without_step = False


_CALL = _Call()


def install(module: Any) -> None:
    """Tap `MlflowClient`, or listen to the functions of `mlflow`."""
    client = module.MlflowClient
    if hasattr(module, "log_metrics"):
        for name, place in _STEP_AT.items():
            _listen(module, name, place)
        return
    tap(client, "log_metric", _log_metric, _SOURCE)
    tap(client, "log_batch", _log_batch, _SOURCE)
    tap(client, "log_param", _log_param, "mlflow.log_param")


def _listen(module: Any, name: str, place: int) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def listening(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get("step")
        _CALL.is_without_step = given is None
        try:
            return original(*args, **kwargs)
        finally:
            _CALL.is_without_step = False

    setattr(module, name, listening)


def _stream(run_id: Any) -> Stream:
    return Stream("mlflow", str(run_id))


def _step(stream: Stream, key: str, step: Any) -> Any:
    """The step that was given, or how often this name came without one."""
    return HUB.count((stream, key)) if step is None or _CALL.is_without_step else step


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
        stream = _stream(run_id)
        HUB.row(_SOURCE, stream, {str(key): number}, _step(stream, str(key), step))


def _log_batch(
    client: Any, run_id: Any, metrics: Any = (), params: Any = (), *_: Any, **__: Any
) -> None:
    stream = _stream(run_id)
    rows: Dict[Any, Dict[str, Any]] = {}
    for metric in metrics:
        key = str(metric.key)
        rows.setdefault(_step(stream, key, metric.step), {})[key] = metric.value
    for step, values in rows.items():
        HUB.row(_SOURCE, stream, values, step)
    if params:
        HUB.settings(stream, {one.key: one.value for one in params})


def _log_param(client: Any, run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    HUB.settings(_stream(run_id), {str(key): value})
