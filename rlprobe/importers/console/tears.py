"""Seams that go through something that is one: no line ends there, a terminal broke it.

A name, a number, a text in quotes, a box; in chatter an address, a stamp, brackets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import Pair, pairs_in
from rlprobe.importers.console.seams import (
    BARS,
    CORNERS,
    ENDS,
    ENDS_IN_NUMBER,
    NUMBER_GOES_ON,
    STEPPED,
    is_separated_alike,
)

_BOXES = CORNERS + "│┃"
_RULES = "─━═"
_ENDS_IN_RULE = re.compile(r"[-=*─━═]{3}$")
# A name in quotes with its number, and what ends it.
_ITEM = re.compile(
    r"(['\"])[\w ./@()%-]{1,80}\1\s?:\s?(?:'[^',]{1,40}'|\"[^\",]{1,40}\""
    r"|[-+]?[\d.]+(?:[eE][-+]?\d+)?(?=\s?[,}]))"
)
_UNIT_GOES_ON = re.compile(
    r"[eE][-+]?\d|(?:[munµ]?s|m|h|min|mins|hours?|secs?|[KMGT]i?B|fps|TFLOPs?)\b|[a-zA-Z]{1,8}/s\b"
)
# What is one whatever stands around it.
_WHOLES = re.compile(
    r"https?://\S|\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\b\d\d:\d\d:\d\d\b|\.py:\d+|\bpid=\d+"
)
_NO_BEGIN = re.compile(r"[.,:;?!](?:\s|$)")
_CLOSES = re.compile(r"[^()\[\]]{0,80}[)\]]")


def is_torn(first: str, second: str) -> bool:
    """Whether the seam in a row can be no end of a line."""
    whole, seam = first + second, len(first)
    start = first.lstrip()[:1]
    if start and start in BARS + CORNERS:
        return is_open(first) and second[0] not in BARS + CORNERS and second.rstrip()[-1:] in ENDS
    if any(item.start() < seam < item.end() for item in _ITEM.finditer(whole)):
        return True
    if any(step.start() < seam < step.end() for step in STEPPED.finditer(whole)):
        return not STEPPED.search(second)
    pairs = pairs_in(whole)
    before = list(itertools.takewhile(lambda pair: pair.end <= seam, pairs))
    if not (before or STEPPED.search(first)):
        return False
    pair = next((pair for pair in pairs[len(before) :] if pair.start < seam), None)
    return _is_pair_torn(first, before, pair, second)


def _is_pair_torn(first: str, before: Sequence[Pair], pair: Pair | None, second: str) -> bool:
    """The same of a seam behind so many pairs, and in one if it is.

    Args:
        pair: the one in which the seam is, when the pieces are one line.
    """
    whole = first + second
    betweens = {first[a.end : b.start] for a, b in itertools.pairwise(before)} - {""}
    if pair is None:
        return _is_cut_between(first, second, betweens)
    if len(first) <= pair.start + len(pair.key):
        return bool(before) and _is_name_torn(first, before, pair, second)
    if not any(each.start == pair.start for each in pairs_in(first)):
        return not pair.blank  # a name without its number
    after = next((each.start for each in pairs_in(whole) if each.start >= pair.end), len(whole))
    return (
        bool(ENDS_IN_NUMBER.search(first) and NUMBER_GOES_ON.match(second))
        and whole[pair.end : after] in betweens
    )


def _is_cut_between(first: str, second: str, betweens: set[str]) -> bool:
    """Whether one of two pieces has what stands between pairs, where no line begins or ends."""
    alone = pairs_in(second)
    for between in betweens:
        begins = second.startswith(between)
        ends = first.endswith(between) and between[-1] in " \t"
        at = len(between) if begins else 0
        if alone and alone[0].start == at and (begins or ends) and between != " " * len(between):
            return True
    return False


def _is_name_torn(first: str, before: Sequence[Pair], pair: Pair, second: str) -> bool:
    """Whether a name that stands at a seam is one, and not the end of a line and another name."""
    if second[0] in ":=":
        return True
    if len(before) > 1 and is_separated_alike(first, before):
        return pair.blank == before[-1].blank
    alone = pairs_in(second)[:1]
    known = alone and console_line.is_measurement(alone[0].key)
    return not known and console_line.is_measurement(pair.key)


def is_text_torn(first: str, second: str) -> bool:
    """Whether the seam in a line of chatter is hardly the end of one."""
    whole, seam = first + second, len(first)
    if any(part.start() < seam < part.end() for part in _WHOLES.finditer(whole)):
        return True
    if _NO_BEGIN.match(second) or (first[-1] == " " and second[0].islower()):
        return True
    opened, closed = (max(map(first.rfind, marks)) for marks in ("[(", ")]"))
    return opened > closed and _CLOSES.match(second) is not None


def may_go_on(first: str, second: str) -> bool:
    """Whether two pieces can be one line at all, by what stands at the seam."""
    start, begins = first.lstrip()[:1], second[0]
    if begins in _BOXES and start not in BARS + CORNERS + _RULES:
        return False
    if begins in BARS and begins == start:  # rows of a table
        return is_open(first) or second.strip() in BARS
    if not begins.isalpha():
        return True
    if _ENDS_IN_RULE.search(first):
        return False
    pairs = pairs_in(first)
    if pairs and pairs[-1].end == len(first) and first[-1].isdigit():
        return _UNIT_GOES_ON.match(second) is not None
    return True


def is_open(first: str) -> bool:
    """Whether a line that begins with a bar or a corner of a box lacks its end."""
    start = first.lstrip()[:1]
    return bool(start) and start in BARS + CORNERS and first[-1] not in ENDS


def is_rest_of_box(second: str) -> bool:
    """Whether a line can be nothing but the rest of one between bars."""
    text = second.strip()
    if text in BARS:
        return bool(text)
    if text[:1] in BARS + CORNERS + _RULES or text[-1:] not in ENDS:
        return False
    return second[:1] == " " or text[-1:] != "|"
