"""Text as it can be stored, and names for texts."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def storable(text: str) -> str:
    """The text itself where it is valid UTF-8; else with lone surrogates as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def plain_text(item: Any) -> str | None:
    """A text as text, a conversation (a list of messages) as JSON; storable."""
    if item is None:
        return None
    if not isinstance(item, str):
        item = json.dumps(item, ensure_ascii=False, default=str)
    return storable(item)


def stable_id(text: str) -> str:
    """Hash of a text that is the same in every process and version: BLAKE2b, 16 hex digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
