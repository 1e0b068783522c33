"""Counts what looks like metrics in a file and was not understood."""

from __future__ import annotations

from rlprobe.values import Unread

_MOST_EXAMPLES = 5
_LONGEST = 200  # characters of an example


class UnreadCount:
    """Pieces of one kind that were not understood, a few of them as they stand in the file.

    Attributes:
        thing: what the pieces are: `line`, `row`, `cell`, `column`.
        count: how many.
    """

    def __init__(self, thing: str) -> None:
        self.thing = thing
        self.count = 0
        self._examples: list[tuple[int, str]] = []

    def add(self, number: int, text: str, size: int = 1) -> None:
        """A piece by its number in the file, from 1; `size`: how many pieces it stands for."""
        self.count += size
        if len(self._examples) < _MOST_EXAMPLES:
            self._examples.append((number, text[:_LONGEST]))

    def take(self, other: UnreadCount) -> None:
        """What another one counted, too."""
        self.count += other.count
        self._examples = [*self._examples, *other._examples][:_MOST_EXAMPLES]

    def unread(self, read: int) -> list[Unread]:
        """What to hand over, beside `read` pieces that were read; [] if nothing was left."""
        if not self.count:
            return []
        return [Unread(self.thing, self.count, self.count + read, tuple(self._examples))]
