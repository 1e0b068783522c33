"""How any thread asks the writer's for something, and waits no longer than it must.

`queue.SimpleQueue` may be entered again by a signal handler that interrupts its own thread; events
and conditions may not.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from rlprobe.recorder.disk import DiskWatch

_SLICE = 0.05  # seconds between two looks at the disk
_LONGEST = 86_400.0  # seconds; a queue takes no wait without end
MOST_SECONDS = 30.0  # that anybody waits for the writer to get on, with whatever it does


class Request:
    """Write everything; then do what else is asked, on the writer's thread."""

    def __init__(
        self, disk: DiskWatch, trigger: str = "", task: Callable[[], bool] | None = None
    ) -> None:
        self.trigger = trigger
        self.task = task
        self._disk = disk
        self._begun = time.monotonic()
        self._waited_before = disk.waited()
        self._done: bool | None = None
        self._answer: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def answer(self, *, done: bool) -> None:
        """Tell whoever waits whether everything is on disk."""
        self._done = done
        self._answer.put(done)

    def wait(self, patience: float) -> bool | None:
        """The answer; None when the disk has let everybody wait for so many seconds."""
        while self._done is None:
            try:
                self._answer.get(timeout=_SLICE)
            except queue.Empty:
                if self._is_hopeless(patience):
                    return None
        return self._done

    def _is_hopeless(self, patience: float) -> bool:
        on_disk = max(self._disk.pending(), self._disk.waited() - self._waited_before)
        if on_disk > patience * self._disk.crowd():
            return True
        return time.monotonic() - max(self._begun, self._disk.latest) > MOST_SECONDS


class Inbox:
    """Requests for the writer, and wakings without one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()

    def put(self, request: Request | None) -> None:
        """Hand over a request; None only wakes."""
        self._queue.put(request)

    def empty(self) -> bool:
        """Whether nobody asks for anything."""
        return self._queue.empty()

    def take(self, seconds: float) -> list[Request]:
        """Everything that is asked, as soon as something is; [] after so many seconds."""
        asked: list[Request | None] = []
        try:
            asked.append(self._queue.get(timeout=min(seconds, _LONGEST)))
            while True:
                asked.append(self._queue.get_nowait())
        except queue.Empty:
            return [request for request in asked if request is not None]
