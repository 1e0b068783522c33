"""Who takes what is read of an output: the trainings of a log, or a live recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.steps import ConsoleRow, ConsoleRows


class Listener(Protocol):
    """Takes rows in their order, and what is said between them."""

    @property
    def alarmed(self) -> bool:
        """Whether lines are to be read one by one, because a failure was spoken of."""
        ...

    def add(self, rows: Iterable[ConsoleRow]) -> None:
        """Take rows."""
        ...

    def may_add_rows(self, first: ConsoleRow) -> bool:
        """Whether many rows like this one may be given at once."""
        ...

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take many rows at once."""
        ...

    def say(self, lines: Sequence[str]) -> None:
        """Any lines, in order."""
        ...

    def hear(self, line: str) -> None:
        """A line that tells of a training; the rows before it have been given."""
        ...

    def tell(self, message: Message) -> None:
        """A message of the framework; the rows before it have been given."""
        ...

    def move(self) -> None:
        """The output goes on."""
        ...
