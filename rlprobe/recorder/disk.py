"""How long the writer has waited for the disk, so that others need not wait as long."""

from __future__ import annotations

import time
from typing import ClassVar

_AT_ONCE = 8  # writers that an ordinary disk serves at once


class DiskWatch:
    """Times what may hang: `with disk:` around every call that waits for the file system."""

    _busy: ClassVar[set[int]] = set()  # of this process, on the disk now

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew: in a forked child, nothing is under way."""
        self._busy.discard(id(self))
        self._total = 0.0
        self._since: float | None = None
        self.latest = 0.0  # when a call returned last

    def __enter__(self) -> None:
        self._busy.add(id(self))
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        since, self._since = self._since, None
        self._busy.discard(id(self))
        self.latest = time.monotonic()
        if since is not None:
            self._total += self.latest - since

    def pending(self) -> float:
        """Seconds since the call began that has not returned; 0 if none is under way."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def waited(self) -> float:
        """Seconds in all, the call that is under way included."""
        return self._total + self.pending()

    def crowd(self) -> float:
        """How many times longer than alone a call may take, for all who write at once; 1 or more.

        A thousand recorders that end together wait for each other, and for no disk that hangs.
        """
        return max(1.0, len(self._busy) / _AT_ONCE)
