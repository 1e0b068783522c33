"""A table with a delimiter, in the order of its lines: block by block where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

from rlprobe.importers.documents.csv_blocks import WORTHWHILE_BYTES, BlockReader
from rlprobe.importers.documents.csv_lines import Joiner, Line, split
from rlprobe.importers.documents.csv_rows import Table

_SMALLEST = 64 * 1024  # bytes of a block, once the parser is loaded


class TableReader:
    """Gives a table its lines.

    Args:
        header: the line that names the columns, which comes once more among them; "" if none does.
        first: some rows.
    """

    def __init__(self, table: Table, header: str, first: Sequence[Sequence[str]]) -> None:
        self._table, self._header = table, header
        self._joiner = Joiner()
        self._blocks = BlockReader(table, first)
        self._smallest = WORTHWHILE_BYTES
        self._begun = False  # whether the first line of the table was seen
        self._held: Line | None = None  # the last row so far: it may be cut
        self._number = 1

    def read(self, block: bytes) -> None:
        """Take whole lines."""
        if not self._begun:
            block = self._begin(block)
        last = block.rfind(b"\n", 0, max(0, len(block) - 1)) + 1
        if last < self._smallest or self._joiner.open or not self._fast(block[:last]):
            self._slow(block)
        else:
            self._slow(block[last:])

    def _begin(self, block: bytes) -> bytes:
        """Take the lines down to the first of the table; the others."""
        start = 0
        while start < len(block) and not self._begun:
            end = block.find(b"\n", start) + 1 or len(block)
            self._slow(block[start:end])
            start = end
        return block[start:]

    def _fast(self, block: bytes) -> bool:
        """Take a block without its last line at once."""
        first = block[: block.find(b"\n")]
        if not first.strip() or first.startswith(b"#"):
            return False
        if self._held is not None:  # not the last row, and it may be a header
            self._table.add(self._held)
            self._held = None
        columns = self._blocks.read(block, self._number)
        if columns is None:
            return False
        self._smallest = _SMALLEST
        self._table.take(*columns)
        self._number += block.count(b"\n")
        return True

    def _slow(self, block: bytes) -> None:
        if not block:
            return
        for line in split(block, self._number):
            self._number += 1
            for whole in self._joiner.feed(line):
                self._add(whole)

    def _add(self, line: Line) -> None:
        """Take a line, if it is neither blank nor a comment."""
        text = line[1]
        if not text.strip() or text.startswith("#"):
            return
        self._begun = True
        if self._header and text == self._header:
            self._header = ""
            return
        if self._held is not None:
            self._table.add(self._held)
        self._held = line

    def finish(self) -> None:
        """No more lines come."""
        for line in self._joiner.finish():
            self._add(line)
        if self._held is not None:
            self._table.add(self._held, last=True)
