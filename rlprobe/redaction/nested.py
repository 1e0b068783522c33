"""Settings without their secrets, nested as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlprobe.redaction.command import words
from rlprobe.redaction.content import lines, of_hash, text
from rlprobe.redaction.names import NONE, STRONG, level_of, names_hash
from rlprobe.redaction.options import is_option
from rlprobe.redaction.shapes import MASK, is_harmless

_SMALL = 10_000  # no password, but a count or a port


def settings(value: Any, name: str = "") -> Any:
    """Settings, nested as they are, without their secrets; numbers stay, and objects become text.

    Args:
        name: under which the value stands.
    """
    if isinstance(value, Mapping):
        return {key: settings(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return _items(list(value), name)
    level = level_of(name) if name else NONE
    if isinstance(value, str):
        hidden = level and not is_harmless(value, level)
        return MASK if hidden else of_hash(value) if names_hash(name) else text(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return MASK if level == STRONG and abs(value) >= _SMALL else value
    return MASK if level == STRONG else _of_object(value)


def _items(items: list[Any], name: str) -> list[Any]:
    if level_of(name) or not all(isinstance(item, str) for item in items):
        return [settings(item, name) for item in items]
    return words(["", *items])[1:] if any(map(is_option, items)) else lines(items)


def _of_object(value: Any) -> Any:
    """An object as the text that it would be stored as; itself where it has none."""
    try:
        return text(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # its own code may raise anything: whoever stores it says so
        return value
