"""Text that a run supplied, made safe to show: nothing in it can move a cursor or hide itself.

Metric names, rollouts, event messages and paths come from training code and from model output.
Control sequences, direction overrides, invisible characters and lone surrogates appear as visible
escapes. The result goes into `rich.text.Text` objects only, never into markup strings.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = frozenset("\u200c\u200d")  # spell words in Persian and Hindi, and emoji: harmless
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~])")


def line(text: str) -> str:
    """The text as one visible line; line breaks and tabs become escapes too."""
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def block(text: str) -> list[str]:
    """The text as visible lines, its own line breaks kept."""
    unified = text.replace("\r\n", "\n").expandtabs(4)
    return [line(part) for part in unified.split("\n")]


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) not in _HIDDEN or character in _JOINERS:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def name(text: str, limit: int = 40) -> str:
    """A metric name or path as one visible line, shortened in the middle."""
    ends = text if len(text) <= 4 * limit else text[: 2 * limit] + text[-2 * limit :]
    return middle(line(ends), limit)


def middle(text: str, limit: int) -> str:
    """At most `limit` characters: the start and the end of the text, `…` between them."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def start(text: str, limit: int) -> str:
    """At most `limit` characters from the start of the text, made one visible line."""
    shown = line(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def markdown(text: str) -> str:
    """The text as literal Markdown: no formatting, tables, HTML, mentions or links come of it."""
    shown = _MARKDOWN.sub(r"\\\1", line(text))
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown.replace("@", "@<!-- -->").replace("://", ":<!-- -->//")


def code(text: str) -> str:
    """The text as inline code in Markdown, whatever back-ticks it holds."""
    shown = line(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
