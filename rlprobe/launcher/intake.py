"""What the relay hands over is read: by a thread of low priority, and by us at the end.

What it cannot read in time is not read, and counted.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from rlprobe.launcher import relay
from rlprobe.launcher.output import Lines, Missed

_CHUNK = 256 * 1024
_LOOK_SECONDS = 0.5
_NICE = 5
_LATE_SECONDS = 3.0  # for reading on after the command ended, each of two times


class Intake(threading.Thread):
    """Feeds lines from the relay's copies.

    Attributes:
        unwritten: what could not be passed on, because its place had no room.
        failure: why reading stopped, if it did.
    """

    def __init__(self, copies: socket.socket, lines: Lines) -> None:
        super().__init__(name="rlprobe-output", daemon=True)
        self.unwritten = Missed()
        self.failure = ""
        self._copies, self._lines = copies, lines
        self._last_byte: dict[int, bytes] = {}
        self._passed = False
        self._frames = bytearray()

    def run(self) -> None:
        """Read, in the background, until the command has ended."""
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        self._read(math.inf, self._lines.interrupted.is_set)

    def finish(self, seconds: float) -> None:
        """The command ended: read, as fast as we can, until all that it wrote is passed on.

        Args:
            seconds: for whoever is slow to read the output; the relay goes on without us.
        """
        self._lines.interrupted.set()
        with contextlib.suppress(OSError):
            self._copies.send(b"?")
        self.join(_LATE_SECONDS)
        if not self.is_alive():
            self._lines.interrupted.clear()
            self._lines.deadline = time.monotonic() + _LATE_SECONDS
            self._read(time.monotonic() + seconds, lambda: False)

    def _read(self, until: float, interrupted: Callable[[], bool]) -> None:
        try:
            while not (self._passed or interrupted() or time.monotonic() > until):
                due = self._lines.due()
                wait = _LOOK_SECONDS if due is None else due
                if not select.select([self._copies], [], [], wait)[0]:
                    self._look(self._lines.flush)
                    continue
                data = self._receive()
                self._frames += data
                self._passed |= not data
                self._take()
        except (OSError, ValueError) as error:  # closed, if we were waited for too long
            self.failure = self.failure or str(error)

    def _receive(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):  # the relay ended before our question
            return self._copies.recv(_CHUNK)
        return b""

    def ends_mid_line(self) -> bool:
        """Whether what is on standard error (or on both, if they are one) lacks a line end."""
        return self._last_byte.get(2, b"\n") not in b"\r\n"

    def _take(self) -> None:
        """Take the frames that are whole."""
        start = 0
        view = self._frames
        while len(view) - start >= relay.HEAD.size:
            kind, size = relay.HEAD.unpack_from(view, start)
            end = start + relay.HEAD.size + size
            if len(view) < end:
                break
            self._frame(kind, bytes(view[start + relay.HEAD.size : end]))
            start = end
        del view[:start]

    def _frame(self, kind: int, content: bytes) -> None:
        size = len(content)
        if kind == relay.PASSED:
            self._passed = True
        elif kind in {relay.LOST, relay.UNWRITTEN}:
            stream, size, lines = relay.COUNTS.unpack(content)
            if kind == relay.LOST:
                self._lines.lose(stream, size, lines)
            else:
                self.unwritten.add(size, lines)
        elif self.failure:
            self._lines.lose(kind, size, content.count(b"\n"))
        else:
            self._last_byte[kind] = content[-1:]
            self._look(lambda: self._lines.feed(kind, content))

    def _look(self, read: Callable[[], None]) -> None:
        try:
            read()
        except Exception as error:  # looking must never cost the output, nor the recording
            self.failure = f"{type(error).__name__}: {error}"
