"""Rows without a step among rows that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlprobe.counters import is_counter

_FEWEST = 3  # of one kind: fewer are events and summaries
_MOST_KINDS = 200
_Waiting = list[tuple[int, Mapping[str, Any]]]


class SteplessRows:
    """Tells kinds of rows that belong to the step before from those that are to be left out.

    Rows with the same keys are one kind. One that comes again and again and measures something else
    than the rows with a step (the load of the machine) belongs to the step before it.

    Attributes:
        placed: how many rows found their step.
    """

    def __init__(self) -> None:
        self.placed = 0
        self._seen = 0
        self._at: int | None = None
        self._measured: set[str] = set()
        self._kinds: dict[frozenset[str], _Waiting | None] = {}  # None: placed at once

    @property
    def left(self) -> int:
        """How many rows are left out so far."""
        return self._seen - self.placed

    def passed(self, step: int, row: Mapping[str, Any]) -> None:
        """A row with a step has gone by."""
        self._at = step
        self._measured.update(row)

    def take(
        self, row: Mapping[str, Any], *, certain: bool = False
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Take a row without a step; the rows that are now known to have one, each with it.

        Args:
            row: the row.
            certain: whether it says itself that it belongs to the step before.
        """
        self._seen += 1
        if self._at is None:
            return []
        kind = frozenset(row)
        if not certain and self._kinds.get(kind, ()) is not None:
            waiting = self._wait(kind, row)
            if len(waiting) < _FEWEST:
                return []
            self._kinds[kind] = None
            self.placed += len(waiting)
            return waiting
        self.placed += 1
        return [(self._at, row)]

    def _wait(self, kind: frozenset[str], row: Mapping[str, Any]) -> _Waiting:
        names = {name for name in kind if not is_counter(name)}
        if len(names & self._measured) * 2 > len(names) or len(self._kinds) >= _MOST_KINDS:
            return []
        waiting = self._kinds.setdefault(kind, [])
        if waiting is None or self._at is None:
            return []
        waiting.append((self._at, row))
        return waiting
