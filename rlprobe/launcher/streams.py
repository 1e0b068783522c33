"""Start the command with its output connected to a relay, which passes it on and hands us a copy.

Where our own output is a terminal, the command gets one too (a pty in raw mode, so that nothing is
translated twice); otherwise it gets a pipe. Its input is ours, untouched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlprobe.launcher import relay

_ANSWER_SECONDS = 0.5  # a sentry that takes longer is none
_START_SECONDS = 10.0


@dataclass
class Outputs:
    """The command's outputs: our end at the relay, the command's own ends until it has started.

    Attributes:
        ends: (the command's end, the streams that it is).
        copies: where the relay hands over copies; None where the output passes by unread.
        sentry: where the process in our group answers that takes note of signals to all of it.
        unread: why the output passes by unread.
    """

    ends: list[tuple[int, list[int]]] = field(default_factory=list)
    terminals: list[tuple[int, str]] = field(default_factory=list)
    copies: socket.socket | None = None
    sentry: socket.socket | None = None
    unread: str = ""

    def close_ends(self) -> None:
        """The command has its ends, or will never have them."""
        for end, _ in self.ends:
            os.close(end)
        self.ends = []

    def close(self) -> None:
        """Let go of the relay, which goes on without us."""
        for connection in (self.copies, self.sentry):
            if connection is not None:
                connection.close()
        self.copies = self.sentry = None

    def group_signals(self) -> list[int] | None:
        """Signals to our whole process group since this was asked last; None if nobody knows."""
        if self.sentry is None:
            return None
        try:
            self.sentry.send(b"?")
            (count,) = self._answer(1)
            return list(self._answer(count))
        except (OSError, ValueError):
            self.sentry = None
            return None

    def _answer(self, size: int) -> bytes:
        data = b""
        while self.sentry is not None and len(data) < size:
            more = self.sentry.recv(size - len(data))
            if not more:
                raise OSError
            data += more
        return data

    def resize(self) -> None:
        """Our terminal changed its size: so does the command's."""
        for sink, name in self.terminals:
            with contextlib.suppress(OSError):
                theirs = os.open(name, os.O_RDWR | os.O_NOCTTY)
                copy_window_size(sink, theirs)
                os.close(theirs)


def connect() -> Outputs:
    """Start the relay; where that is impossible, the command's output passes by unread."""
    sources: list[int] = []
    outputs = Outputs()
    try:
        for streams in _streams():
            ours, theirs = _channel(streams[0], outputs)
            sources.append(ours)
            outputs.ends.append((theirs, streams))
        _start_relay(sources, outputs)
    except (OSError, ImportError) as error:
        outputs.close_ends()
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Outputs(unread=reason)
    finally:
        for source in sources:
            os.close(source)
    return outputs


def _start_relay(sources: Sequence[int], outputs: Outputs) -> None:
    copies, relays = socket.socketpair()
    sentry, sentrys = socket.socketpair()
    plans = [
        f"{source}:{','.join(map(str, streams))}"
        for source, (_, streams) in zip(sources, outputs.ends, strict=True)
    ]
    handed = [relays.fileno(), sentrys.fileno(), *sources]
    # By its input and not by name: whoever kills all that is called rlprobe leaves it alone.
    words = [sys.executable, "-I", "-S", "-", "output-relay", *map(str, handed[:2]), *plans]
    with relays, sentrys, _program() as program:
        for descriptor in handed:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no name
        os.posix_spawn(
            sys.executable,
            words,
            dict(os.environ),
            file_actions=[(os.POSIX_SPAWN_DUP2, program, 0)],
            setsigmask=signal.valid_signals(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    outputs.copies, outputs.sentry = copies, sentry
    sentry.settimeout(_START_SECONDS)
    stands = outputs.group_signals() is not None
    sentry.settimeout(_ANSWER_SECONDS)
    if not stands:
        copies.close()
        raise OSError("the process that passes it on does not start")


@contextlib.contextmanager
def _program() -> Iterator[int]:
    """The relay's program, to be read from this descriptor: it fits into a pipe."""
    source, sink = os.pipe()
    try:
        os.write(sink, Path(relay.__file__).read_bytes())
        os.close(sink)
        yield source
    finally:
        os.close(source)


def start(command: Sequence[str], environment: Mapping[str, str], outputs: Outputs) -> int:
    """Start the command; its process id.

    Raises:
        OSError: it cannot be started.
    """
    import subprocess

    ends = {stream: end for end, streams in outputs.ends for stream in streams}
    try:
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdout=ends.get(1),
            stderr=ends.get(2),
            close_fds=False,  # what is ours closes itself, what was handed to us is handed on
        )
    finally:
        outputs.close_ends()
        _let_go_of_input()
    process.returncode = 0  # it is waited for by its number: this object shall not
    return process.pid


def _let_go_of_input() -> None:
    """Who writes into the command's input shall notice when the command reads no more."""
    with contextlib.suppress(OSError):
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            nowhere = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nowhere, 0, inheritable=False)
            os.close(nowhere)


def _streams() -> list[list[int]]:
    """The outputs that are open; where both are the same file they share a channel, in order."""
    sinks = [number for number in (1, 2) if _is_open(number)]
    if len(sinks) == 2 and os.path.samestat(os.fstat(1), os.fstat(2)):
        return [[1, 2]]
    return [[number] for number in sinks]


def _channel(sink: int, outputs: Outputs) -> tuple[int, int]:
    if not os.isatty(sink):
        return os.pipe()
    import pty
    import tty

    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    copy_window_size(sink, theirs)
    with contextlib.suppress(OSError):  # it has no name in some containers: its size stays
        outputs.terminals.append((sink, os.ttyname(theirs)))
    return ours, theirs


def copy_window_size(source: int, target: int) -> None:
    """Give one terminal the size of another."""
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _is_open(number: int) -> bool:
    """Whether whoever started us gave us this descriptor."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return number not in _RESERVED


_RESERVED: set[int] = set()


def reserve_closed() -> None:
    """Let no file of ours get the number of a standard stream that was closed for us.

    The command finds them closed, as it would without us.
    """
    for number in (0, 1, 2):
        if not _is_open(number):
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            _RESERVED.add(nowhere)
