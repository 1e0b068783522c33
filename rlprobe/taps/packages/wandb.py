"""Weights & Biases: `wandb.log`, `define_metric`, `summary`; also offline and disabled.

A row's step is the trainer's own where it holds one (`train/global_step`, or what `define_metric`
names for more than evaluations), as in a W&B log that is read; else W&B's. Nested names are joined
by a dot, as W&B does.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Dict, Set, Tuple

from ..hub import HUB
from ..streams import Stream, is_of_evaluations
from ..values import numbers
from ..wrapping import tap

_SOURCE = "wandb.log"
_SUMMARY = "wandb.summary"
_known: Set[Any] = set()  # streams whose settings are told
_counted: Dict[Any, int] = {}  # rows of disabled runs
_streams: Dict[int, Tuple[Callable[[], Any], Stream]] = {}  # `run.id` costs more than all the rest


def install(module: Any) -> None:
    """Tap a run's class: the real one, that of a disabled run, or a summary's."""
    run = getattr(module, "NoopRun", None) or getattr(module, "Run", None)
    if run is not None:
        tap(run, "log", _log, _SOURCE)
        tap(run, "define_metric", _define_metric, "wandb.define_metric")
    for name in ("Summary", "SummaryDisabled"):
        summary = getattr(module, name, None)
        if summary is not None:
            tap(summary, "update", _summary_update, _SUMMARY)
            tap(summary, "__setitem__", _summary_set, _SUMMARY)


def _stream(run: Any) -> Stream:
    known = _streams.get(id(run))
    if known is not None and known[0]() is run:
        return known[1]
    stream = Stream("wandb", getattr(run, "id", None) or HUB.identity(run))
    _streams[id(run)] = weakref.ref(run), stream
    return stream


def _log(run: Any, data: Any, step: Any = None, commit: Any = None, *_: Any, **__: Any) -> None:
    stream = _stream(run)
    if stream not in _known:
        _known.add(stream)
        HUB.settings(stream, _settings(run))
    HUB.row(_SOURCE, stream, numbers(data, "."), _step(run, stream, step, commit), axes=True)


def _settings(run: Any) -> dict[str, Any]:
    try:
        return dict(run.config)
    except Exception:  # not settled yet
        return {}


def _step(run: Any, stream: Stream, step: Any, commit: Any) -> int:
    """W&B's own number of a row: the one given, or of the calls that ended one so far."""
    own = getattr(run, "_local_step", None)
    if getattr(run, "_interface", None) is None:  # disabled: it counts nothing
        own = _counted.get(stream, 0)
        now = own if step is None else max(own, int(step))
        _counted[stream] = now + 1 if commit or (step is None and commit is None) else now
    if step is not None:
        return int(step)
    return int(own) if own is not None else HUB.count(stream)


def _define_metric(run: Any, name: Any, step_metric: Any = None, *_: Any, **__: Any) -> None:
    axis = getattr(step_metric, "name", step_metric)
    if isinstance(axis, str) and not is_of_evaluations(str(name)):
        HUB.axis(_stream(run), axis)


def _summary_update(summary: Any, given: Any = None, *_: Any, **__: Any) -> None:
    _tell_summary(given)


def _summary_set(summary: Any, key: Any, value: Any) -> None:
    _tell_summary({key: value})


def _tell_summary(given: Any) -> None:
    """W&B's run of this process is the one that a summary belongs to."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None and hasattr(given, "values"):
        HUB.summary(_SUMMARY, _stream(run), numbers(given, "."))
