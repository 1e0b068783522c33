"""When something happened, whatever is done to the machine's clock meanwhile."""

from __future__ import annotations

import time


class Clock:
    """Wall-clock time that never jumps: read once, carried on by the monotonic clock.

    The training thread stores `time.monotonic()`, which costs no more than `time.time()`; the
    writer turns it into a time. Times of one table never decrease, so that a reader who sorts by
    time sees the order in which things were recorded.
    """

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._wall = time.time()
        self._asleep = _asleep()
        self._latest: dict[str, float] = {}
        self.look()

    def look(self) -> None:
        """Look at the clock, before times are asked for."""
        self._now = time.monotonic()
        self._offset = self._wall - self._begin + (_asleep() - self._asleep)

    def time_of(self, table: str, moment: float) -> float:
        """Seconds since the epoch of a monotonic moment; one that cannot have been is now."""
        if not self._begin <= moment <= self._now:
            moment = self._now
        when = self._offset + moment
        latest = self._latest.get(table, when)
        if when < latest:
            return latest
        self._latest[table] = when
        return when


def _asleep() -> float:
    """Seconds that the machine was suspended, which the monotonic clock leaves out on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return 0.0
    return max(0.0, round(time.clock_gettime(clock) - time.monotonic(), 2))
