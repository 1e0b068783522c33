"""Boxes and panels that a terminal broke: every line of one is as long as its first rule."""

from __future__ import annotations

import re

from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.console.seams import BARS, CORNERS, ENDS

_RULE = re.compile(r"[-=]{8,}")
_OF_RULE = "─━═-="
_JOINTS = "┼┬┴╇╈┳┻╋╪╤╧╫╥╨"  # where a rule and a column meet


class Box:
    """Tells where the lines of a box end, from the rule above them.

    Args:
        width: that of the terminal.
        stripped: whether blanks at the ends of pieces may be missing.
    """

    def __init__(self, width: int, *, stripped: bool) -> None:
        self._terminal = width
        self._stripped = stripped
        self._width = 0  # of a line; 0 where none is open
        self._bars: set[int] = set()  # where the rule has them

    def see(self, line: str) -> None:
        """A line that is whole."""
        start = _start(line)
        if _is_rule(line) and (start not in CORNERS or line[-1] in ENDS):
            self._width = len(line)
            self._bars = {at for at, mark in enumerate(line) if mark in _JOINTS}
        elif start not in BARS:
            self._width = 0

    def holds(self, first: str) -> bool:
        """Whether a line, or its first pieces, is one of a box whose width is known, or a rule."""
        return (self._width > 0 and _start(first) in BARS) or _is_rule(first)

    def joined(self, first: str, last: int, second: str) -> str | None:
        """Two pieces of a line that is held as one; None where they are two lines."""
        missing = self._terminal - last
        if missing < 0 or (missing and not self._stripped) or second[0] in CORNERS:
            return None
        padded = first + " " * missing
        if not _is_rule(first):
            return self._in_box(padded, second)
        if _start(first) not in CORNERS:
            return first + second if not missing and set(second) <= set(_OF_RULE) else None
        return None if first[-1] in ENDS or second[0] in BARS else padded + second

    def _in_box(self, padded: str, second: str) -> str | None:
        """The same of a line between bars, with all its blanks."""
        if len(padded) >= self._width or (padded[-1] in BARS and second[0] in BARS + _OF_RULE):
            return None
        end = (self._width - 1) % self._terminal + 1
        is_last = self._stripped and len(second) == end and second[-1] in ENDS
        if is_last and not self._fits(second, len(padded)):
            return padded.ljust(self._width - end) + second  # pieces of blanks are missing
        return padded + second

    def _fits(self, piece: str, start: int) -> bool:
        """Whether the bars of a piece of a box with several columns are where its rule has them."""
        bars = {start + at for at, mark in enumerate(piece) if mark in BARS}
        return bool(self._bars) and bars <= self._bars


def _start(line: str) -> str:
    """What a line begins with, behind its prefix."""
    return bare(line, labelled=True).text.lstrip()[:1] or " "


def _is_rule(line: str) -> bool:
    return _start(line) in CORNERS or _RULE.fullmatch(bare(line, labelled=True).text) is not None
