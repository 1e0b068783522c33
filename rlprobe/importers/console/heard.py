"""The messages of one training, each at its place between the rows, and how often it was said."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rlprobe.importers.console.between import Said
from rlprobe.importers.importer import Told
from rlprobe.values import Event

_FIRST, _LATEST = 1_000, 1_000  # places of one message that are kept: the first and the latest
_MOST_LAUNCHES = 1_000


@dataclass(frozen=True, slots=True)
class _Place:
    said: Said
    row: int
    number: int


class Heard:
    """Collects messages.

    Attributes:
        launches: rows, by number, with which a later launch of the run begins.
    """

    def __init__(self) -> None:
        self.launches: list[int] = []
        self._number = 0
        self._first: dict[str, list[_Place]] = {}
        self._latest: dict[str, deque[_Place]] = {}

    def hear(self, every: Iterable[Said], row: int) -> None:
        """Take what was said between two rows.

        Args:
            row: the number of the row before it, -1 before the first.
        """
        for said in every:
            known = said.message.known
            if known.relaunch and row >= 0 and self.launches[-1:] != [row + 1]:
                self.launches = [*self.launches[-_MOST_LAUNCHES:], row + 1]
            if known.kind:
                self._number += 1
                self._keep(known.name, _Place(said, row, self._number))

    def _keep(self, name: str, place: _Place) -> None:
        first = self._first.setdefault(name, [])
        if len(first) < _FIRST:
            first.append(place)
        else:
            self._latest.setdefault(name, deque(maxlen=_LATEST)).append(place)

    def _places(self) -> list[_Place]:
        kept = itertools.chain(*self._first.values(), *self._latest.values())
        return sorted(kept, key=lambda place: place.number)

    def told(self) -> list[Told]:
        """The events that the messages make, in order."""
        return [Told(place.row, _event(place.said)) for place in self._places()]

    def ending(self, row: int) -> Event | None:
        """The `crash` that what was said after this row, the last one, tells of."""
        return death(place.said for place in self._places() if place.row == row)


def death(every: Iterable[Said]) -> Event | None:
    """The `crash` that a collective makes which timed out, where the last words tell of none."""
    hung = [_event(said) for said in every if said.message.known.kind == "collective_timeout"]
    if not hung:
        return None
    data = {"kind": "collective_timeout", "tail": [event.message for event in hung[-20:]]}
    return Event("crash", None, rank=hung[0].rank, message=hung[0].message, data=data)


def _event(said: Said) -> Event:
    message = said.message
    again = {} if said.count == 1 else {"count": said.count}
    return Event(
        message.known.kind,
        message.step,
        rank=message.rank or 0,
        message=message.text,
        data={**message.data, **again},
    )
