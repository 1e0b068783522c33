"""Bounded queues between the training thread and the writer. Count what they had to drop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rlprobe.recorder.health import Health

# table, step, moment, content; where it is not the plain size of so many numbers, its bytes too
Row = tuple[str, Any, float, Any] | tuple[str, Any, float, Any, int]

BACKLOG_BYTES = 256 * 1024 * 1024
_VALUE = 80  # bytes of a number under its name in a row, about
_ROW = 400  # bytes of a row without its numbers, about
_WAKE = 16 * 1024 * 1024  # waiting bytes at which the writer is woken before its time, at most


class Wake:
    """Wakes the writer, once there is one: `call` is how."""

    def __init__(self) -> None:
        self.call: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Wake it now."""
        self.call()


class Buffer:
    """Rows waiting for the writer, bounded by their bytes together with those the writer holds.

    Appending to a deque and taking from it are atomic, so there is no lock. The two totals are each
    written by one side only, up to races that the next drain sets right.

    Attributes:
        held: bytes that the writer took and has not written yet; the writer says how many.
    """

    def __init__(self, health: Health, limit: int = BACKLOG_BYTES) -> None:
        self.wake = Wake()
        self.limit = limit
        self._health = health
        self._wake_at = min(_WAKE, limit // 8)
        self.clear()
        self._mark = self._wake_at

    def clear(self) -> None:
        """Forget everything: in a forked child, the parent writes these rows."""
        self.rollouts: deque[Row] = deque()
        self.rows: deque[Row] = deque()
        self.events: deque[Row] = deque()
        self.held = 0
        self._pushed = 0
        self._taken = 0
        self._mark = -1  # the first row wakes, and starts, the writer

    def push(self, row: Row) -> None:
        """Append a row of numbers. This is what a training step costs."""
        self._pushed += len(row[3]) * _VALUE + _ROW
        self.rows.append(row)
        if self._pushed > self._mark:
            self._behind()

    def push_sized(self, queue: deque[Row], row: Row, size: int) -> None:
        """Append a row that may be large."""
        self._pushed += size
        queue.append((*row[:4], size))
        if self._pushed > self._mark:
            self._behind()

    def waiting(self) -> int:
        """Bytes in the queues, about."""
        return self._pushed - self._taken

    def _behind(self) -> None:
        """Much is waiting: wake the writer, and make room where it cannot keep up."""
        self.wake.set()
        room = max(self.limit - self.held, self.limit // 8)
        self._mark = self._pushed + self.limit // 64
        if self.waiting() > room:
            self._drop_oldest(self.waiting() - room + self.limit // 64)

    def _drop_oldest(self, excess: int) -> None:
        """Rollouts first, then rows, events last; the newest event always stays."""
        for queue, least in ((self.rollouts, 0), (self.rows, 0), (self.events, 1)):
            while excess > 0 and len(queue) > least:
                try:
                    row = queue.popleft()
                except IndexError:  # the writer was faster
                    break
                excess -= size_of_row(row)
                self._taken += size_of_row(row)
                self._health.drop(row[0], _count(row), "the writer is that far behind")

    def drain(self) -> list[Row]:
        """Take everything that is waiting now; events first, so that they are written first."""
        rows = [row for queue in (self.events, self.rows, self.rollouts) for row in _take(queue)]
        self._taken += sum(map(size_of_row, rows))
        if not (self.events or self.rows or self.rollouts):
            self._taken = self._pushed
        self._mark = self._taken + self._wake_at
        return rows

    def counts(self) -> dict[str, int]:
        """Rows in the queues, by table."""
        counts: dict[str, int] = {}
        for queue in (self.events, self.rows, self.rollouts):
            for row in tuple(queue):
                counts[row[0]] = counts.get(row[0], 0) + _count(row)
        return counts

    def last_step(self) -> int | None:
        """The highest whole step in the queues."""
        waiting = (row[1] for queue in (self.rows, self.rollouts) for row in tuple(queue))
        return max((step for step in waiting if type(step) is int), default=None)


def _take(queue: deque[Row]) -> Iterator[Row]:
    for _ in range(len(queue)):
        try:
            yield queue.popleft()
        except IndexError:  # dropped meanwhile
            return


def size_of_row(row: Row) -> int:
    """Bytes that a row holds, about."""
    return row[4] if len(row) > 4 else len(row[3]) * _VALUE + _ROW


def _count(row: Row) -> int:
    if row[0] != "samples":
        return 1
    try:
        return len(row[3]["completions"])
    except (TypeError, KeyError):
        return 1
