"""Ray: `train.report`, `tune.report`, and what `Trainable.train` returns (RLlib's algorithms).

A trial of a search is a run of its own. Nested results are joined by `/`, as Ray's loggers do. The
step is Ray's `training_iteration`, or the number of the report. What Tune's callbacks tell trackers
of a result, in the driver or in an actor of their own, is said again, and not heard.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Optional

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap, tap_result

_REPORT = "ray.report"
_TRAIN = "Trainable.train"
_ITERATION = "training_iteration"
# Of a result, what is no metric and can be large.
_LEFT_OUT = frozenset({"config", "hist_stats", "pid", "trial_id"})

_SAID_AGAIN = {
    "CallbackList": ("on_trial_result", "on_trial_complete"),
    "_WandbLoggingActor": ("run",),
}
_REPORTING = "FunctionTrainable"  # reports from within


def install(module: Any) -> None:
    """Tap what a training function reports with, or the class of trainables."""
    for owner, names in _SAID_AGAIN.items():
        for name in names:
            tap(getattr(module, owner, None), name, _not_heard, _REPORT)
    if hasattr(module, "ThreadRunner"):
        _watch_the_end(module.ThreadRunner)
    elif hasattr(module, "Trainable"):
        tap_result(module.Trainable, "train", _trained, _TRAIN)
    elif hasattr(module, "report"):
        tap(module, "report", _report, _REPORT)


def _watch_the_end(runner: Any) -> None:
    """See how a worker's training function ends: Ray kills the worker then."""
    original = runner.run

    @functools.wraps(original)
    def run(self: Any, target: Any) -> Any:
        return original(self, _ending(target))

    runner.run = run


def _ending(target: Any) -> Any:
    @functools.wraps(target)
    def watched() -> Any:
        try:
            result = target()
        except BaseException as error:
            _tell_end(error)
            raise
        _tell_end(None)
        return result

    return watched


def _tell_end(error: Optional[BaseException]) -> None:
    try:
        HUB.training_ended(error)
    except Exception as failure:
        HUB.fail(_REPORT, failure)


def _not_heard(*_: Any, **__: Any) -> None:
    """While the call runs, no tap of this thread records."""


def _trial() -> str:
    """The trial that this process works for; empty where there is no search."""
    session: Any = sys.modules.get("ray.train._internal.session")
    try:
        current = session.get_session() if session is not None else None
        return str(current.trial_id or "") if current is not None else ""
    except Exception:
        return ""


def _report(metrics: Any, *_: Any, **__: Any) -> None:
    trial = _trial()
    stream = Stream("ray", trial or "train", key=trial)
    HUB.row(_REPORT, stream, numbers(metrics), HUB.count((stream, _ITERATION)) + 1)


def _trained(result: Any, trainable: Any, *_: Any, **__: Any) -> None:
    kinds = [kind.__name__ for kind in type(trainable).__mro__]
    if not isinstance(result, dict) or _REPORTING in kinds:
        return
    trial = str(getattr(trainable, "trial_id", None) or "")
    key = "" if trial in {"", "default"} else trial
    stream = Stream("ray", trial or HUB.identity(trainable), key=key)
    metrics = {name: value for name, value in result.items() if name not in _LEFT_OUT}
    HUB.row(_TRAIN, stream, numbers(metrics), int(result.get(_ITERATION, 0)))
