"""The lines of a table with a delimiter, whatever ends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlprobe.importers.source import HEAD_BYTES, LONGEST_LINE, Source

Line = tuple[int, str]  # its number in the file, from 1, and its text
_LONGEST_ROW = 100  # lines of one row whose quoted cells hold line ends


def lines_of(source: Source) -> Iterator[Line]:
    """Every line of a file: LF, CR LF, CR CR LF, or CR alone."""
    only_cr = b"\n" not in source.head and b"\r" in source.head
    raw = _split_at_cr(source) if only_cr else _split(source.lines())
    return _rows(enumerate(map(_text, raw), start=1))


def head_of(source: Source) -> list[Line]:
    """The lines of the first bytes, without one that may be cut."""
    head = source.head.replace(b"\r\n", b"\n").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    whole = len(source.head) < HEAD_BYTES or b"\n" not in head
    lines = head.split(b"\n") if whole else head.split(b"\n")[:-1]
    return list(_rows(enumerate(map(_text, lines), start=1)))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\0", "").strip("\r")


def _split(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if b"\r" in line and b"\r" in line.strip(b"\r"):
            yield from line.split(b"\r")
        else:
            yield line


def _split_at_cr(source: Source) -> Iterator[bytes]:
    rest = b""
    for chunk in source.chunks():
        *whole, rest = (rest + chunk).split(b"\r")
        rest = rest[:LONGEST_LINE]
        yield from whole
    if rest:
        yield rest


def _rows(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines, those of one quoted cell joined; a quote that never closes joins nothing."""
    waiting: list[Line] = []
    for line in lines:
        odd = line[1].count('"') % 2 == 1
        if not waiting and not odd:
            yield line
            continue
        waiting.append(line)
        if odd and len(waiting) > 1:
            yield waiting[0][0], "\n".join(text for _, text in waiting)
            waiting = []
        elif len(waiting) > _LONGEST_ROW:
            yield from waiting
            waiting = []
    yield from waiting
