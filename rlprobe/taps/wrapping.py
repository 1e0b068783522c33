"""A call with a look at it: what it is given is looked at, then it goes on as before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .hub import HUB

_MARK = "__rlprobe_tap__"


def tap(owner: Any, name: str, look: Callable[..., None], source: str) -> None:
    """Let `look` see the arguments of each call of `owner.name`; the call itself is unchanged.

    While the call runs, no other tap of this thread records: what a tracker hands on to another one
    is the same thing said again.

    Args:
        owner: a class or a module. Nothing happens where it has no such callable.
        look: called before the call, with its arguments; what it raises is counted and said once.
        source: what people know the call as.
    """
    original = getattr(owner, name, None)
    if not callable(original) or getattr(original, _MARK, None) is not None:
        return
    state = HUB.state

    @functools.wraps(original)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        if state.busy:
            return original(*args, **kwargs)
        state.busy = True
        try:
            try:
                look(*args, **kwargs)
            except Exception as error:
                HUB.fail(source, error)
            return original(*args, **kwargs)
        finally:
            state.busy = False

    setattr(tapped, _MARK, source)
    setattr(owner, name, tapped)


def tap_result(owner: Any, name: str, look: Callable[..., None], source: str) -> None:
    """Let `look` see what each call of `owner.name` returns, and after that its arguments.

    What runs within the call is heard as always.
    """
    original = getattr(owner, name, None)
    if not callable(original) or getattr(original, _MARK, None) is not None:
        return

    @functools.wraps(original)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not HUB.state.busy:
            try:
                look(result, *args, **kwargs)
            except Exception as error:
                HUB.fail(source, error)
        return result

    setattr(tapped, _MARK, source)
    setattr(owner, name, tapped)
