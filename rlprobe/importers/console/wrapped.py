"""Rows that the terminal broke over several lines, in mid-name and in mid-number, put together.

A piece belongs to the line before it where that heals what both have left over: `actor/gr` and
`ad_norm:0.6` are one name, `entropy:0.` and `401 - kl:0.1` one number. A terminal breaks at one
width, so that lines broken beyond doubt tell which others may be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from rlprobe.importers.console.pairs import Pair, left_of, pairs_in
from rlprobe.importers.console.prefixes import Line

SHORTEST = 24  # characters of a line that may be broken
_MOST_PIECES = 400
_LONGEST = 32_768
_ROW = re.compile(r"[\w)\]'\"]\s?[:=|]\s?[-+.\d'\"ni]|[A-Za-z_]\s+[-+]?\.?\d|\bstep:\d")
_START = re.compile(
    r"\s*(?:(?:global|train|training)?[ _]?(?:step|iter|iteration|epoch|episode|update)s?\b|\[|\{|<"
    r"|>|[-=*#_|:]{2}|Traceback|File |Saving|WARN|\d+\W\s*(?:step|[A-Z])|\d{1,3}%\|)",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[\w.+-]*\w[\w.+-]*|[-+.](?=\s|$)")
_WORD = re.compile(r"[A-Za-z]{2,}")
_ENDS_IN_NUMBER = re.compile(r"(?:\d|\d[eE][-+]?|[\s:=(\[][-+.]|\.)$")
_NUMBER_GOES_ON = re.compile(r"[\d.eE+-]")
_FRAGMENT = re.compile(r"\s*[-+.\deE%a-z)]{1,24}\s*")  # nothing but the end of a number
_LAST_TOKEN = re.compile(r"[^\s,|;]*[\s,|;]*$")
_STEPPED = re.compile(r"\b(?:step|iter|iteration|epoch)s?\s?[:=#]?\s?\d", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*([-|,;])\s+(?=[A-Za-z_])")
_ENDS_IN_SEPARATOR = re.compile(r"\s?([-|,;])\s*$")
_NUMBERS = re.compile(r"(?<![\d.])\d|nan|inf|tensor", re.IGNORECASE)
_PAIR_WORDS, _ASIDE_WORDS = 8, 10
_BAR = "|│┃"
_QUOTED = re.compile(r"\s*(['\"])[\w ./@()%-]{1,80}\1\s?:\s?[^\s\\]")


class Wrapped:
    """Joins the pieces of broken lines.

    Attributes:
        width: at which the terminal breaks lines, once one was broken beyond doubt.
    """

    def __init__(self) -> None:
        self.width = 0
        self._held: Line | None = None
        self._lengths: list[int] = []  # of the pieces of what is held

    @property
    def holds(self) -> bool:
        """Whether a line waits for its rest."""
        return self._held is not None

    def hold(self, line: Line, length: int) -> None:
        """A line that may be broken; the next one tells."""
        self._held, self._lengths = line, [length]

    def is_full(self, length: int) -> bool:
        """Whether a line may reach to the edge of the terminal."""
        return bool(self.width) and length in (self.width, self.width - 1)

    def parted(self, first: Line, second: Line) -> bool:
        """Whether two lines, of which the first is not full, are two."""
        lengths, self._lengths = self._lengths, [0]
        joined = self._joined(first, second)
        self._lengths = lengths
        return joined is None

    def feed(self, line: Line, length: int) -> list[Line]:
        """The lines that are whole with this one.

        Args:
            length: of the line as it was printed, prefix included.
        """
        whole: list[Line] = []
        if self._held is not None:
            joined = self._joined(self._held, line)
            if joined is not None:
                self._held = replace(self._held, text=joined)
                self._lengths.append(length)
                return whole
            whole = self.finish()
        if may_be_broken(line.text):
            self._held, self._lengths = line, [length]
            return whole
        return [*whole, line]

    def finish(self) -> list[Line]:
        """The line that waits for its rest, which does not come."""
        held, self._held = self._held, None
        if held is None:
            return []
        lengths, self._lengths = self._lengths, []
        if len(lengths) > 2 and len(set(lengths[:-1])) == 1:
            self.width = lengths[0]
        if self.width and lengths[-1] == self.width and not _closed(held.text):
            return [replace(held, text=_LAST_TOKEN.sub("", held.text), cut=True)]
        return [held]

    def _joined(self, held: Line, line: Line) -> str | None:
        """The two as one line; None where they are two."""
        first, second = held.text, line.text
        if (
            line.prefixed
            or not second.strip()
            or len(first) > _LONGEST
            or len(self._lengths) > _MOST_PIECES
        ):
            return None
        if first.lstrip()[:1] in _BAR and first.strip():
            return _barred(first, second)
        if first.lstrip()[:1] in "'\"":
            return _quoted(first, second)
        if _at_separator(first, second):
            return first + second
        if _START.match(second) or second[:8] == first[:8]:
            return None
        full = bool(self.width) and self._lengths[-1] in (self.width, self.width - 1)
        full |= len(self._lengths) > 1 and self._lengths[-1] == self._lengths[0]
        return _healed(first, second, full=full)


def _at_separator(first: str, second: str) -> bool:
    """Whether the break is at what separates pairs: it ends one line, or begins the other."""
    begins = _SEPARATOR.match(second)
    if begins is not None:
        return begins[1] in first and bool(pairs_in(second))
    ends = _ENDS_IN_SEPARATOR.search(first)
    if ends is None or not first[: ends.start()].count(ends[1]):
        return False
    two = pairs_in(second)
    return bool(two) and not second[: two[0].start].strip() and not _START.match(second)


def may_be_broken(text: str) -> bool:
    """Whether a line may lack its end."""
    if len(text) < SHORTEST or len(text) > _LONGEST or "%|" in text or "<t" in text:
        return False
    start = text.lstrip()[:1]
    if start in _BAR:
        return text.rstrip()[-1:] != start and "  " in text
    if "{" in text or (start in "'\"" and not _QUOTED.match(text)):
        return False
    return bool(_ROW.search(text))


def _closed(text: str) -> bool:
    return text.rstrip()[-1:] in _BAR + "}])'\""


def _barred(first: str, second: str) -> str | None:
    """A line between bars that lacks its end."""
    bar = first.lstrip()[0]
    if second.lstrip()[:1] == bar or not second.rstrip().endswith(bar):
        return None
    return first + second


def _quoted(first: str, second: str) -> str | None:
    """The body of a dict without its braces."""
    if second[:8] == first[:8]:
        return None
    if _is_whole(first) and not second.lstrip().startswith(("'", ",")):
        return None
    joined = first + second
    return joined if "'" in second or '"' in second or _is_whole(joined) else None


def _is_whole(text: str) -> bool:
    from rlprobe.importers.console.line import dictionary

    return dictionary(text.strip()) is not None


def _healed(first: str, second: str, *, full: bool) -> str | None:
    """The two lines as one, if that leaves less over than they do apart."""
    one = pairs_in(first)
    if not one and not _STEPPED.search(first):
        return None  # rows of a table
    if not full and _is_prose(second):
        return None
    two = pairs_in(second)
    apart = _left(first, one) + _left(second, two)
    blank = f"{first.rstrip()} {second.lstrip()}"
    for joined in (first + second, blank):
        pairs = pairs_in(joined)
        if _left(joined, pairs) >= apart or len(pairs) < max(len(one), len(two)):
            continue
        if _is_safe(first, second, joined, pairs, one, full=full):
            return joined
    return None


def _is_prose(second: str) -> bool:
    """Whether a line has too many words to be the rest of a row, whatever the row is.

    Of its words so many may belong to a pair, or to a unit and an aside of the number before.
    """
    if second.count(" ") < _ASIDE_WORDS:
        return False
    numbers = len(_NUMBERS.findall(second))
    return len(_WORD.findall(second)) > _PAIR_WORDS * (numbers + 1) + _ASIDE_WORDS


def _left(text: str, pairs: Sequence[Pair]) -> int:
    return len(_TOKEN.findall(left_of(text, pairs)))


def _is_safe(
    first: str,
    second: str,
    joined: str,
    pairs: Sequence[Pair],
    one: Sequence[Pair],
    *,
    full: bool,
) -> bool:
    """Whether the seam cannot be a chance: a number goes on in numbers, a name in its own row."""
    if full:
        return True
    if _FRAGMENT.fullmatch(second):
        return False  # a number by itself may be anything
    seam = len(first)
    after = [pair for pair in pairs if pair.end > seam]
    rest = left_of(
        joined[seam:], [replace(p, start=max(0, p.start - seam), end=p.end - seam) for p in after]
    )
    if len(_WORD.findall(rest)) > len(after):
        return False  # prose
    if _ENDS_IN_NUMBER.search(first) and _NUMBER_GOES_ON.match(second):
        return True
    return _separated_alike(first, one)


def _separated_alike(first: str, pairs: Sequence[Pair]) -> bool:
    """Whether the name that the line ends in stands behind the separator of its pairs."""
    if len(pairs) < 2:
        return True
    between = {first[a.end : b.start] for a, b in itertools.pairwise(pairs)}
    tail = first[pairs[-1].end :]
    return any(tail.startswith(separator) for separator in between if separator)
