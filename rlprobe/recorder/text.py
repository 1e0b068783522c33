"""Text as it can be stored."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text as valid UTF-8: a lone surrogate becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
