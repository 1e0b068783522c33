"""Rows that wait to be written, by table, with their sizes: what the writer holds."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection
from typing import Any

from rlprobe import schema

# What goes first where not all can stay.
_TRIMMED = ("samples", "workers", "ranks", "steps", "events")


class Backlog:
    """Rows of every table, oldest first."""

    def __init__(self) -> None:
        self.bytes = 0
        self._rows: dict[str, deque[tuple[Any, int]]] = {table: deque() for table in schema.TABLES}

    def add(self, table: str, row: Any, size: int) -> None:
        """Append a row of so many bytes, about."""
        self._rows[table].append((row, size))
        self.bytes += size

    def oldest(self, table: str, most_bytes: int) -> list[Any]:
        """The oldest rows of a table, of so many bytes together, or one; [] if none waits."""
        chosen: list[Any] = []
        held = 0
        for row, size in self._rows[table]:
            held += size
            if chosen and held > most_bytes:
                break
            chosen.append(row)
        return chosen

    def remove_oldest(self, table: str, count: int) -> None:
        """Forget the oldest rows: they are written, or must go."""
        rows = self._rows[table]
        for _ in range(min(count, len(rows))):
            self.bytes -= rows.popleft()[1]

    def discard(self, table: str, positions: Collection[int]) -> None:
        """Forget single rows, counted from the oldest."""
        rows = self._rows[table]
        first = max(positions, default=-1) + 1
        checked = list(itertools.islice(rows, first))
        self.remove_oldest(table, first)
        for at in range(first - 1, -1, -1):
            if at not in positions:
                rows.appendleft(checked[at])
                self.bytes += checked[at][1]

    def trim(self, limit: int) -> dict[str, int]:
        """Forget the oldest rows until so many bytes are left: rollouts first, events last."""
        dropped: dict[str, int] = {}
        for table in _TRIMMED:
            rows = self._rows[table]
            least = 1 if table == "events" else 0
            while self.bytes > limit and len(rows) > least:
                self.bytes -= rows.popleft()[1]
                dropped[table] = dropped.get(table, 0) + 1
        return dropped

    def counts(self) -> dict[str, int]:
        """How many rows wait, by table."""
        return {table: len(rows) for table, rows in self._rows.items() if rows}

    def clear(self) -> None:
        """Forget everything."""
        for rows in self._rows.values():
            rows.clear()
        self.bytes = 0
