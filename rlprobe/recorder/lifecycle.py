"""Fork, signals, uncaught exceptions, exit: whatever ends a process, the recording is written.

Handlers that were there before are called after ours. What training recorded is kept alive here
until it has ended, whatever becomes of the recorder that it was given to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

# SIGHUP comes when a terminal is closed, or a connection breaks; under nohup it is ignored.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGTERM))


class Ends(Protocol):
    """What the lifecycle calls; what the ends return waits for what they asked of the writer."""

    @property
    def is_abandoned(self) -> bool: ...  # noqa: D102
    def begin_close(self, status: str) -> Callable[[], object]: ...  # noqa: D102
    def on_exit(self) -> Callable[[], object]: ...  # noqa: D102
    def on_exception(self, error: BaseException) -> Callable[[], object]: ...  # noqa: D102
    def on_signal(self, number: int) -> Callable[[], object]: ...  # noqa: D102
    def busy_here(self) -> bool: ...  # noqa: D102
    def before_fork(self) -> None: ...  # noqa: D102
    def after_fork_in_parent(self) -> None: ...  # noqa: D102
    def after_fork_in_child(self) -> None: ...  # noqa: D102


_watched: dict[int, Ends] = {}  # strong: what nobody else refers to any more must be written too
_installed: dict[str, Any] = {}
_postponed: list[tuple[int, FrameType | None]] = []


def watch(process: Ends, *, signals: bool = True) -> None:
    """Call this back when the process forks, is signalled, fails or exits.

    Recorders that went out of use before another began have recorded a run that is over.
    """
    for other in list(_watched.values()):
        if other.is_abandoned:
            unwatch(other)
            other.begin_close("completed")
    _watched[id(process)] = process
    if not _installed:
        _install()
    _finalize_in_worker()
    if signals:
        _install_signals()


def unwatch(process: Ends) -> None:
    """Stop calling back."""
    _watched.pop(id(process), None)


def _install() -> None:
    _installed["excepthook"] = sys.excepthook
    sys.excepthook = _on_exception
    atexit.register(_on_exit)
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def _each(method: str, *arguments: Any) -> list[Any]:
    """Call all, whatever one does; what they return."""
    returned = []
    for process in list(_watched.values()):
        with contextlib.suppress(Exception):
            returned.append(getattr(process, method)(*arguments))
    return returned


def _end_each(method: str, *arguments: Any) -> None:
    """Ask all, then wait for all: they write at the same time."""
    for wait in _each(method, *arguments):
        with contextlib.suppress(Exception):
            wait()


def _after_fork_in_parent() -> None:
    _each("after_fork_in_parent")
    _deliver_postponed()


def _after_fork_in_child() -> None:
    _postponed.clear()
    _each("after_fork_in_child")
    if "multiprocessing" in sys.modules:
        # Children of multiprocessing leave by os._exit, without atexit; their own finalizers run,
        # but those registered before the child has started up are forgotten.
        from multiprocessing import util

        util.register_after_fork(_on_exit, _finalize_in_child)


def _finalize_in_child(on_exit: Any) -> None:
    from multiprocessing import util

    util.Finalize(None, on_exit, exitpriority=0)


def _finalize_in_worker() -> None:
    """A recorder made in a child of multiprocessing must not rely on atexit either."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    if _installed.get("worker") != os.getpid():
        _installed["worker"] = os.getpid()
        _finalize_in_child(_on_worker_exit)


def _on_worker_exit() -> None:
    """The work is over; what it may have raised is still on its way and reaches no excepthook."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, SystemExit):
        _end_each("on_exception", error)
    _on_exit()


def _on_exit() -> None:
    _end_each("on_exit")


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if isinstance(error, BaseException):
        _end_each("on_exception", error.with_traceback(trace))
    _installed["excepthook"](kind, error, trace)


def _install_signals() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        with contextlib.suppress(ValueError, OSError):
            previous = signal.getsignal(number)
            if previous not in {_on_signal, None, signal.SIG_IGN}:
                _installed[f"signal:{number}"] = previous
                signal.signal(number, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if any(process.busy_here() for process in list(_watched.values())):
        # This thread is about to fork and keeps the writer from writing; it calls back when done.
        _postponed.append((number, frame))
        return
    _end_each("on_signal", number)
    previous = _installed.get(f"signal:{number}", signal.SIG_DFL)
    if callable(previous):
        previous(number, frame)
        return
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _deliver_postponed() -> None:
    """Handle signals that arrived during a fork."""
    while _postponed and threading.current_thread() is threading.main_thread():
        _on_signal(*_postponed.pop(0))
