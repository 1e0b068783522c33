"""What frameworks say in the command's output beside metrics, as events of the recording.

Called from the thread that reads the output.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlprobe.importers.console.messages import Message

_HELD_SECONDS = 1.0  # a message is held to count how often it is said
_MOST = 1_000  # events of one message
_MOST_HELD = 1_000
_OF_THE_LAUNCHER = frozenset({"halted", "crash"})  # it sees itself how the command ends
_FROM_INSIDE = frozenset({"checkpoint", "resumed", "nan_detected", "loss_scale_changed"})

Tell = Callable[[str, str, int | None, dict[str, Any]], object]  # kind, message, step, data


@dataclass(slots=True)
class _Held:
    message: Message
    step: int | None
    count: int = 1
    since: float = field(default_factory=time.monotonic)


class OutputMessages:
    """Records messages in lines of output: one event for what is said again at a step.

    Args:
        tell: called with each event.
        inside: whether a process of the command records itself, and with it what it knows better.
    """

    def __init__(self, tell: Tell, inside: Callable[[], bool]) -> None:
        self._tell = tell
        self._inside = inside
        self._held: dict[object, _Held] = {}
        self._told: Counter[str] = Counter()

    def hear(self, message: Message, step: int | None) -> None:
        """Take a message.

        Args:
            step: that of the last row of metrics, None where none is known.
        """
        if message.known.kind and message.known.kind not in _OF_THE_LAUNCHER:
            self._hold(message, step)

    def _hold(self, message: Message, step: int | None) -> None:
        apart = tuple((name, str(value)) for name, value in message.data.items())
        key = message.known.name, message.rank, message.step, step, apart
        held = self._held.get(key)
        if held is not None:
            held.count += 1
            return
        due = time.monotonic() - _HELD_SECONDS
        if len(self._held) >= _MOST_HELD or any(item.since < due for item in self._held.values()):
            self._release()
        self._held[key] = _Held(message, step)

    def finish(self) -> None:
        """Record what is still held."""
        self._release()
        for name, count in self._told.items():
            if count > _MOST:
                known = f"{count - _MOST:,} more messages of this kind were printed"
                self._tell("messages_dropped", f"{name}: {known}", None, {"name": name})

    def _release(self) -> None:
        held, self._held = self._held, {}
        inside = bool(held) and self._inside()
        for item in held.values():
            kind = item.message.known.kind
            if inside and kind in _FROM_INSIDE:
                continue
            self._told[item.message.known.name] += 1
            if self._told[item.message.known.name] <= _MOST:
                self._tell(kind, item.message.text, *_data(item))


def _data(item: _Held) -> tuple[int | None, dict[str, Any]]:
    """The step of an event, and its data: the step it names, where that is the next at most."""
    own, step = item.message.step, item.step
    data = dict(item.message.data)
    data |= {} if item.count == 1 else {"count": item.count}
    if own is None or own == step:
        return step, data
    if step is None or own == step + 1:
        return own, data
    return step, {**data, "named_step": own}
