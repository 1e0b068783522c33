"""A log that a terminal broke at its width, put together again before anything in it is read.

A terminal breaks every line at the same place, chatter and rules as well as rows: what follows a
line of just that length is its rest. One row that shows it at its seam tells so of the whole log,
unless other lines of that length end there. Where lines begin is known from those that follow
shorter ones. Blanks at the ends of pieces may have been cut off since.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlprobe.importers.console.boxes import Box
from rlprobe.importers.console.prefixes import ANSI, bare
from rlprobe.importers.console.seams import BARS, CORNERS, ENDS, START, goes_on
from rlprobe.importers.console.tears import (
    Seam,
    is_open,
    is_rest_of_box,
    is_rule_torn,
    is_text_torn,
    may_go_on,
)

NARROWEST, WIDEST = 40, 512  # characters of a line on a terminal
CUT_BLANKS = 2  # that may be missing at the end of a line
_LONGEST = 32_768
_MOST_SEAMS = 400  # that are looked at
_MOST_SILENT = 60  # of these, before one shows anything
_LEAD = 8  # characters by which it is known how lines begin
_SHORTEST_LEAD = 3
_FEWEST = 2  # lines of one length that are no chance
_NAME = re.compile(r"\s*[A-Za-z_][\w./@-]*")
_NUMBERS = re.compile(r"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)")
_NUMBER = re.compile(r" +[-+]?(?:[\d.,]+(?:[eE][-+]?\d+)?|nan|-?inf)\s*")


@dataclass(frozen=True, slots=True)
class Terminal:
    """What broke the lines of a log.

    Attributes:
        width: no line is longer.
        starts: how lines begin.
        stripped: whether blanks at the ends of lines may be missing.
        boxed: whether lines that begin with a bar end with one.
    """

    width: int
    starts: frozenset[str]
    stripped: bool
    boxed: bool = False

    def joined(self, first: str, last: int, second: str) -> str | None:
        """Two pieces as one line; None where they are two lines.

        Args:
            first: all pieces so far.
            last: the length of the last of them.
        """
        missing = self.width - last
        text = bare(first, labelled=True).text
        if not second or missing < 0 or len(first) > _LONGEST:
            return None
        if missing and not (self.stripped and self._may_lack(text, missing, second)):
            return None
        seam = Seam(text + " " * missing, second, full=not missing)
        return first[: len(first) - len(text)] + seam.whole if self._is_one(seam, missing) else None

    def _is_one(self, seam: Seam, missing: int) -> bool:
        """Whether two pieces are one line, if so many blanks are missing between them."""
        first, second = seam.first, seam.second
        lead = lead_of(second)
        if lead and (lead in self.starts or lead == lead_of(first)):
            return not missing and seam.dangles
        if not may_go_on(seam):
            return False
        if seam.is_torn:
            return True
        if goes_on(first[: len(first) - missing], second, seam.whole, full=True):
            return True
        return not (START.match(second) or bare(second).prefixed or seam.is_end)

    def _may_lack(self, first: str, missing: int, second: str) -> bool:
        """Whether a line that is too short may be full but for so many blanks at its end."""
        return (
            missing <= CUT_BLANKS
            or (self.boxed and is_open(first))
            or is_rest_of_box(second)
            or bool(_NUMBER.fullmatch(second))
            or bool(_NAME.fullmatch(first) and _NUMBER.fullmatch(f" {second}"))
        )


@functools.lru_cache(maxsize=2)  # two look at the head of a log
def terminal_of(head: bytes) -> Terminal | None:
    """What broke the lines of a log, by its first bytes; None where it is not sure that any did."""
    lines = lines_of(head)
    width = max(map(len, lines), default=0)
    if not NARROWEST <= width <= WIDEST:
        return None
    seams = [place for place in range(len(lines) - 1) if len(lines[place]) == width]
    if not seams:
        return None
    stripped = not any(line[-1] == " " for line in lines)
    boxed = any(
        line[-1] in ENDS and bare(line, labelled=True).text.lstrip()[:1] in BARS for line in lines
    )
    starts = _starts(lines, width, boxed=boxed and stripped)
    for cut in range(1 + stripped):  # it may be that no piece reaches the end
        if _is_shown(lines, seams, starts, cut):
            return Terminal(width + cut, starts, stripped, boxed)
    return None


def _is_shown(lines: list[str], seams: list[int], starts: frozenset[str], cut: int) -> bool:
    """Whether what stands at the seams tells that lines were broken there.

    Args:
        cut: blanks that are missing at all of them.
    """
    hinted = ends = looked = blanks = 0
    torn = sum(line in BARS for line in lines)  # what is left of a line between bars
    kinds: set[str] = set()
    held, after = "", -1
    for place in seams[:_MOST_SEAMS]:
        first, second = lines[place] + " " * cut, lines[place + 1]
        held = held + first if place == after + 1 else first
        after = place
        if lead_of(second) in starts:
            ends += 1
            held = ""
            continue
        text = bare(held, labelled=True).text
        barred = text.lstrip()[:1] in BARS + CORNERS
        seam = Seam(text, second)
        blanks += not cut and not barred and first[-1] != " " and seam.lacks_blank
        if not (cut and barred):
            torn += may_go_on(seam) and not seam.is_end and seam.is_torn
        hinted += not cut and is_text_torn(held, second)
        torn += not cut and is_rule_torn(text, second)
        looked += 1
        if looked > _MOST_SILENT and not (torn or hinted):
            return False
        if not barred:
            kinds.add(_NUMBERS.sub("0", first))
    if blanks * 2 > torn:
        return False
    if cut and (torn < _FEWEST or torn < len(seams[:_MOST_SEAMS]) - ends):
        return False
    shown = torn + (hinted if max(hinted, len(kinds)) >= _FEWEST else 0)
    return bool(shown) and shown * 2 >= ends


def unbroken(lines: Iterable[str], terminal: Terminal) -> Iterator[str]:
    """Lines as they were before the terminal broke them, each followed by as many empty ones."""
    held, last, rest = "", 0, 0
    box = Box(terminal.width, stripped=terminal.stripped)
    for line in lines:
        if not line:
            rest += 1
            continue
        if len(line) > terminal.width:  # it was none, or not everywhere
            terminal = Terminal(WIDEST + 1, frozenset(), stripped=False)
        whole: str | None = None
        if last:
            in_box = box.holds(held)
            whole = box.joined(held, last, line) if in_box else terminal.joined(held, last, line)
        last = len(line)
        if whole is not None:
            held, rest = whole, rest + 1
            continue
        if held:
            box.see(held)
            yield held
        yield from [""] * rest
        held, rest = line, 0
    if held:
        yield held
    yield from [""] * rest


def lines_of(head: bytes) -> list[str]:
    """The lines of the first bytes of a log, without colours; empty ones are left out."""
    text = head.decode("utf-8", "replace").replace("\r", "\n")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    return [line for line in text.split("\n") if line]


def lead_of(text: str) -> str:
    """How a line begins, whatever its numbers are; empty where it has too little to tell."""
    lead = _NUMBERS.sub("0", text.lstrip()[: 3 * _LEAD])[:_LEAD]
    if len(lead.strip()) < _SHORTEST_LEAD:
        return ""
    if text[:1] != " ":
        return lead
    return f" {lead}" if any(map(str.isalpha, lead)) else ""


def _starts(lines: list[str], width: int, *, boxed: bool) -> frozenset[str]:
    """How lines begin that follow one which the terminal did not break."""
    leads = {lead_of(lines[0])}
    for before, line in itertools.pairwise(lines):
        if len(before) >= width - CUT_BLANKS or is_rest_of_box(line):
            continue
        if not (boxed and is_open(bare(before, labelled=True).text)):
            leads.add(lead_of(line))
    return frozenset(leads - {""})
