"""What is recorded after `close`: it has no place any more, which is counted, said and told."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from rlprobe.recorder.health import Health
from rlprobe.recorder.requests import Request

_PATIENCE = 2.0  # seconds, at the end of the process


class LateCalls:
    """Counts rows that came after the end.

    Args:
        tell: asks the writer's thread to write what was lost into the recording.
    """

    def __init__(self, health: Health, tell: Callable[[], Request | None]) -> None:
        self._health = health
        self._tell = tell
        self._count = 0
        self._next_told = 1

    def add(self, table: str, rows: int = 1) -> None:
        """Count rows; the recording is told of the first, and ever more rarely of more."""
        self._health.count(f"{table}_rows_after_the_end", rows)
        self._health.warn(
            "late calls",
            f"rlprobe: {table} are recorded after the recording was closed; they are left out, as "
            "is all that follows",
        )
        if not self._count:
            atexit.register(self._tell_rest)
        self._count += rows
        if self._count >= self._next_told:
            self._next_told = 4 * self._count
            self._tell()

    def _tell_rest(self) -> None:
        request = self._tell()
        if request is not None:
            request.wait(_PATIENCE)
