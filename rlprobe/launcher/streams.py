"""Start the command, and pass its output through byte for byte while looking at it.

Where our own output is a terminal, the command gets one too (a pty in raw mode, so that nothing is
translated twice); otherwise it gets a pipe. Its input is ours, untouched.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_CHUNK = 65_536
_IDLE_SECONDS = 1.0  # after the command ended: its own children may still be writing
_DRAIN_SECONDS = 30.0

Feed = Callable[[int, bytes], None]


@dataclass
class Child:
    """The running command."""

    pid: int
    pumps: list[Pump] = field(default_factory=list)

    def resize(self) -> None:
        """Our terminal changed its size: so does the command's."""
        for pump in self.pumps:
            if pump.terminal:
                copy_window_size(pump.sink, pump.source)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGWINCH)

    def ends_mid_line(self) -> bool:
        """Whether what is on standard error (or on both, if they are one) lacks a line end."""
        return any(pump.last_byte not in b"\r\n" for pump in self.pumps if 2 in pump.sinks)

    def drain(self) -> None:
        """The command ended: pass on what is still in the pipes."""
        ended = time.monotonic()
        for pump in self.pumps:
            while pump.is_alive():
                pump.join(0.02)
                now = time.monotonic()
                quiet = now - max(pump.last_data, ended) > _IDLE_SECONDS
                if quiet or now - ended > _DRAIN_SECONDS:
                    break


class Pump(threading.Thread):
    """Copies one of the command's outputs to ours, and feeds it to an observer."""

    def __init__(self, source: int, sinks: list[int], feed: Feed) -> None:
        super().__init__(name=f"rlprobe-output-{sinks[0]}", daemon=True)
        self.source = source
        self.sinks = sinks
        self.sink = sinks[0]
        self.terminal = os.isatty(self.sink)
        self.last_data = time.monotonic()
        self.last_byte = b""
        self._feed = feed

    def run(self) -> None:
        """Copy until the command closes its end."""
        while True:
            try:
                data = os.read(self.source, _CHUNK)
            except OSError:  # a pty whose other end is closed says EIO
                data = b""
            if not data:
                break
            self.last_data, self.last_byte = time.monotonic(), data[-1:]
            if not self._write(data):
                break
            with contextlib.suppress(Exception):  # looking must never cost the output
                self._feed(self.sink, data)
        with contextlib.suppress(OSError):
            os.close(self.source)

    def _write(self, data: bytes) -> bool:
        """Pass on; False when nobody reads any more, which the command shall notice too."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.sink, view) :]
            except BlockingIOError:  # whoever started us made the descriptor non-blocking
                select.select([], [self.sink], [])
            except OSError:
                return False
        return True


def start(command: Sequence[str], environment: Mapping[str, str], feed: Feed) -> Child:
    """Start the command with its output connected to ours.

    Raises:
        OSError: it cannot be started.
    """
    ends = _connect()
    actions = [(os.POSIX_SPAWN_DUP2, theirs, sink) for _, theirs, sinks in ends for sink in sinks]
    try:
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(environment),
            file_actions=actions,
            setsigdef=[signal.SIGPIPE],
        )
    except OSError:
        for ours, theirs, _ in ends:
            os.close(ours)
            os.close(theirs)
        raise
    child = Child(pid)
    for ours, theirs, sinks in ends:
        os.close(theirs)
        child.pumps.append(Pump(ours, sinks, feed))
    for pump in child.pumps:
        pump.start()
    return child


def _connect() -> list[tuple[int, int, list[int]]]:
    """(our end, the command's end, our descriptors) for standard output and error.

    Where both are the same file they share one channel, so that their order is kept.
    """
    sinks = [number for number in (1, 2) if _is_open(number)]
    if len(sinks) == 2 and os.path.samestat(os.fstat(1), os.fstat(2)):
        return [(*_channel(1), [1, 2])]
    return [(*_channel(number), [number]) for number in sinks]


def _channel(sink: int) -> tuple[int, int]:
    if not os.isatty(sink):
        return os.pipe()
    import pty
    import tty

    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    copy_window_size(sink, ours)
    return ours, theirs


def copy_window_size(source: int, target: int) -> None:
    """Give one terminal the size of another."""
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
