"""Whose fault an exception is that a value's own code seems to raise."""

from __future__ import annotations

import threading


def is_of_value(error: BaseException) -> bool:
    """Whether a value raised it, rather than Ctrl-C or a signal handler that ends the program.

    Handlers run on the main thread only: anywhere else, whatever is raised is the value's doing.
    """
    return isinstance(error, Exception) or threading.current_thread() is not threading.main_thread()
