"""Rows that the terminal broke over several lines, in mid-name and in mid-number, put together.

A terminal breaks at its width, and prints no line that is longer: a line may be broken where it is
as long as the longest of the log, up to the blanks that were cut off at its end. Whether it is
shows at the seam: a name or a number that goes on in the next line, or what separates pairs. Lines
of other lengths are put together only where that makes a known name of two pieces.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import Pair, pairs_in
from rlprobe.importers.console.prefixes import ANSI, Line

SHORTEST = 24  # characters of a line that may be broken
_NARROWEST, _WIDEST = 40, 512  # characters of a line on a terminal
_CUT_BLANKS = 2  # that may be missing at the end of a line
_LONGEST = 32_768
_MOST_LINES = 200  # of a dict
_ROW = re.compile(
    r"[\w)\]'\"]\s?[:=|]\s?[-+.\d'\"ni]|[A-Za-z_][\w@.%/-]{0,40}\s+[-+]?\.?\d|\bstep:\d"
)
_DRAWN = re.compile(r"%\|[^|]{0,300}\|\s*\d+/")
_START = re.compile(
    r"\s*(?:(?:global|train|training)?[ _]?(?:step|iter|iteration|epoch|episode|update)s?\b|\[|\{|<"
    r"|>|[-=*#_|:]{2}|Traceback|File |Saving|WARN|\d{1,6}:\s*(?:step|(?-i:[A-Z]))"
    r"|\d{1,3}%\|(?=[\s█▏▎▍▌▋▊▉#]|$))",
    re.IGNORECASE,
)
_STEPPED = re.compile(
    r"\b(?:step|iter|iteration|epoch)s?(?:\(\w+\))?\s?[:=#]?\s?\[?\s{0,9}\d", re.IGNORECASE
)
_ENDS_IN_NUMBER = re.compile(r"(?:\d|\d[eE][-+]?|[\s:=(\[][-+.]|\.)$")
_NUMBER_GOES_ON = re.compile(r"[\d.]|[eE][-+]?\d|[-+]\d")
_SIGNED = re.compile(r"[A-Za-z)]\s?[:=]\s?[-+.]$")
_COLUMNS = re.compile(r"\s*[A-Za-z_][^\s|]*(?: [^\s|]+){0,3}\s{2,}[-+]?[\d.]\S*")
_REST_OF_NUMBER = re.compile(r"[\d.]*(?:[eE]?[-+]?\d+)?\s*")
_LAST_TOKEN = re.compile(r"[^\s,|;]*[\s,|;]*$")
_SEPARATOR = re.compile(r"\s*([-|,;/])\s+(?=[A-Za-z_])")
_ENDS_IN_SEPARATOR = re.compile(r"(?:\s-|[|,;/])\s*$|\t$")
_RULED = re.compile(r"\s*[-=─━═*#]{3}")
_BETWEEN = re.compile(r"[\s|,;/-]*")
_BAR = "|│┃"
_CORNERS = "╭╰├┏┗┣┡└┌╒╘╞┠"  # with which a rule of a box begins
_ENDS = "│┃|╮╯┤┓┛┫┩┘┐╕╛╡┨"
_OPENS = re.compile(r"\{\s*(?:['\"]|$)")
_DICT_NEXT = re.compile(r"\b(?:step|rollout|perf|eval|train) \d+:?\s*$", re.IGNORECASE)
_QUOTED = re.compile(r"\s*(['\"])[\w ./@()%-]{1,80}\1\s?:\s?[^\s\\]")


def width_of(head: bytes) -> int:
    """The longest of the first lines of a log; 0 where it is wider than any terminal."""
    text = head.decode("utf-8", "replace").replace("\r", "\n")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    longest = max(map(len, text.split("\n")), default=0)
    return longest if longest <= _WIDEST else _WIDEST + 1


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
        least = max(self._width - _CUT_BLANKS, _NARROWEST - 1)
        return least <= length <= self._width <= _WIDEST

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
        if inside or self._open or not may_be_broken(line.text.ljust(min(line.length, SHORTEST))):
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
            and _ENDS_IN_NUMBER.search(held.text)
            and _NUMBER_GOES_ON.match(text)
            and not _START.match(text)
            and (pairs_in(held.text) or _SIGNED.search(held.text) or _COLUMNS.fullmatch(held.text))
        ):
            return replace(held, text=_LAST_TOKEN.sub("", held.text), cut=True)
        return held

    def _joined(self, first: str, line: Line) -> str | None:
        """The two as one line; None where they are two."""
        if line.prefixed or not line.text.strip() or len(first) > _LONGEST:
            return None
        # What was cut off at the end of a line are blanks.
        whole = first + " " * (self._width - self._last if self._full else 0) + line.text
        return whole if goes_on(first, line.text, whole, full=self._full) else None


def goes_on(first: str, second: str, whole: str, *, full: bool) -> bool:
    """Whether a line goes on in the next.

    Args:
        full: whether it reaches the end of the line.
    """
    if first.lstrip()[:1] in _BAR + _CORNERS and first.strip():
        return _goes_on_in_bars(first, second, full=full)
    if first.lstrip()[:1] in "'\"":
        return _goes_on_quoted(first, second, whole, full=full)
    if _at_separator(first, second, whole, full=full) or (
        full and second.startswith("{") and _DICT_NEXT.search(first)
    ):
        return True
    if _START.match(second) or second[:8] == first[:8]:
        return False
    seam = len(whole) - len(second)
    return _is_seam(first, whole, seam) if full else _makes_known(first, second)


def _is_seam(first: str, whole: str, seam: int) -> bool:
    """Whether a line that is as long as the terminal is wide goes on in the next."""
    before = pairs_in(first)
    if _COLUMNS.fullmatch(first) and _REST_OF_NUMBER.fullmatch(whole[seam:]):
        return True  # a name and its number in two columns
    if not before and not _STEPPED.search(first):
        return False  # rows of a table, and text
    pairs = pairs_in(whole)
    if console_line.step_in(whole[seam:]) is not None:
        return False
    alone = pairs_in(whole[seam:])
    begins = bool(alone) and not whole[seam : seam + alone[0].start].strip(" -*•\t")
    if (
        before
        and begins
        and before[-1].end == len(first.rstrip())
        and whole[seam - 1 : seam + 1].strip() == whole[seam - 1 : seam + 1]
    ):
        return False  # two that are whole
    spanning = next((pair for pair in pairs if pair.start < seam < pair.end), None)
    if spanning is not None:
        cut = bool(before) and spanning.start == before[-1].start
        return cut or not before or spanning.blank == before[-1].blank
    tail = first[before[-1].end :] if before else ""
    follows = next((pair for pair in pairs if pair.start >= seam), None)
    blanks = len(before) > 1 and not any(
        first[a.end : b.start].strip() for a, b in itertools.pairwise(before)
    )
    return (
        (bool(_ENDS_IN_SEPARATOR.search(tail)) or (blanks and not tail.strip()))
        and follows is not None
        and follows.blank == before[-1].blank
        and not whole[seam : follows.start].strip()
        and len(pairs) >= len(before)
    )


def _makes_known(first: str, second: str) -> bool:
    """Whether a name that is known stands at the seam of a row, and none without it."""
    before, pairs = pairs_in(first), pairs_in(first + second)
    if not before or _START.match(second):
        return False
    spanning = [pair for pair in pairs if pair.start < len(first) < pair.end]
    alone = pairs_in(second)
    return (
        len(spanning) == 1
        and bool(_BETWEEN.match(first[before[-1].end : spanning[0].start]))
        and console_line.is_measurement(spanning[0].key)
        and not (alone and console_line.is_measurement(alone[0].key))
        and len(pairs) >= max(len(before), len(alone))
        and _is_separated_alike(first, before)
    )


def _is_separated_alike(first: str, pairs: Sequence[Pair]) -> bool:
    """Whether the piece of a name at the end stands behind what separates the pairs."""
    tail = first[pairs[-1].end :]
    return len(pairs) < 2 or tail.startswith(first[pairs[-2].end : pairs[-1].start] or "\0")


def _at_separator(first: str, second: str, whole: str, *, full: bool) -> bool:
    """Whether a line begins with what separates the pairs of the line before."""
    begins = _SEPARATOR.match(second)
    if begins is not None and begins[1] == "-":
        at = len(whole) - len(second) + begins.start(1)
        if whole[at - 1 : at].strip() or first.lstrip()[:2] == "- ":
            return False  # bullets
        full &= first[-1:] == " " or begins.start(1) > 0
    if begins is not None:
        pairs = pairs_in(first) if pairs_in(second) else []
        between = (first[a.end : b.start] for a, b in itertools.pairwise(pairs))
        return (full and bool(pairs)) or any(begins[1] in text for text in between)
    return False


def is_framed(text: str) -> bool:
    """Whether a line begins with a bar or a corner of a box, or with a quote."""
    return text.lstrip()[:1] in _BAR + _CORNERS + "'\""


def may_be_broken(text: str) -> bool:
    """Whether a line may lack its end."""
    if len(text) < SHORTEST or len(text) > _LONGEST or "<t" in text:
        return False
    if "%|" in text and _DRAWN.search(text):
        return False
    start = text.lstrip()[:1]
    if start in _BAR + _CORNERS:
        return True
    if _RULED.match(text):
        return False
    if "{" in text or "}" in text or (start in "'\"" and not _QUOTED.match(text)):
        return False
    return bool(_ROW.search(text))


def _goes_on_in_bars(first: str, second: str, *, full: bool) -> bool:
    """A line between bars that lacks its end, or is cut at one of them."""
    bar = first.lstrip()[0]
    closed = first.rstrip()[-1:] in _ENDS
    start, end = second.lstrip()[:1], second.rstrip()[-1:]
    if bar in _CORNERS:
        return full and not closed and start not in _CORNERS + _BAR
    if second.strip() == bar:
        return True
    if _START.match(second) and start not in _BAR:
        return False
    if start in _BAR + _CORNERS:
        further = len(second) - len(second.lstrip()) > len(first) - len(first.lstrip())
        return full and start == bar and (further or not closed)
    if (full or not closed) and end == bar:
        return True
    return full and bar in second and not _START.match(second)


def _goes_on_quoted(first: str, second: str, whole: str, *, full: bool) -> bool:
    """The body of a dict without its braces."""
    start = second.lstrip()[:1]
    if start == "{" or "}" in first:
        return False
    if not _is_whole(first):
        return "'" in second or '"' in second or _is_whole(first + second)
    if first.rstrip()[-1:] == ",":
        return start in "'\""
    return start == "," or (full and start not in "'\"" and _is_whole(whole))


def _is_whole(text: str) -> bool:
    return console_line.dictionary(text.strip()) is not None
