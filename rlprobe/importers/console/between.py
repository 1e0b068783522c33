"""What was said between two rows: each message once, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlprobe.importers.console.messages import Message

_MOST = 5_000  # different messages between two rows
# What tells two messages of one kind apart; the rest is that of the first.
_APART = ("path", "seq", "group", "group_name", "enqueued", "device", "xid", "iteration")


@dataclass(slots=True)
class Said:
    """A message, and how often it was said."""

    message: Message
    count: int = 1


class Between:
    """Collects the messages since the last row that tell more than numbers for the next one."""

    def __init__(self) -> None:
        self._said: dict[object, Said] = {}

    def add(self, message: Message) -> None:
        """Take a message."""
        if not (message.known.kind or message.known.relaunch):
            return
        apart = (message.data.get(name) for name in _APART)
        key = message.known.name, message.rank, message.step, *apart
        said = self._said.get(key)
        if said is not None:
            said.count += 1
        elif len(self._said) < _MOST:
            self._said[key] = Said(message)

    def take(self) -> Sequence[Said]:
        """All of them, in order, for the row that follows."""
        if not self._said:
            return ()
        said, self._said = self._said, {}
        return tuple(said.values())
