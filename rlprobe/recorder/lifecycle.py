"""Fork, signals, uncaught exceptions, exit: whatever ends a process, the recording is written.

Handlers that were there before are called after ours. Nothing here keeps a recorder alive.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import weakref
from types import FrameType, TracebackType
from typing import Any, Protocol

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ends(Protocol):
    """What the lifecycle calls on a recorder."""

    def on_exit(self) -> None: ...  # noqa: D102
    def on_exception(self, error: BaseException) -> None: ...  # noqa: D102
    def on_signal(self, number: int) -> None: ...  # noqa: D102
    def busy_here(self) -> bool: ...  # noqa: D102
    def before_fork(self) -> None: ...  # noqa: D102
    def after_fork_in_parent(self) -> None: ...  # noqa: D102
    def after_fork_in_child(self) -> None: ...  # noqa: D102


_watched: weakref.WeakSet[Ends] = weakref.WeakSet()
_installed: dict[str, Any] = {}
_postponed: list[tuple[int, FrameType | None]] = []


def watch(recorder: Ends, *, signals: bool = True) -> None:
    """Call this recorder back when its process forks, is signalled, fails or exits."""
    _watched.add(recorder)
    if not _installed:
        _install()
    if signals:
        _install_signals()


def unwatch(recorder: Ends) -> None:
    """Stop calling this recorder."""
    _watched.discard(recorder)


def _install() -> None:
    _installed["excepthook"] = sys.excepthook
    sys.excepthook = _on_exception
    atexit.register(_on_exit)
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork_in_parent"),
        after_in_child=_after_fork_in_child,
    )


def _each(method: str, *arguments: Any) -> None:
    for recorder in list(_watched):
        with contextlib.suppress(Exception):
            getattr(recorder, method)(*arguments)


def _after_fork_in_child() -> None:
    _each("after_fork_in_child")
    if "multiprocessing" in sys.modules:
        # Children of multiprocessing leave by os._exit, without atexit; their own finalizers run,
        # but those registered before the child has started up are forgotten.
        from multiprocessing import util

        util.register_after_fork(_on_exit, _finalize_in_child)


def _finalize_in_child(on_exit: Any) -> None:
    from multiprocessing import util

    util.Finalize(None, on_exit, exitpriority=0)


def _on_exit() -> None:
    _each("on_exit")


def _on_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if isinstance(error, BaseException):
        _each("on_exception", error.with_traceback(trace))
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
    if any(recorder.busy_here() for recorder in list(_watched)):
        # This thread is inside a flush: writing again now would tear it. It calls back when done.
        _postponed.append((number, frame))
        return
    _each("on_signal", number)
    previous = _installed.get(f"signal:{number}", signal.SIG_DFL)
    if callable(previous):
        previous(number, frame)
        return
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def deliver_postponed() -> None:
    """Handle signals that arrived during a flush; called right after it."""
    while _postponed and threading.current_thread() is threading.main_thread():
        _on_signal(*_postponed.pop(0))
