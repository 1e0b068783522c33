"""Replace a bound method on one instance, and leave the class alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Around = Callable[..., Any]


class Wrapped:
    """Stands for `owner.name`: calls `around(original, *args, **kwargs)` instead.

    A copy or a pickle of the owner gets the plain method back: copies are not recorded.
    """

    def __init__(self, owner: Any, name: str, around: Around) -> None:
        self.owner = owner
        self.name = name
        self.around = around
        self.original = getattr(owner, name)
        functools.update_wrapper(self, self.original, updated=())  # it may be a Wrapped as well

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapper around the original method."""
        return self.around(self.original, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.owner, self.name)


def wrap(owner: Any, name: str, around: Around) -> bool:
    """Wrap a method of this instance; False where there is none."""
    if not callable(getattr(owner, name, None)):
        return False
    setattr(owner, name, Wrapped(owner, name, around))
    return True
