"""Cells of a table with a delimiter: where they end, and how they spell numbers."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlprobe.importers.numbers import spelled

_DELIMITERS = (",", "\t", ";", "|")
_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?%?")  # 0,25
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+%?")  # 1,250: a comma that may be either
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?%?")
_GROUPED_POINT = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})+%?")
_BOTH = re.compile(r"[-+]?\d{1,3}(?:\.\d{3})+,\d+%?")  # 1.250,5
BLANKS = frozenset({"", "-", "--", "na", "n/a", "none", "null", "nil", "#n/a", "<na>", "?"})

Decimal = Literal["point", "comma", "mixed"]


@dataclass(frozen=True, slots=True)
class Style:
    """How a table separates cells and spells numbers.

    Attributes:
        decimal: what stands before the decimals. In a table that has both, a number that can be
            read in two ways is not read.
        framed: whether rows begin and end with the delimiter.
    """

    delimiter: str
    decimal: Decimal = "point"
    framed: bool = False

    def cells(self, line: str) -> list[str]:
        """The cells of one row, without the spaces around them; [] if it cannot be taken apart."""
        try:
            row = next(csv.reader(io.StringIO(line, newline=""), delimiter=self.delimiter), [])
        except csv.Error:
            return []
        cells = [cell.strip() for cell in row]
        return cells[1:-1] if self.framed and len(cells) > 1 else cells

    def number(self, cell: str) -> float | None:
        """The number in a cell; None if there is none, or if it can be read in two ways."""
        if self.decimal == "point" or not ("," in cell or "." in cell):
            return _plain(cell)
        plain = cell.strip("'\" ")
        if _BOTH.fullmatch(plain):
            return spelled(plain.replace(".", "").replace(",", "."))
        if self.decimal == "mixed" and (_GROUPED.fullmatch(plain) or _thousands(plain)):
            return None
        if _COMMA.fullmatch(plain):
            return spelled(plain.replace(",", "."))
        if _thousands(plain):
            return spelled(plain.replace(".", ""))
        return spelled(plain)


def _plain(cell: str) -> float | None:
    if not cell or "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return spelled(cell)


def _thousands(cell: str) -> bool:
    return bool(_GROUPED_POINT.fullmatch(cell)) and not cell.lstrip("-+").startswith("0")


def style_of(lines: Sequence[str]) -> Style | None:
    """How the table with these first lines is written; None if nothing separates its cells."""
    header = lines[0] if lines else ""
    best = max(_DELIMITERS, key=header.count)
    if not header.count(best):
        return None
    framed = best == "|" and header.strip().startswith("|") and header.strip().endswith("|")
    plain = Style(best, framed=framed)
    decimal = _decimal(best, [cell for line in lines[1:] for cell in plain.cells(line)])
    return Style(best, decimal, framed)


def _decimal(delimiter: str, cells: Iterable[str]) -> Decimal:
    commas = points = grouped = False
    for cell in cells:
        word = cell.strip("'\" ")
        if _BOTH.fullmatch(word) or (_COMMA.fullmatch(word) and not _GROUPED.fullmatch(word)):
            commas = True
        elif _POINT.fullmatch(word) and not _thousands(word):
            points = True
        elif _GROUPED.fullmatch(word):
            grouped = True
    if commas:
        return "mixed" if points else "comma"
    return "comma" if grouped and not points and delimiter == ";" else "point"


def is_blank(cell: str) -> bool:
    """Whether a cell says that nothing was logged."""
    return cell.lower() in BLANKS


def is_cut(cell: str) -> bool:
    """Whether a number ends in the middle of being written."""
    return bool(re.search(r"[eE][-+]?\d?$|[.,+-]$", cell))
