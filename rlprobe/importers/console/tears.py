"""Seams that go through something that is one: no line ends there, a terminal broke it.

A name, a number, a text in quotes, a box; in chatter an address, a stamp, brackets.
"""

from __future__ import annotations

import itertools
import re

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import Pair, pairs_in
from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.console.seams import (
    BARS,
    COLUMNS,
    CORNERS,
    ENDS,
    ENDS_IN_NUMBER,
    NUMBER_GOES_ON,
    STEPPED,
)

_RULES = "─━═"
_BARS, _CORNERS = tuple(BARS), tuple(CORNERS)  # for a text that may be empty
_RULE = re.compile(r"(?:-+|=+|\*+)")
_ENDS_IN_RULE = re.compile(r"[-=*─━═]{3}$")
# A name in quotes with its number, and what ends it.
_ITEM = re.compile(
    r"(['\"])[\w ./@()%-]{1,80}\1\s?:\s?(?:'[^',]{1,40}'|\"[^\",]{1,40}\""
    r"|(?:[-+]?[\d.]+(?:[eE][-+]?\d+)?|(?:tensor|np\.\w+)\([^()]{1,80}\))(?=\s?[,}]))"
)
_TABLE_ROW = re.compile(r"\d[\d.]*\s{2,}[-+.]?(?:\d|nan|inf)")
_ENDS_IN_STOP = re.compile(r"[a-z]\.$")
_UNIT_GOES_ON = re.compile(
    r"[eE][-+]?\d|\s?(?:[munµ]?s|m|h|min|mins|hours?|secs?|[KMGT]i?B|fps|TFLOPs?|reqs?)\b"
    r"|[a-zA-Z]{1,8}/s\b"
)
_LONG_UNIT = 2  # characters that may begin another line by chance
# What is one whatever stands around it.
_WHOLES = re.compile(
    r"https?://\S|\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\b\d\d:\d\d:\d\d\b|\.py:\d+|\bpid=\d+"
)
# What tells a step, and is no header of a table above its first row.
_STEP = re.compile(
    r"(?<![\w/])(?:step|iter|iteration|epoch)s?(?:\(\w+\))?(?:\s?[:=#]\s?|\s?\[\s?|\s)(?P<at>\d)\d*"
    r"(?=\s{0,9}(?:[:/|,;\]=-]|(?!nan|inf)[A-Za-z{\['(]|$))",
    re.IGNORECASE,
)
_ENDS_IN_STEP = re.compile(
    r"(?<![\w/])(?:step|iter|iteration|epoch)\s?[:=#]?\s?\d+$", re.IGNORECASE
)
_REST_OF_STEP = re.compile(r"\d+\s?[:\])=-]+")
_DICT = re.compile(r"\b(?:[Ss]tep|[Rr]ollout|[Pp]erf|[Ee]val|[Tt]rain) \d+:?\s?\{")
_UNIT = re.compile(r"(?:[mu]?s|[KMG]i?B|it/s|\w{1,3}ens/s|%)(?=\s|[,;|]|$)")
_MAY_FOLLOW = {  # a number
    "/": re.compile(r"/(?:s|sec|it|iter|step|\d+)\b"),
    "(": re.compile(r"\([\w/%]{1,10}\)"),
}
_LACKS_DIGITS = re.compile(r"\d[eE][-+]?\d?$|\d\.$|[:=]\s?[-+]$")
_FRACTION, _WHOLE_NUMBER = re.compile(r"\.\d"), re.compile(r"[\s:=-]\d+$")
_LETTER = re.compile(r"[A-DF-Za-df-z]")  # but that of an exponent
_EXPONENT = re.compile(r"[eE][-+]\d{2,3}")
_WHOLE_EXPONENT = re.compile(r"\d[eE][-+]\d\d$")
_REST = re.compile(r"[\d.]*(?:[eE]?[-+]?\d+)?|an|n|nf|f")  # of a number
_BETWEEN = " -|,;:/.\t"
_JOINTS = "/_-@"  # in names
_NO_BEGIN = re.compile(r"[.,:;?!](?:\s|$)|[a-z]{1,12}\.$")
_CLOSES = re.compile(r"[^()\[\]]{0,80}[)\]]")


class Seam:
    """Where two pieces meet, and the names and numbers around it.

    Args:
        first: all pieces so far, without what a logger put before them.
        full: whether the first is known to reach the end of the terminal.

    Attributes:
        before: names with their numbers that stand before the seam.
        pair: the one that the seam goes through, if the pieces are one line.
    """

    def __init__(self, first: str, second: str, *, full: bool = False) -> None:
        self.first, self.second, self._full = first, second, full
        self.whole, self.at = first + second, len(first)
        self._pairs = pairs_in(self.whole)
        self.before = list(itertools.takewhile(lambda pair: pair.end <= self.at, self._pairs))
        after = self._pairs[len(self.before) :]
        self.pair = next((pair for pair in after if pair.start < self.at), None)

    @property
    def is_torn(self) -> bool:
        """Whether it can be no end of a line."""
        first, second = self.first, self.second
        if first.lstrip()[:1] in BARS + CORNERS and first.strip():
            ends = is_end_of_box(second) or (second[0] == " " != first[0] and second[-1] in ENDS)
            return is_open(first) and ends
        if any(self._spans(item) for form in (_ITEM, _DICT) for item in form.finditer(self.whole)):
            return True
        if any(step.start() < self.at < step.end("at") for step in _STEP.finditer(self.whole)):
            return not STEPPED.match(second)
        if self._is_point_torn or self._is_heading_torn:
            return True
        if not (self.before or STEPPED.search(first)):
            return self._is_column_torn
        return self.is_name_torn or self._is_number_torn or self._is_between_torn

    def _spans(self, match: re.Match[str]) -> bool:
        return match.start() < self.at < match.end()

    @property
    def lacks_blank(self) -> bool:
        """Whether it goes through a name that is known with a blank there, and not without."""
        other = Seam(self.first + " ", self.second).pair
        return (
            other is not None
            and console_line.is_measurement(other.key)
            and not (self.pair is not None and console_line.is_measurement(self.pair.key))
        )

    @property
    def dangles(self) -> bool:
        """Whether it goes through a name that no line ends with."""
        if self.pair is None or not self.before or self.at > self._value_of(self.pair):
            return False
        joint = self.first[-1] in _JOINTS
        return (joint or console_line.is_measurement(self.pair.key)) and self.is_name_torn

    @property
    def is_end(self) -> bool:
        """Whether a number is whole at the end of the first, and none follows as the others do."""
        first = self.first.rstrip()
        barred = first.lstrip()[:1] in _BARS
        point = console_line.point(first) is not None and not self.second.isdigit()
        if barred or point or (COLUMNS.fullmatch(first) and COLUMNS.fullmatch(self.second)):
            return not barred
        if any(item.end() == len(first) for item in _ITEM.finditer(self.whole)):
            return self.second.lstrip()[:1] not in ",}'\""
        if not self.before or self.pair or first[self.before[-1].end :].strip(_BETWEEN):
            return False
        last, after = self.before[-1], next((p for p in self._pairs if p.start >= self.at), None)
        if after is None or (after.blank != last.blank and len(self.before) > 1):
            return True
        gap = self.whole[last.end : after.start]
        if "\t" in gap or (not gap.strip(" .") and not after.blank):
            return False
        ends = itertools.pairwise(self.before)
        betweens = {self.whole[a.end : b.start] for a, b in ends} - {""}
        return gap not in betweens if betweens else bool(gap.strip(_BETWEEN))

    def _betweens(self, *torn: Pair) -> set[str]:
        """What stands between pairs on either side of the seam.

        Args:
            torn: the pair that it goes through, where its name is torn and all else is behind it.
        """
        before = self.before if torn or self.pair is None else [*self.before, self.pair]
        after = [pair for pair in self._pairs if pair.start >= self.at]
        if torn and len(before) > 2:
            after, torn = [], ()
        ends = itertools.chain(itertools.pairwise(before), itertools.pairwise([*torn, *after]))
        return {self.whole[a.end : b.start] for a, b in ends} - {""}

    def _value_of(self, pair: Pair) -> int:
        return pair.start + len(pair.key)

    @property
    def _may_be_digits(self) -> bool:
        """Whether the second may begin with digits of a number that the first ends with."""
        whole = _WHOLE_EXPONENT.search(self.first) and self.second[0].isdigit()
        return not whole

    @property
    def _is_column_torn(self) -> bool:
        """The same of a name and its number in two columns."""
        if COLUMNS.fullmatch(self.first):
            return self._may_be_digits and _REST.fullmatch(self.second) is not None
        pair = self.pair
        if pair is None or pair.end < len(self.whole):
            return False
        if self.at > self._value_of(pair):
            digits = _LACKS_DIGITS.search(self.first) and self.second.isdigit()
            return bool(digits or _EXPONENT.fullmatch(self.second))
        known = console_line.is_measurement(pair.key) or console_line.counts(pair.key)
        alone = pair.start == len(self.whole) - len(self.whole.lstrip())
        return known and alone

    @property
    def _is_point_torn(self) -> bool:
        """The same of a scalar with its number and its step."""
        point, first = console_line.point(self.whole), console_line.point(self.first)
        digits = self.second.isdigit() or (first is None and not _LETTER.search(self.second))
        return point is not None and digits

    @property
    def _is_heading_torn(self) -> bool:
        """Whether it goes through the number of a step, and nothing follows."""
        return bool(_ENDS_IN_STEP.search(self.first) and _REST_OF_STEP.fullmatch(self.second))

    @property
    def is_name_torn(self) -> bool:
        """Whether it goes through a name."""
        pair = self.pair
        if pair is None or self.at > self._value_of(pair) or not self.before:
            return False
        if self.second[0] in ":=":
            return True
        known = console_line.is_measurement(pair.key)
        unit = _UNIT.fullmatch(self.first[pair.start :].rstrip())
        alone = [
            each for each in pairs_in(self.second)[:1] if not self.second[: each.start].strip()
        ]
        if alone and unit and not known and not self._full:
            return False
        others = [*self.before, *(each for each in self._pairs if each.start >= pair.end)]
        return known or (self._is_alike(pair) and pair.blank in {each.blank for each in others})

    def _is_alike(self, pair: Pair) -> bool:
        """Whether a pair that the seam goes through is separated as others are."""
        gap = self.first[self.before[-1].end : pair.start] if self.before else ""
        return gap in self._betweens(pair)

    @property
    def _is_number_torn(self) -> bool:
        pair = self.pair
        if pair is None or self.at <= self._value_of(pair):
            return False
        if not any(each.start == pair.start for each in pairs_in(self.first)):
            return not pair.blank or self._is_alike(pair)  # a name without its number
        lacks = bool(_LACKS_DIGITS.search(self.first)) and self.second[0].isdigit()
        unit = pair.end - len(pair.unit)
        lacks = lacks or (len(pair.unit) > _LONG_UNIT and unit < self.at < pair.end)
        if lacks or (_FRACTION.match(self.second) and _WHOLE_NUMBER.search(self.first)):
            return True
        if pair.unit and self.at >= unit - 1:  # or at the blank before it
            return _UNIT.match(self.second.lstrip()) is not None
        if not self._may_be_digits or not ENDS_IN_NUMBER.search(self.first):
            return False
        after = next((each.start for each in self._pairs if each.start >= pair.end), None)
        goes_on = NUMBER_GOES_ON.match(self.second) is not None
        return goes_on and self.whole[pair.end : after] in self._betweens()

    @property
    def _is_between_torn(self) -> bool:
        """Whether the seam goes through what stands between pairs, or no line begins or ends so."""
        after = next((pair for pair in self._pairs if pair.start >= self.at), None)
        if self.pair is not None or after is None or not self.before:
            return False
        last = self.before[-1]
        gap = self.whole[last.end : after.start]
        stop = gap == ". " and self.at == last.end + 1
        if stop or (gap[-1:] == "\t" and self.at == after.start):
            return True
        if gap not in self._betweens() or not gap.strip(" "):
            return False
        alike = after.blank == last.blank or len(self.before) == 1
        return alike and (self.at < after.start or gap[-1] in " \t")


def is_text_torn(first: str, second: str) -> bool:
    """Whether the seam in a line of chatter is hardly the end of one."""
    whole, seam = first + second, len(first)
    if second.startswith("  "):
        return False  # people break prose, too, and indent it
    if any(part.start() < seam < part.end() for part in _WHOLES.finditer(whole)):
        return True
    if _NO_BEGIN.match(second) or (first[-1] == " " and second[0].islower()):
        return True
    opened, closed = (max(map(first.rfind, marks)) for marks in ("[(", ")]"))
    return opened > closed and _CLOSES.match(second) is not None


def may_go_on(seam: Seam) -> bool:
    """Whether two pieces can be one line at all, by what stands at the seam."""
    first, second = seam.first, seam.second
    start, begins = first.lstrip()[:1], second[0]
    if begins in BARS and begins == start:  # rows of a table
        return is_open(first) or second.strip() in BARS
    barred = begins in "│┃" and start not in BARS
    if barred or bare(second, labelled=True).text.lstrip()[:1] in _CORNERS:
        return False
    if begins.isdigit():
        return not (_WHOLE_EXPONENT.search(first) or _TABLE_ROW.match(second))
    return not (begins.isalpha() or begins in _MAY_FOLLOW) or _may_follow(seam)


def _may_follow(seam: Seam) -> bool:
    """Whether a letter, a slash or a bracket may follow what stands before the seam."""
    if seam.second[0].isalpha() and _ENDS_IN_RULE.search(seam.first.rstrip()):
        return False
    if not seam.second[0].islower() and _ENDS_IN_STOP.search(seam.first):
        return False
    return _may_follow_number(seam)


def _may_follow_number(seam: Seam) -> bool:
    """Whether a letter, a slash or a bracket may follow the number before the seam, if one is."""
    pairs = pairs_in(seam.first)
    if not pairs or pairs[-1].end < len(seam.first):
        return True
    if seam.pair is not None and seam.pair.start > pairs[-1].start and seam.is_name_torn:
        return not seam.second[0].isupper()  # what looks like a unit begins a name
    if form := _MAY_FOLLOW.get(seam.second[0]):
        return form.match(seam.second) is not None
    return _UNIT_GOES_ON.match(pairs[-1].unit + seam.second) is not None


def is_open(first: str) -> bool:
    """Whether a line that begins with a bar or a corner of a box lacks its end."""
    start = first.lstrip()[:1]
    return bool(start) and start in BARS + CORNERS and first[-1] not in ENDS


def is_end_of_box(second: str) -> bool:
    """Whether a line ends with a bar, and does not begin with one."""
    text = second.strip()
    return text[:1] not in BARS + CORNERS and text[-1:] in ENDS


def is_rest_of_box(second: str) -> bool:
    """Whether a line can be nothing but the rest of one between bars."""
    text = second.strip()
    if text in BARS:
        return bool(text)
    if text[0] in _RULES or not is_end_of_box(second):
        return False
    return second[0] == " " or text[-1] != "|"


def is_rule_torn(first: str, second: str) -> bool:
    """Whether a rule goes on in one that is too short to be one."""
    return (
        _RULE.fullmatch(first) is not None and second == first[0] * len(second) and len(second) < 8
    )
