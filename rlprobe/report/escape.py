"""Text that a run supplied, made safe to show: nothing in it can move a cursor or hide itself.

Metric names, rollouts, event messages and paths come from training code and from model output.
Control sequences, direction overrides, invisible characters and lone surrogates appear as visible
escapes. The result goes into `rich.text.Text` objects only, never into markup strings.
"""

from __future__ import annotations

import re

from rlprobe import _visible

_BREAKS = re.compile(r"[^\n\t]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~])")


line = _visible.line
start = _visible.start


def block(text: str) -> list[str]:
    """The text as visible lines, its own line breaks kept."""
    unified = text.replace("\r\n", "\n").expandtabs(4)
    return [line(part) for part in unified.split("\n")]


def kept_breaks(text: str) -> str:
    """The text as visible characters, with its own line breaks and tabs as they are."""
    return _BREAKS.sub(lambda part: line(part[0]), text)


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
