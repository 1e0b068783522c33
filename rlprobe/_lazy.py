"""`cached_property` that type checkers take for a property, which is what protocols ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    cached_property = property
else:
    from functools import cached_property

__all__ = ["cached_property"]
