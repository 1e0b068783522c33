"""Many lines of a table at once -> columns, through pyarrow; others are left to be read one by one.

A block is taken only if all of its rows have as many cells as the header has, every number is
spelled as any parser reads it, each row has its step, and quotes stand around whole cells only.
What the others hold is for a look at every cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlprobe.importers import evaluations
from rlprobe.importers.documents.csv_cells import BLANKS, is_blank
from rlprobe.importers.documents.csv_lines import Line
from rlprobe.importers.documents.csv_rows import Column, Table
from rlprobe.importers.numbers import looks_like_number
from rlprobe.values import BoolArray, FloatArray

WORTHWHILE_BYTES = 3 * 1024 * 1024  # below that, loading pyarrow costs more than it saves
BLOCK_BYTES = 4 * 1024 * 1024
_SLICE = 256 * 1024  # bytes that the parser takes at once: they stay in the cache
# Comments, calls (`nan(1)`), and what is taken out of lines.
_ODD = (b"#", b"(", b"\0")
_BLANKS = [*dict.fromkeys(form(word) for word in BLANKS for form in (str, str.upper, str.title))]
# Text that spells no number and looks like none (RE2).
_NO_NUMBER = r"^\s*(?:[a-zA-Z_/].*|\d{4}-\d\d-\d\d.*)$"
_SPELT = r"(?i)^\s*[-+]?(?:nan|inf)"
_MOST_DOUBTFUL = 10_000  # words of a block that are looked at one by one
_EXAMPLES, _MOST_HEAD = 5, 200  # of cells of text, and rows in which they are looked for
_LARGEST = 2.0**62

Text = tuple[int, Sequence[Line]]  # how many cells of a column hold some, and the first of them


class BlockReader:
    """Reads blocks of lines below the first header of a table.

    Args:
        rows: some of its rows, to see which columns hold text.
    """

    def __init__(self, table: Table, rows: Sequence[Sequence[str]]) -> None:
        self.table = table
        self._header = table.header
        named = [place for place, (_, name) in enumerate(table.columns) if name]
        cells = {place: [row[place] for row in rows if len(row) > place] for place in named}
        self._texts = frozenset(
            place
            for place, column in cells.items()
            if place != table.step
            and any(not is_blank(cell) for cell in column)
            and all(table.style.number(cell) is None for cell in column)
        )
        step = () if table.step is None else (table.step,)
        self._numbers = sorted({*named, *step} - self._texts)
        self._options: dict[str, Any] = {}

    def read(
        self, block: bytes, first: int
    ) -> tuple[FloatArray | None, dict[int, Column], dict[int, Text]] | None:
        """The step of each row, the columns, and what columns of text hold, by their place.

        Args:
            first: the number of its first line.

        Returns:
            None where each line has to be looked at.
        """
        table = self.table
        known = table.blockwise and table.header == self._header
        if not known or any(odd in block for odd in _ODD):
            return None
        plain = _unquoted(block, table.style.delimiter.encode(), len(table.columns))
        cells = None if plain is None else self._parsed(plain)
        if cells is None:
            return None
        columns = {place: _column(cells[f"c{place}"]) for place in self._numbers}
        if not _in_each_row([valid for _, valid in columns.values()]):
            return None
        steps = None if table.step is None else _steps(*columns[table.step])
        texts = self._counted({place: cells[f"c{place}"] for place in self._texts}, first)
        lost = texts is None or (bool(texts) and b"\n\n" in block)
        if lost or (table.step is not None and steps is None):
            return None
        return steps, columns, texts or {}

    def _parsed(self, block: bytes) -> Any:
        """The cells of a block by column; None where a row or a number is odd."""
        import pyarrow as pa
        from pyarrow import csv

        self._options = self._options or self._asked()
        try:
            return csv.read_csv(_outside_python(block), **self._options)
        except pa.ArrowInvalid:
            return None

    def _asked(self) -> dict[str, Any]:
        import pyarrow as pa
        from pyarrow import csv

        types = {f"c{place}": pa.float64() for place in self._numbers}
        types |= {f"c{place}": pa.dictionary(pa.int32(), pa.utf8()) for place in self._texts}
        names = [f"c{place}" for place in range(len(self.table.columns))]
        return {
            "read_options": csv.ReadOptions(
                column_names=names, use_threads=False, block_size=_SLICE
            ),
            "parse_options": csv.ParseOptions(
                delimiter=self.table.style.delimiter, quote_char=False
            ),
            "convert_options": csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=_BLANKS
            ),
        }

    def _counted(self, columns: Mapping[int, Any], first: int) -> dict[int, Text] | None:
        """What columns of text hold; None if some may hold a number, or name an evaluation."""
        texts: dict[int, Text] = {}
        for place, column in columns.items():
            words = self._words(column)
            if words is None:
                return None
            if place in self.table.kinds and any(map(evaluations.of_evaluation, words)):
                return None
            texts[place] = _count(column, words, first)
        return texts

    def _words(self, column: Any) -> list[str] | None:
        """The different cells of a column; None if one is a number or looks like one."""
        import pyarrow.compute as pc

        words = pc.unique(column).dictionary_decode()
        plain = pc.and_not(
            pc.match_substring_regex(words, _NO_NUMBER), pc.match_substring_regex(words, _SPELT)
        )
        doubtful: list[str] = words.filter(pc.invert(plain)).to_pylist()
        number = self.table.style.number
        if len(doubtful) > _MOST_DOUBTFUL:
            return None
        if any(number(it.strip()) is not None or looks_like_number(it) for it in doubtful):
            return None
        return [word.strip() for word in words.to_pylist()]


def _outside_python(block: bytes) -> Any:
    """The bytes as a file of Arrow's own: its threads take no lock of Python's to let go of it.

    Why that matters: `rlprobe.store.parquet_file`.
    """
    import pyarrow as pa

    copy = pa.BufferOutputStream()
    copy.write(block)
    return pa.BufferReader(copy.getvalue())


def _unquoted(block: bytes, between: bytes, columns: int) -> bytes | None:
    """Whole lines without the quotes around cells; None if quotes stand elsewhere, too."""
    quotes = block.count(b'"')
    if not quotes:
        return block
    rows = block.count(b"\n")
    parts = rows * (columns - 1), rows - 1  # what stands between cells, and between rows
    all_cells = quotes == 2 * rows * columns and block[:1] == b'"' and block[-2:] == b'"\n'
    if all_cells and parts == (block.count(b'"' + between + b'"'), block.count(b'"\n"')):
        return block.replace(b'"', b"")
    opened = block.count(between + b'"') + block.count(b'\n"') + (block[:1] == b'"')
    closed = block.count(b'"' + between) + block.count(b'"\n')
    alone = (b'""', between + b'"' + between, b'\n"' + between, between + b'"\n')
    if opened != closed or opened + closed != quotes or any(odd in block for odd in alone):
        return None
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    before = np.searchsorted(np.flatnonzero(codes == ord('"')), ends)
    return None if (before % 2).any() else block.replace(b'"', b"")


def _count(column: Any, words: Sequence[str], first: int) -> Text:
    """How many cells are not blank, and the first of them with the numbers of their lines."""
    head = [cell.strip() for cell in column[:_MOST_HEAD].to_pylist()]
    shown = [(row, cell) for row, cell in enumerate(head, start=first) if not is_blank(cell)]
    count = len(column)
    if any(map(is_blank, words)):
        count = sum(not is_blank(cell.strip()) for cell in column.to_pylist())
    return count, shown[:_EXAMPLES]


def _in_each_row(valid: Sequence[BoolArray | None]) -> bool:
    """Whether each row holds a number."""
    if any(column is None for column in valid):
        return True
    masks = [column for column in valid if column is not None]
    return bool(masks) and bool(np.logical_or.reduce(masks).all())


def _column(column: Any) -> Column:
    """Numbers, and which there are."""
    from rlprobe.store import arrow

    values, valid = arrow.floats(column)
    return (np.where(valid, values, np.nan), valid) if column.null_count else (values, None)


def _steps(values: FloatArray, valid: BoolArray | None) -> FloatArray | None:
    """Whole numbers; None if some row has none."""
    if valid is not None or not bool(((values >= 0) & (values < _LARGEST)).all()):
        return None
    return values if bool((values == np.floor(values)).all()) else None
