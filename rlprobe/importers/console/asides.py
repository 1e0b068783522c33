"""Numbers that messages give between the rows of metrics: a loss scale, the use of a cache."""

from __future__ import annotations

from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.steps import Row

_MOST_STEPS = 10_000  # that messages name for their numbers


class Asides:
    """Collects numbers for the next row, and rows of their own for output that has no other.

    Args:
        most: rows of their own that are kept at most.

    Attributes:
        overflowed: whether an update was ever said to be skipped: then a row without that had none.
        alone: rows for the case that the output has no row of metrics.
        placed: rows at the steps that messages name.
    """

    def __init__(self, most: int) -> None:
        self.overflowed = False
        self.alone: list[Row] = []
        self.placed: dict[int, Row] = {}
        self._most = most
        self._waiting: Row = {}
        self._said: set[tuple[str, object]] = set()
        self._ranks: set[int | None] = set()  # whose numbers are placed

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: Message, *, rows: bool) -> None:
        """Take the numbers of a message.

        Args:
            rows: whether the output has had rows of metrics.
        """
        if not message.metrics:
            return
        self.overflowed |= "update_skipped" in message.metrics
        if message.known.rows == "step" and message.step is not None:
            self._place(message, message.step)
            return
        if message.known.rows != "alone":
            _into(self._waiting, message)
        if not rows:
            self._add_alone(message)

    def _place(self, message: Message, step: int) -> None:
        if step in self.placed or len(self.placed) < _MOST_STEPS:
            self._ranks.add(message.rank)
            _into(self.placed.setdefault(step, {}), message)

    def notes(self) -> list[str]:
        """What became of numbers that several ranks told, in words."""
        ranks = len(self._ranks)
        return [f"reports of memory from {ranks} ranks: the largest"] if ranks > 1 else []

    def _add_alone(self, message: Message) -> None:
        """One row per round: the engines of one run say the same thing in turn."""
        speaker = message.known.name, message.data.get("engine", message.rank)
        if not self.alone or speaker in self._said:
            if len(self.alone) >= self._most:
                return
            self.alone.append({})
            self._said.clear()
        self._said.add(speaker)
        _into(self.alone[-1], message)

    def take(self, row: Row) -> Row:
        """What was said since the last row, for a row that does not say it itself."""
        waiting, self._waiting = self._waiting, {}
        told = {key: value for key, value in waiting.items() if key not in row}
        return {"update_skipped": 0.0, **told} if self.overflowed else told

    def rest(self) -> Row:
        """What was said since the last row, for no row in particular."""
        waiting, self._waiting = self._waiting, {}
        return waiting


def _into(row: Row, message: Message) -> None:
    for name, value in message.metrics.items():
        larger = message.known.largest and name in row
        row[name] = max(row[name], value) if larger else value
