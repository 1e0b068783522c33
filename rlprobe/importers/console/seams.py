"""Whether a line goes on in the next: what stands at the seam tells.

A name or a number that goes on, what separates pairs, a bar or a quote that is not closed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import Pair, pairs_in

START = re.compile(
    r"\s*(?:(?:global|train|training)?[ _]?(?:step|iter|iteration|epoch|episode|update)s?\b|\[|\{|<"
    r"|>|[-=*#_|:]{2}|Traceback|File |Saving|WARN|\d{1,6}:\s*(?:step|(?-i:[A-Z]))"
    r"|\d{1,3}%\|(?=[\s█▏▎▍▌▋▊▉#]|$))",
    re.IGNORECASE,
)
STEPPED = re.compile(
    r"\b(?:step|iter|iteration|epoch)s?(?:\(\w+\))?\s?[:=#]?\s?\[?\s{0,9}\d", re.IGNORECASE
)
COLUMNS = re.compile(r"\s*[A-Za-z_][^\s|]*(?: [^\s|]+){0,3}\s{2,}[-+]?[\d.]\S*")
_REST_OF_NUMBER = re.compile(r"[\d.]*(?:[eE]?[-+]?\d+)?\s*")
_WHOLE_EXPONENT = re.compile(r"\d[eE][-+]\d\d$")
_SEPARATOR = re.compile(r"\s*([-|,;/])\s+(?=[A-Za-z_])")
_ENDS_IN_SEPARATOR = re.compile(r"(?:\s-|[|,;/])\s*$|\t$")
ENDS_IN_NUMBER = re.compile(r"(?:\d|\d[eE][-+]?|[\s:=(\[][-+.]|\.)$")
NUMBER_GOES_ON = re.compile(r"[\d.]|[eE][-+]?\d|[-+]\d")
_BETWEEN = re.compile(r"[\s|,;/-]*")
BARS = "|│┃"
CORNERS = "╭╰├┏┗┣┡└┌╒╘╞┠"  # with which a rule of a box begins
ENDS = "│┃|╮╯┤┓┛┫┩┘┐╕╛╡┨"
_DICT_NEXT = re.compile(r"\b(?:step|rollout|perf|eval|train) \d+:?\s*$", re.IGNORECASE)


def goes_on(first: str, second: str, whole: str, *, full: bool) -> bool:
    """Whether a line goes on in the next.

    Args:
        full: whether it reaches the end of the line.
    """
    if first.lstrip()[:1] in BARS + CORNERS and first.strip():
        return _goes_on_in_bars(first, second, full=full)
    if first.lstrip()[:1] in "'\"":
        return _goes_on_quoted(first, second, whole, full=full)
    if _at_separator(first, second, whole, full=full) or (
        full and second.startswith("{") and _DICT_NEXT.search(first)
    ):
        return True
    if START.match(second) or second[:8] == first[:8]:
        return False
    seam = len(whole) - len(second)
    return _is_seam(first, whole, seam) if full else _makes_known(first, second)


def _is_seam(first: str, whole: str, seam: int) -> bool:
    """Whether a line that is as long as the terminal is wide goes on in the next."""
    before = pairs_in(first)
    if COLUMNS.fullmatch(first) and _REST_OF_NUMBER.fullmatch(whole[seam:]):
        return not _WHOLE_EXPONENT.search(first)  # a name and its number in two columns
    if not before and not STEPPED.search(first):
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
        alike = cut or not before or spanning.blank == before[-1].blank
        return alike and not _is_name_alone(spanning, alone, seam)
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


def _is_name_alone(spanning: Pair, alone: Sequence[Pair], seam: int) -> bool:
    """Whether a name that is known begins behind the seam, and is none with what is before it."""
    return (
        seam <= spanning.start + len(spanning.key)
        and bool(alone)
        and console_line.is_measurement(alone[0].key)
        and not console_line.is_measurement(spanning.key)
    )


def _makes_known(first: str, second: str) -> bool:
    """Whether a name that is known stands at the seam of a row, and none without it."""
    before, pairs = pairs_in(first), pairs_in(first + second)
    if not before or START.match(second):
        return False
    spanning = [pair for pair in pairs if pair.start < len(first) < pair.end]
    alone = pairs_in(second)
    return (
        len(spanning) == 1
        and len(first) <= spanning[0].start + len(spanning[0].key)
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


def _goes_on_in_bars(first: str, second: str, *, full: bool) -> bool:
    """A line between bars that lacks its end, or is cut at one of them."""
    bar = first.lstrip()[0]
    closed = first.rstrip()[-1:] in ENDS
    start, end = second.lstrip()[:1], second.rstrip()[-1:]
    if bar in CORNERS:
        return full and not closed and start not in CORNERS + BARS
    if second.strip() == bar:
        return True
    if START.match(second) and start not in BARS:
        return False
    if start in BARS + CORNERS:
        further = len(second) - len(second.lstrip()) > len(first) - len(first.lstrip())
        return full and start == bar and (further or not closed)
    if (full or not closed) and end == bar:
        return True
    return full and bar in second and not START.match(second)


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
