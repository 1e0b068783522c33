"""Lightning: what `self.log` gives to the loggers, also where there is none.

The step is that of Lightning's loggers: optimizer steps.
"""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap

_SOURCE = "Lightning's self.log"


def install(module: Any) -> None:
    """Tap the connector of loggers, through which a Trainer logs."""
    tap(module._LoggerConnector, "log_metrics", _log_metrics, _SOURCE)


def _log_metrics(connector: Any, metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
    trainer = connector.trainer
    if not metrics:
        return
    values = numbers(metrics)
    own = values.pop("step", None) if step is None else step
    if own is None:
        values.setdefault("epoch", trainer.current_epoch)
        own = trainer.fit_loop.epoch_loop._batches_that_stepped
    stream = Stream("lightning", HUB.identity(trainer), goes_on=True)
    HUB.row(_SOURCE, stream, values, int(own))
