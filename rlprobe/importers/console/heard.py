"""The messages of one training, each at its place between the rows, and how often it was said."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rlprobe.importers.console.messages import Message
from rlprobe.importers.importer import Told
from rlprobe.values import Event

_FIRST, _LATEST = 1_000, 1_000  # places of one message that are kept: the first and the latest
_MOST_HERE = 5_000  # different ones between two rows
_MOST_LAUNCHES = 1_000
# What tells two messages of one kind apart; the rest is that of the first.
_APART = ("path", "seq", "group", "group_name", "enqueued", "device", "xid", "iteration")


@dataclass(slots=True)
class _Said:
    message: Message
    row: int
    number: int
    count: int = 1


class Heard:
    """Collects messages. What is said again before the next row is counted, not kept.

    Attributes:
        launches: rows, by number, with which a later launch of the run begins.
    """

    def __init__(self) -> None:
        self.launches: list[int] = []
        self._row = -1
        self._number = 0
        self._here: dict[object, _Said] = {}
        self._first: dict[str, list[_Said]] = {}
        self._latest: dict[str, deque[_Said]] = {}

    def hear(self, message: Message, row: int) -> None:
        """Take a message.

        Args:
            row: the number of the last row before it, -1 before the first.
        """
        known = message.known
        if known.relaunch and row >= 0 and self.launches[-1:] != [row + 1]:
            self.launches = [*self.launches[-_MOST_LAUNCHES:], row + 1]
        if not known.kind:
            return
        if row != self._row or len(self._here) > _MOST_HERE:
            self._row, self._here = row, {}
        apart = (message.data.get(name) for name in _APART)
        key = known.name, message.rank, message.step, *apart
        if (again := self._here.get(key)) is not None:
            again.count += 1
            return
        self._number += 1
        self._here[key] = _Said(message, row, self._number)
        first = self._first.setdefault(known.name, [])
        if len(first) < _FIRST:
            first.append(self._here[key])
        else:
            self._latest.setdefault(known.name, deque(maxlen=_LATEST)).append(self._here[key])

    def told(self) -> list[Told]:
        """The events that the messages make, in order."""
        kept = itertools.chain(*self._first.values(), *self._latest.values())
        return [Told(said.row, _event(said)) for said in sorted(kept, key=lambda said: said.number)]

    def notes(self) -> list[str]:
        """What of the messages is not kept, in words."""
        kept = sum(map(len, (*self._first.values(), *self._latest.values())))
        if self._number == kept:
            return []
        return [f"{self._number - kept:,} messages between rows are left out: too many of a kind"]

    def ending(self, row: int) -> Event | None:
        """The `crash` that a collective makes which timed out after this row, the last one."""
        hung = [event for event in self._after(row) if event.kind == "collective_timeout"]
        if not hung:
            return None
        data = {"kind": "collective_timeout", "tail": [event.message for event in hung[-20:]]}
        return Event("crash", None, rank=hung[0].rank, message=hung[0].message, data=data)

    def _after(self, row: int) -> Sequence[Event]:
        return [] if row != self._row else [_event(said) for said in self._here.values()]


def _event(said: _Said) -> Event:
    message = said.message
    again = {} if said.count == 1 else {"count": said.count}
    return Event(
        message.known.kind,
        message.step,
        rank=message.rank or 0,
        message=message.text,
        data={**message.data, **again},
    )
