"""Settings without their secrets, nested as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlprobe.redaction.command import words
from rlprobe.redaction.content import lines, of_hash, text
from rlprobe.redaction.names import NONE, STRONG, level_of, names_hash
from rlprobe.redaction.options import is_option
from rlprobe.redaction.shapes import MASK, is_harmless


def settings(value: Any, name: str = "") -> Any:
    """Settings, nested as they are, without their secrets; other values than text stay.

    Args:
        name: under which the value stands.
    """
    if isinstance(value, Mapping):
        return {key: settings(item, str(key)) for key, item in value.items()}
    level = level_of(name) if name else NONE
    if isinstance(value, bytes):
        return MASK if level else value
    if isinstance(value, str):
        hidden = level and not is_harmless(value, level)
        return MASK if hidden else of_hash(value) if names_hash(name) else text(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)
        if items and all(isinstance(item, str) for item in items) and level == NONE:
            is_command = any(is_option(item) for item in items)
            return words(["", *items])[1:] if is_command else list(lines(items))
        return [settings(item, name) for item in items]
    return MASK if level == STRONG and isinstance(value, int) and not _is_small(value) else value


def _is_small(value: int) -> bool:
    return isinstance(value, bool) or abs(value) < 10_000
