"""Text as it can be stored, and names for texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rlprobe.store.faults import is_of_value


def storable(text: str) -> str:
    """The text itself where it is valid UTF-8; else with lone surrogates as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def text_of(value: Any) -> str:
    """Any value's text, storable; says so where it has none. Never raises."""
    try:
        return storable(value if type(value) is str else str(value))
    except BaseException as error:  # a value's own code may raise anything
        if not is_of_value(error):
            raise
        return f"<{type(value).__name__}: its text raises {type(error).__name__}>"


def plain_data(data: Mapping[Any, Any]) -> dict[str, Any]:
    """A copy of data as JSON can hold it; an entry that JSON has no word for is its text."""
    return {text_of(key): _plain(value) for key, value in data.items()}


def _plain(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, default=text_of))
    except Exception:  # it holds itself, or keys that JSON has no word for
        return text_of(value)


def plain_text(item: Any) -> str | None:
    """A text as text, a conversation (a list of messages) as JSON; storable."""
    if item is None:
        return None
    if isinstance(item, str):
        return text_of(item)
    try:
        return storable(json.dumps(item, ensure_ascii=False, default=text_of))
    except Exception:  # it holds itself, or keys that JSON has no word for
        return text_of(item)


def stable_id(text: str) -> str:
    """Hash of a text that is the same in every process and version: BLAKE2b, 16 hex digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
