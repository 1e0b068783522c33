"""Work on a disk that may hang: the command does not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DiskHangsError(Exception):
    """The disk does not answer."""


def within(seconds: float, work: Callable[[], T], late: Callable[[T], object]) -> T:
    """The result of work that is waited for so long and no longer.

    Args:
        late: called with a result that nobody waits for any more.

    Raises:
        DiskHangsError: it takes longer.
        Exception: what the work raises.
    """
    results: list[T] = []
    errors: list[Exception] = []
    given_up = threading.Event()

    def run() -> None:
        try:
            results.append(work())
            if given_up.is_set():
                late(results[0])
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rlprobe-disk", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        given_up.set()
        raise DiskHangsError(f"the disk has not answered for {seconds:g} seconds")
    return results[0]
