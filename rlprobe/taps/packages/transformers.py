"""What a Hugging Face Trainer logs, where there is no rlprobe to record it from the inside."""

from __future__ import annotations

from typing import Any

from ..hub import HUB
from ..streams import Stream
from ..values import numbers
from ..wrapping import tap


def install(module: Any) -> None:
    """Tap `Trainer`."""
    tap(module.Trainer, "log", _log, "Trainer.log")


def _log(trainer: Any, logs: Any, *_: Any, **__: Any) -> None:
    if not trainer.is_world_process_zero():
        return
    stream = Stream("transformers", HUB.identity(trainer))
    values = {name: value for name, value in numbers(logs).items() if name != "step"}
    HUB.row("Trainer.log", stream, values, int(trainer.state.global_step))
