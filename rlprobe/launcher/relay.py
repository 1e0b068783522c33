"""Passes the command's output on: a small process of its own, which outlives `rlprobe record`.

It reads what the command writes, writes it where it was to appear, and hands a copy to the
launcher. A launcher that is slow or dead costs the command nothing: copies wait in a bounded queue,
what does not fit is counted, and the count is handed over in its place.

Runs as a script that Python reads from its input, without site-packages: standard library only, no
imports of ours. All signals are blocked when it starts.

    python - output-relay COPY SENTRY SOURCE:STREAM[,STREAM] ...

COPY and SENTRY are sockets to the launcher. Frames on COPY are a head (kind, length) and content:
kinds 1 and 2 are output of that stream, LOST what was not handed over of a stream, UNWRITTEN what
could not be written to a sink, PASSED the answer to a byte from the launcher: all that the command
has written so far is passed on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import struct
import sys
import threading
import time
from collections import deque

HEAD = struct.Struct("<BI")
COUNTS = struct.Struct("<BQQ")  # stream, bytes, line ends
LOST, UNWRITTEN, PASSED = 10, 11, 12
QUEUE_BYTES = 32 * 1024 * 1024
_CHUNK = 65_536
_NOBODY_READS = {errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ENXIO}
_ROOM = select.POLLOUT
_QUIET_SECONDS = 0.02  # what a pty was given takes a moment to come out of it
_NOISE_SECONDS = 1.0  # other processes may never be quiet


class Copies:
    """What the launcher is to read."""

    def __init__(self, copy: int) -> None:
        self._copy = copy
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._lost: dict[tuple[int, int], tuple[int, int]] = {}  # by kind and stream
        self._changed = threading.Condition()
        self._wanted, self._ends = True, False
        self._writer = threading.Thread(target=self._hand_over, daemon=True)
        self._writer.start()

    def put(self, stream: int, data: bytes) -> None:
        """Hand over output, or count it."""
        with self._changed:
            if not self._wanted:
                return
            if self._size + len(data) > QUEUE_BYTES:
                self._count(LOST, stream, data)
                return
            self._tell_lost()
            self._append(stream, data)

    def unwritten(self, stream: int, data: bytes) -> None:
        """Count what no sink took."""
        with self._changed:
            self._count(UNWRITTEN, stream, data)

    def passed(self) -> None:
        """All is passed on."""
        with self._changed:
            self._tell_lost()
            self._append(PASSED, b"")

    def finish(self) -> None:
        """Hand over what waits."""
        with self._changed:
            self._tell_lost()
            self._ends = True
            self._changed.notify()
        self._writer.join()

    def _count(self, kind: int, stream: int, data: bytes) -> None:
        size, lines = self._lost.get((kind, stream), (0, 0))
        self._lost[kind, stream] = size + len(data), lines + data.count(b"\n")

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, {}
        for (kind, stream), counts in lost.items():
            self._append(kind, COUNTS.pack(stream, *counts))

    def _append(self, kind: int, content: bytes) -> None:
        if self._wanted:
            self._queue += (HEAD.pack(kind, len(content)), content)
            self._size += len(content)
            self._changed.notify()

    def _hand_over(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._ends:
                    self._changed.wait()
                if not self._queue:
                    return
                data, content = self._queue.popleft(), self._queue.popleft()
            rest, _ = write_all(self._copy, data + content)
            with self._changed:
                self._size -= len(content)
                if rest:  # the launcher is gone
                    self._wanted = False
                    self._queue.clear()


class Channel(threading.Thread):
    """Passes one output on.

    Args:
        source: what the command writes to is read here.
        sink: where it is to appear.
        streams: which of the command's outputs it is: 1, 2 or both.
    """

    def __init__(self, source: int, sink: int, streams: list[int], copies: Copies) -> None:
        super().__init__(daemon=True)
        self.source, self.sink, self.stream = source, sink, streams[-1]
        self.writing = False
        self._copies = copies
        self._busy = False
        self._is_file = stat.S_ISREG(os.fstat(sink).st_mode)

    def run(self) -> None:
        """Pass on until the last process closes its end, or nobody reads any more."""
        while True:
            ready(self.source, select.POLLIN)
            self._busy = True  # before the data leave the pipe: see `quiet`
            try:
                data = os.read(self.source, _CHUNK)
            except OSError:  # a pty whose other end is closed says EIO
                break
            if not data or not self._pass_on(data):
                break
            self._busy = False
        with contextlib.suppress(OSError):
            os.close(self.source)  # the command shall notice, too

    def quiet(self) -> bool:
        """Whether nothing is on its way."""
        if not self.is_alive():
            return True
        return not (ready(self.source, select.POLLIN, 0) or self._busy)

    def _pass_on(self, data: bytes) -> bool:
        """Write; False when nobody reads any more. A full disk is no reason to stop training."""
        self.writing = True
        rest, error = write_all(self.sink, data)
        self.writing = False
        if rest and error in _NOBODY_READS and not self._is_file:
            return False
        if rest:
            self._copies.unwritten(self.stream, rest)
        self._copies.put(self.stream, data)
        return True


def ready(descriptor: int, event: int, milliseconds: int | None = None) -> bool:
    """Wait until it can be read or written, or its other end is closed."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(milliseconds))


def write_all(target: int, data: bytes) -> tuple[bytes, int]:
    """Write; what could not be written, and the number of the error."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # whoever started us made the descriptor non-blocking
            ready(target, _ROOM)
        except OSError as error:
            return bytes(view), error.errno or errno.EIO
    return b"", 0


def wait_quiet(channels: list[Channel]) -> None:
    """Wait until what the command has written is passed on.

    Others who go on writing are not waited for, but whoever is slow to read.
    """
    started = quiet_since = time.monotonic()
    while any(channel.is_alive() for channel in channels):
        now = time.monotonic()
        if not all(channel.quiet() for channel in channels):
            quiet_since = now
        if any(channel.writing for channel in channels):
            started = now
        if now - quiet_since >= _QUIET_SECONDS or now - started > _NOISE_SECONDS:
            return
        time.sleep(0.002)


def stand_sentry(sentry: int) -> None:
    """Answer each byte with the signals that came to our process group since the last one."""
    while os.read(sentry, 1):
        came = []
        while pending := signal.sigpending():
            came += [int(signal.sigwait({number})) for number in pending]
        os.write(sentry, bytes([len(came[:255]), *came[:255]]))


def close_others(wanted: set[int]) -> None:
    """Close what was handed down to us: others wait for its end."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib costs more than all the rest
        if int(name) not in wanted:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main(words: list[str]) -> None:
    """Run until all outputs have ended."""
    copy, sentry = int(words[0]), int(words[1])
    if os.fork() == 0:
        close_others({sentry})
        with contextlib.suppress(OSError):
            stand_sentry(sentry)
        os._exit(0)
    os.setsid()  # what is sent to the group of the command does not end us
    plans = [tuple(map(str, word.split(":"))) for word in words[2:]]
    numbers = [(int(source), [int(n) for n in sinks.split(",")]) for source, sinks in plans]
    sinks = {streams[0] for _, streams in numbers}
    close_others({copy, *sinks, *(source for source, _ in numbers)})
    os.chdir("/")  # no file system is held busy
    copies = Copies(copy)
    channels = [Channel(source, s[0], s, copies) for source, s in numbers]
    for channel in channels:
        channel.start()
    threading.Thread(target=answer, args=(copy, channels, copies), daemon=True).start()
    for channel in channels:
        channel.join()
    for sink in sinks:  # whoever reads them shall not wait for the launcher
        os.close(sink)
    copies.finish()


def answer(copy: int, channels: list[Channel], copies: Copies) -> None:
    """Answer the launcher, as often as it asks."""
    with contextlib.suppress(OSError):
        while os.read(copy, 1):
            wait_quiet(channels)
            copies.passed()


if __name__ == "__main__":
    main(sys.argv[2:])
