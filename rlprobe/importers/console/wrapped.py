"""Rows that the terminal broke over several lines, in mid-name and in mid-number, put together.

A terminal breaks at its width, and prints no line that is longer: a line may be broken where it is
as long as the longest of the log, up to the blanks that were cut off at its end. Whether it is
shows at the seam: a name or a number that goes on in the next line, or what separates pairs. Lines
of other lengths are put together only where that makes a known name of two pieces.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rlprobe.importers.console.pairs import pairs_in
from rlprobe.importers.console.prefixes import Line
from rlprobe.importers.console.seams import (
    BARS,
    COLUMNS,
    CORNERS,
    ENDS_IN_NUMBER,
    NUMBER_GOES_ON,
    START,
    goes_on,
)
from rlprobe.importers.console.tears import Seam, may_go_on
from rlprobe.importers.console.terminal import (
    CUT_BLANKS,
    NARROWEST,
    WIDEST,
    lead_of,
    lines_of,
    terminal_of,
)

SHORTEST = 24  # characters of a line that may be broken
_LONGEST = 32_768
_MOST_LINES = 200  # of a dict
_ROW = re.compile(
    r"[\w)\]'\"]\s?[:=|]\s?[-+.\d'\"ni]|[A-Za-z_][\w@.%/-]{0,40}\s+[-+]?\.?\d|\bstep:\d"
)
_DRAWN = re.compile(r"%\|[^|]{0,300}\|\s*\d+/")
_SIGNED = re.compile(r"[A-Za-z)]\s?[:=]\s?[-+.]$")
_LAST_TOKEN = re.compile(r"[^\s,|;]*[\s,|;]*$")
_RULED = re.compile(r"\s*[-=─━═*#]{3}")
_OPENS = re.compile(r"\{\s*(?:['\"]|$)")
_QUOTED = re.compile(r"\s*(['\"])[\w ./@()%-]{1,80}\1\s?:\s?[^\s\\]")


def width_of(head: bytes) -> int:
    """The longest of the first lines of a log; 0 where it is wider than any terminal.

    And 0 where all lines are put together before they are read.
    """
    longest = max(map(len, lines_of(head)), default=0)
    if longest > WIDEST:
        return WIDEST + 1
    return 0 if terminal_of(head) else longest


class Wrapped:
    """Joins the pieces of broken lines.

    Args:
        width: no line so far is longer; 0 where no terminal broke the lines.
    """

    def __init__(self, width: int = 0) -> None:
        self._width = width
        self._held: Line | None = None
        self._open = 0  # lines that a dict may still go on
        self._last = 0  # the length of the last piece of what is held

    @property
    def holds(self) -> bool:
        """Whether a line waits for its rest."""
        return self._held is not None

    def forget(self) -> None:
        """Let go of what waits."""
        self._held, self._open, self._last = None, 0, 0

    def hold(self, line: Line) -> None:
        """A line that may be broken; the next one tells."""
        self._held, self._last = line, line.length

    def let_go(self, number: int) -> bool:
        """Hold a line no longer, if it is one piece and of this number."""
        if self._held is None or self._held.number != number:
            return False
        self._held = None
        return True

    def widen(self, length: int) -> None:
        """A line of this length was printed."""
        if self._width:
            self._width = max(self._width, length)

    def is_full(self, length: int) -> bool:
        """Whether a line of this length reaches the end of the terminal."""
        least = max(self._width - CUT_BLANKS, NARROWEST - 1)
        return least <= length <= self._width <= WIDEST

    def padding(self, length: int) -> int:
        """Blanks that may be missing at the end of a line of this length; -1: it is not full."""
        return self._width - length if self.is_full(length) else -1

    def parted(self, first: Line, second: Line) -> bool:
        """Whether two lines are two, and the first is whole; none is held."""
        self._last = first.length
        return self._joined(first.text, second) is None and not self._cut(first, second).cut

    def feed(self, line: Line) -> list[Line]:
        """The lines that are whole with this one."""
        self.widen(line.length)
        whole: list[Line] = []
        if self._held is not None:
            joined = self._joined(self._held.text, line)
            if joined is not None:
                return self._hold(replace(self._held, text=joined), line.length)
            whole = [self._cut(self._held, line)]
            self._held = None
        return whole + self._hold(line, line.length)

    def _hold(self, line: Line, length: int) -> list[Line]:
        """A line that may go on waits for the next; within a dict all lines do."""
        self._held, self._last = None, length
        inside = self._open
        opened, closed = line.text.rfind("{"), line.text.rfind("}")
        if opened > closed:
            self._open = _MOST_LINES if _OPENS.search(line.text, opened) else 0
        elif closed >= 0 or line.prefixed:
            self._open = inside = 0
        else:
            self._open = max(self._open - 1, 0)
        if inside or self._open:
            return [replace(line, text=line.text + " " * max(self.padding(length), 0))]
        if not may_be_broken(line.text.ljust(min(line.length, SHORTEST))):
            return [line]
        self._held = line
        return []

    def finish(self) -> list[Line]:
        """The line that waits for its rest, which does not come."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    @property
    def _full(self) -> bool:
        """Whether the last piece reaches the end of the line."""
        return self.is_full(self._last)

    def _cut(self, held: Line, following: Line) -> Line:
        """The line as it is, without a last number that may go on in the line after it."""
        text = following.text
        if (
            self._full
            and not following.prefixed
            and ENDS_IN_NUMBER.search(held.text)
            and NUMBER_GOES_ON.match(text)
            and not START.match(text)
            and lead_of(text) != lead_of(held.text)
            and (pairs_in(held.text) or _SIGNED.search(held.text) or COLUMNS.fullmatch(held.text))
        ):
            return replace(held, text=_LAST_TOKEN.sub("", held.text), cut=True)
        return held

    def _joined(self, first: str, line: Line) -> str | None:
        """The two as one line; None where they are two."""
        if line.prefixed or not line.text.strip() or len(first) > _LONGEST:
            return None
        # What was cut off at the end of a line are blanks.
        padded = first + " " * (self._width - self._last if self._full else 0)
        if self._full:
            seam = Seam(padded, line.text)
            if not may_go_on(seam) or seam.is_end:
                return None
        whole = padded + line.text
        return whole if goes_on(first, line.text, whole, full=self._full) else None


def is_framed(text: str) -> bool:
    """Whether a line begins with a bar or a corner of a box, or with a quote."""
    return text.lstrip()[:1] in BARS + CORNERS + "'\""


def may_be_broken(text: str) -> bool:
    """Whether a line may lack its end."""
    if len(text) < SHORTEST or len(text) > _LONGEST or "<t" in text:
        return False
    if "%|" in text and _DRAWN.search(text):
        return False
    start = text.lstrip()[:1]
    if start in BARS + CORNERS:
        return True
    if _RULED.match(text):
        return False
    if "{" in text or "}" in text or (start in "'\"" and not _QUOTED.match(text)):
        return False
    return bool(_ROW.search(text))
