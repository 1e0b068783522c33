"""Bounded queue between the training thread and the writer. Counts what it had to drop."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

Row = tuple[str, int | None, float, Any]  # table, step, time, content

ROWS = 65_536
TEXT_CHARACTERS = 256 * 1024 * 1024


class Buffer:
    """Rows waiting for the writer, at most `ROWS` of them and `TEXT_CHARACTERS` of rollout text.

    The training thread appends to `queue` itself (a method call would double its cost);
    `deque.append` and `popleft` are atomic, so there is no lock.
    """

    def __init__(self) -> None:
        self.queue: deque[Row] = deque()
        self.dropped: dict[str, int] = {}
        self.characters = 0
        self.wake = threading.Event()

    def push(self, row: Row) -> None:
        """Append a row, or count it as dropped when the writer is that far behind."""
        waiting = len(self.queue)
        if waiting >= ROWS:
            self.drop(row[0])
            return
        self.queue.append(row)
        if waiting >= ROWS // 8:
            self.wake.set()

    def push_text(self, row: Row, size: int) -> None:
        """The same for rollouts, whose text is bounded by characters."""
        if self.characters + size > TEXT_CHARACTERS:
            self.drop(row[0])
            return
        self.characters += size
        self.push(row)

    def drop(self, kind: str, count: int = 1) -> None:
        """Count rows that could not be kept."""
        key = f"dropped_{kind}_rows"
        self.dropped[key] = self.dropped.get(key, 0) + count

    def drain(self) -> list[Row]:
        """Take everything that is waiting now."""
        rows: list[Row] = []
        take = self.queue.popleft
        for _ in range(len(self.queue)):
            try:
                rows.append(take())
            except IndexError:
                break
        self.characters = 0
        return rows

    def clear(self) -> None:
        """Forget everything: in a forked child, the parent writes these rows."""
        self.queue.clear()
        self.dropped = {}
        self.characters = 0
        self.wake = threading.Event()
