"""The lines of a table with a delimiter, whatever ends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlprobe.importers.source import HEAD_BYTES, LONGEST_LINE, Source

Line = tuple[int, str]  # its number in the file, from 1, and its text
_LONGEST_ROW = 100  # lines of one row whose quoted cells hold line ends


class Joiner:
    """Puts lines of one quoted cell together; a quote that never closes joins nothing."""

    def __init__(self) -> None:
        self._waiting: list[Line] = []

    @property
    def open(self) -> bool:
        """Whether a quote was opened and not closed yet."""
        return bool(self._waiting)

    def feed(self, line: Line) -> Iterable[Line]:
        """The lines that are whole with one more."""
        odd = line[1].count('"') % 2 == 1
        if not self._waiting and not odd:
            return (line,)
        waiting = self._waiting = [*self._waiting, line]
        if odd and len(waiting) > 1:
            self._waiting = []
            return ((waiting[0][0], "\n".join(text for _, text in waiting)),)
        return self.finish() if len(waiting) > _LONGEST_ROW else ()

    def finish(self) -> Iterable[Line]:
        """The lines whose quote was never closed."""
        waiting, self._waiting = self._waiting, []
        return waiting


def split(block: bytes, first: int) -> Iterator[Line]:
    """The lines of a block, the first of this number."""
    for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=first):
        yield number, _text(line[:LONGEST_LINE])


def head_of(source: Source) -> list[Line]:
    """The lines of the first bytes, without one that may be cut."""
    head = source.head.replace(b"\r\n", b"\n").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    whole = len(source.head) < HEAD_BYTES or b"\n" not in head
    lines = head if whole else head[: head.rfind(b"\n")]
    joiner = Joiner()
    joined = [line for each in split(lines, 1) for line in joiner.feed(each)]
    return [*joined, *joiner.finish()]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\0", "").strip("\r")
