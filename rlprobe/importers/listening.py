"""How much of a file has been read so far, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

Listener = Callable[[Path, int, int], None]  # a file, bytes read, and of how many; 0: not known

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell this listener of whatever is read meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(path: Path, read: int, of: int) -> None:
    """So much of a file has been read."""
    listener = _listener.get()
    if listener is not None:
        listener(path, read, of)
