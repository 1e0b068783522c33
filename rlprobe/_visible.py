"""Text that a run supplied, as visible characters.

Control sequences, direction overrides, invisible characters and lone surrogates become escapes.
"""

from __future__ import annotations

import unicodedata

_JOINERS = frozenset("\u200c\u200d")  # spell words in Persian and Hindi, and emoji: harmless
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def line(text: str) -> str:
    """The text as one visible line; line breaks and tabs become escapes too."""
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) not in _HIDDEN or character in _JOINERS:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def start(text: str, limit: int) -> str:
    """At most `limit` characters from the start of the text, made one visible line."""
    shown = line(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
