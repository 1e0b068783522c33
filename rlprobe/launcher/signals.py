"""Signals to the launcher: each reaches the command once, whoever else has got it.

A signal to the whole process group (a terminal's keys, `kill -- -PGID`, a job scheduler that
signals every process) has reached the command already. Whether it did is told by a sentry: a
process of the group that does nothing but take note of signals.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from rlprobe.launcher.ending import FIRST_REAL_TIME, Ending
from rlprobe.launcher.streams import Outputs

HALTING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_BY_TERMINAL = {signal.SIGINT, signal.SIGQUIT}
# Faults of our own, those that a process cannot do without, and what is no business of the command.
_OWN = {"SEGV", "BUS", "FPE", "ILL", "TRAP", "ABRT", "SYS", "PIPE", "KILL", "STOP", "TTIN", "TTOU"}
_GATHER_SECONDS = 0.02  # in which a signal has reached all of a group


def _forwarded() -> Iterator[int]:
    own = {getattr(signal, f"SIG{name}", None) for name in _OWN}
    for number in signal.valid_signals() - own - {signal.SIGCHLD, signal.SIGWINCH}:
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGXFSZ:
            yield number


@contextlib.contextmanager
def caught() -> Iterator[int]:
    """Signals become bytes in a pipe, whose reading end this is; ignored ones stay ignored.

    Holding signals back and waiting for them would need every thread of the process to hold them,
    and libraries start threads when they are imported.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {}
    for number in (*_forwarded(), signal.SIGCHLD, signal.SIGWINCH):
        with contextlib.suppress(OSError, ValueError):
            handlers[number] = signal.signal(number, lambda *_: None)
    try:
        yield reader
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


class Watch:
    """Waits for the command, and passes on what signals come to us.

    Args:
        pid: of the command.
        arrivals: where signals arrive as bytes.
        outputs: of the command.
    """

    def __init__(self, pid: int, arrivals: int, outputs: Outputs) -> None:
        self._pid, self._arrivals, self._outputs = pid, arrivals, outputs
        self._halted: int | None = None

    def wait(self) -> Ending:
        """How the command ended."""
        while True:
            select.select([self._arrivals], [], [])
            came = self._read()
            if any(_is_passed_on(number) for number in came):
                came += self._gather()
            if signal.SIGWINCH in came:
                self._outputs.resize()
                self._send(signal.SIGWINCH)  # the terminal's own came before the new size
            self._pass_on(came)
            if signal.SIGTSTP in came:
                self._stop(signal.SIGTSTP)
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if pid and not os.WIFSTOPPED(status):
                return _ending(status, self._halted)
            if pid:
                self._is_stopped()

    def _read(self) -> Counter[int]:
        with contextlib.suppress(BlockingIOError):
            return Counter(os.read(self._arrivals, 4096))
        return Counter()

    def _gather(self) -> Counter[int]:
        time.sleep(_GATHER_SECONDS)
        return self._read()

    def _pass_on(self, came: Mapping[int, int]) -> None:
        """Send the command what came to us alone."""
        numbers = [number for number in came if _is_passed_on(number)]
        if not numbers:
            return
        self._halted = next((n for n in numbers if n in HALTING), self._halted)
        has_got = self._has_got()
        for number in numbers:
            if number not in has_got:
                # Those of real time come as often as they are sent.
                for _ in range(came[number] if number >= FIRST_REAL_TIME else 1):
                    self._send(number)

    def _has_got(self) -> Collection[int]:
        """Signals that the command has got like us."""
        group = self._outputs.group_signals()
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(self._pid) != os.getpgrp():
                return ()
        if group is None:
            return _BY_TERMINAL if in_foreground() else ()
        return group

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, number)

    def _is_stopped(self) -> None:
        """The command stands still: so does its job, where a shell waits for it at a terminal."""
        if in_foreground():
            self._gather()
            self._stop(signal.SIGSTOP)

    def _stop(self, number: int) -> None:
        """Stop as the command does; returns when we are continued."""
        handler = signal.getsignal(number)
        if handler is not None and number != signal.SIGSTOP:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        if handler is not None and number != signal.SIGSTOP:
            signal.signal(number, handler)
        self._pass_on(self._read() - Counter({number: 2**31, int(signal.SIGTSTP): 2**31}))


def _is_passed_on(number: int) -> bool:
    return number not in {signal.SIGCHLD, signal.SIGWINCH}


def in_foreground() -> bool:
    """Whether our terminal's keys reach us, and so the command in the same process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _ending(status: int, halted: int | None) -> Ending:
    code = os.waitstatus_to_exitcode(status)
    killed = -code if code < 0 else None
    if killed == signal.SIGINT and halted is None:
        halted = killed  # the terminal told the command alone
    return Ending(code if code >= 0 else 128 - code, killed, halted)
