"""JSON that was cut off: what stands before the cut."""

from __future__ import annotations

import json
import re

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(
    rf'\s*(?:(?P<text>{_STRING})|(?P<mark>[{{}}\[\],:])|[^\s"{{}}\[\],:]+)',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 200


def mended(text: str) -> object:
    """The document up to the cut; None if it is broken elsewhere.

    A text that was cut is kept up to its last whole line, for what follows may be half a number;
    so is a number at the end.
    """
    open_: list[str] = []
    key = False  # whether a text would be a key
    good, at = 0, 0  # up to where all is whole; up to where it was read
    while match := _TOKEN.match(text, at):
        at = match.end()
        mark = match["mark"]
        if mark in _CLOSING:
            open_.append(mark)
            if len(open_) > _DEEPEST:
                return None
        elif mark in ("}", "]"):
            if not open_:
                return None
            open_.pop()
        is_key = key and match["text"] is not None
        key = mark == "{" or (mark == "," and bool(open_) and open_[-1] == "{")
        whole = match["text"] is not None or mark is not None or at < len(text)
        if whole and not is_key and mark not in (",", ":"):
            good = at
    rest = text[at:].lstrip()
    kept = _lines_of(rest[1:]) if rest.startswith('"') and not key else ""
    whole_text = f'{text[:at]}"{kept}"' if kept else text[:good]
    try:
        return json.loads(whole_text + "".join(_CLOSING[each] for each in reversed(open_)))
    except (ValueError, RecursionError):
        return None


def _lines_of(start: str) -> str:
    """The whole lines at the start of an escaped text, and whole rows of a table."""
    ends = [match.end() for match in _ESCAPE.finditer(start) if match[1] == "n"]
    ends.append(start.rfind("</tr>") + len("</tr>") if "</tr>" in start else 0)
    return start[: max(ends)]
