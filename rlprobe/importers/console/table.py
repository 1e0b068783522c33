"""Tables in console output, Markdown and HTML: one header with a step column, rows of numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from rlprobe import schema
from rlprobe.importers.console.pairs import measured
from rlprobe.importers.numbers import spelled
from rlprobe.importers.steps import step_number

Row = dict[str, float]

_STEP_HEADERS = frozenset(schema.step_keys().formats["console_table"])
_RULE = re.compile(r"[\s|:+=─━═┼╪╇╈┬┴├┤┡┩╞╡╘╛╒╕┌┐└┘┏┓┗┛╭╮╰╯-]+")
_GAP = re.compile(r"\t|\s{2,}")
_TAG = re.compile(r"<(/?)(tr|td|th|table)\b[^>]*>", re.IGNORECASE)
_ANY_TAG = re.compile(r"<[^>]*>")
_SPACED_SLASH = re.compile(r"\s+/\s+")
_MOST_CELLS = 500
_MOST_AWAY = 20  # lines of chatter between two rows of a table


class Tables:
    """Reads tables line by line.

    Attributes:
        taken: whether the last line belonged to a table.
        misfit: whether it stood in a table and does not fit its header.
    """

    def __init__(self) -> None:
        self.taken = False
        self.misfit = False
        self._header: list[str] = []
        self._words = False
        self._away = 0  # lines since the last of the table
        self._cells: list[str] | None = None
        self._cell: list[str] | None = None

    @property
    def open(self) -> bool:
        """Whether the next line may belong to a table."""
        return bool(self._header or self._cells) or self._cell is not None

    def feed(self, line: str) -> list[Row]:
        """The rows that this line completes; each has its `step`."""
        self.taken, self.misfit = True, False
        if "<t" in line or "</t" in line or self._cell is not None:
            return self._html(line)
        text = line.replace("│", "|").replace("┃", "|").strip()
        if _RULE.fullmatch(text):
            self.taken = bool(self._header)
            return []
        return self._markdown(text) if self._splits(text) else self._nothing()

    def may_head(self, line: str) -> bool:
        """Whether a line may be the header of a table, or a part of one in HTML."""
        if "<t" in line or "</t" in line:
            return True
        text = line.replace("│", "|").replace("┃", "|").strip()
        if "|" not in text and not _first_is_step(text):
            return False
        return len(text) < 4000 and _is_header(_cells(text, words=False))

    def _splits(self, text: str) -> bool:
        return len(text) < 4000 and ("|" in text or self._words or _first_is_step(text))

    def _nothing(self) -> list[Row]:
        """A line that is none of the table's; others may follow after some that are not."""
        self.taken = False
        self._away += 1
        if self._away > _MOST_AWAY:
            self._header, self._words = [], False
        return []

    def _markdown(self, text: str) -> list[Row]:
        cells = _cells(text, words=self._words)
        if _is_header(cells):
            self._header, self._words = [_name(cell) for cell in cells], "|" not in text
            self._away = 0
            return []
        if not self._header:
            self.taken = False
            return []
        return self._row(cells)

    def _row(self, cells: Sequence[str]) -> list[Row]:
        at = _step_column(self._header)
        step = step_number(cells[at]) if at < len(cells) else None
        if len(cells) != len(self._header) or step is None:
            numbers = [spelled(cell) is not None for cell in cells]
            self.misfit = len(cells) > 1 and numbers[0] and sum(numbers) > 1
            return self._nothing()
        values = zip(self._header, map(measured, cells), strict=True)
        row = {key: value for key, value in values if value is not None}
        if self._away and len(row) < len(cells):
            return self._nothing()
        self._away = 0
        row.pop(self._header[at], None)
        return [{**row, "step": float(step)}]

    def _html(self, line: str) -> list[Row]:
        rows: list[Row] = []
        position = 0
        for tag in _TAG.finditer(line):
            if self._cell is not None:
                self._cell.append(line[position : tag.start()])
            position = tag.end()
            rows += self._tag(tag[2].lower(), closing=bool(tag[1]))
        if self._cell is not None:
            self._cell.append(line[position:])
            if sum(map(len, self._cell)) > 2000:
                self._cell = None
        return rows

    def _tag(self, name: str, *, closing: bool) -> list[Row]:
        if name in {"td", "th"} and not closing:
            self._cell = []
        elif name in {"td", "th"} and self._cell is not None:
            text = html.unescape(_ANY_TAG.sub("", "".join(self._cell))).strip()
            self._cell = None
            if self._cells is not None and len(self._cells) < _MOST_CELLS:
                self._cells.append(text)
        elif name == "tr" and not closing:
            self._cells = []
        elif name == "tr" and self._cells:
            cells, self._cells = self._cells, None
            if _is_header(cells):
                self._header = [_name(cell) for cell in cells]
                return []
            return self._row(cells) if self._header else []
        elif name == "table":
            self._header = []
        return []


def _cells(text: str, *, words: bool) -> list[str]:
    text = text.removeprefix("#").strip()
    if "|" in text:
        return [cell.strip() for cell in text.strip("|").split("|")]
    parts = _GAP.split(text)
    if len(parts) > 1:
        return parts
    return text.split() if words or _first_is_step(text) else parts


def _first_is_step(text: str) -> bool:
    word = text.removeprefix("#").strip().split(maxsplit=1)
    return bool(word) and word[0].lower() in _STEP_HEADERS


def _is_header(cells: Sequence[str]) -> bool:
    return (
        1 < len(cells) <= _MOST_CELLS
        and not _STEP_HEADERS.isdisjoint(cell.lower() for cell in cells)
        and all(cell and not cell[0].isdigit() for cell in cells)
        and all(spelled(cell) is None and len(cell) < 100 and "=" not in cell for cell in cells)
    )


def _step_column(header: Sequence[str]) -> int:
    """Where the steps are; an epoch counts only where there is nothing finer."""
    columns = [index for index, name in enumerate(header) if name.lower() in _STEP_HEADERS]
    fine = [index for index in columns if header[index].lower() != "epoch"]
    return (fine or columns)[0]


def _name(cell: str) -> str:
    return _SPACED_SLASH.sub("/", cell.strip().replace("**", ""))
