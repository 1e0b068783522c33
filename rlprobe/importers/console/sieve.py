"""The lines of a long log that can matter, found without a look at each of the others.

Most of a long log is chatter and completions. One pattern over the bytes of a large block tells
which lines can hold a metric or a word of the framework; while the reader waits for nothing, only
these are given to it. What a line means is decided by the reader alone: a line too many costs its
time, and the pattern must let through whatever the reader would take note of.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from rlprobe.importers.source import BLOCK_BYTES, Source
from rlprobe.values import IntArray

LONGEST_SEGMENT = 256 * 1024
WORTHWHILE_BYTES = 3 * 1024 * 1024  # below that, loading pyarrow costs more than it saves
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\r\n]*\x07")
_KEPT = 400  # lines before the present one that can be had again
# What a line may hold that needs no number beside a name to matter (RE2, over bytes; one DFA each).
_STRUCTURE = r"[{}|\t]|\xe2\x94[\x82\x83]|<t|</t|valuat|verflow"
_NOT_FINITE = r"(?:nan|inf|inity)(?:[^A-Za-z]|$)"
_HEAD = r"^.{0,24}(?:step|iter|itr|epoch|episode|update|batch|round|Result for )"
# What makes a line with a number one that has to be looked at, however many words it has.
_WITH_NUMBER = (
    r"step|iter|itr|epoch|episode|update|rollout|batch|round|reward|grad_norm|tensor\(|[0-9.]\s?\("
    r"|[0-9]\.?\s{0,9}[A-Za-z%/]{0,12}[^A-Za-z0-9]*$"
)
# A name has up to five words, a number a unit; so many more may stand in a line of pairs.
_WORDS_OF_PAIR, _WORDS_BESIDE = 7, 4
_OPERATORS = np.isin(np.arange(256), list(b"*+,;?!<^~&"))
_IN_NAMES = np.isin(np.arange(256), list(b"./-%@"))


class Lines:
    """What stands between line ends and carriage returns; one that is too long is cut short.

    Args:
        blocks: whole lines, many at once.

    Attributes:
        passed_over: lines that were not given.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.passed_over = 0
        self._blocks = blocks
        self._block = _Block(b"")
        self._at = -1  # the line of the block that was given last
        self._marked = 0  # the line of the block from which on lines are kept
        self._kept: list[str] = []  # those of the blocks before
        self._lines_before = 0

    @classmethod
    def of(cls, source: Source) -> Self:
        """The lines of a file."""
        return cls(_blocks(source))

    @classmethod
    def of_text(cls, lines: Iterable[str]) -> Self:
        """Lines from elsewhere, such as those of a notebook."""
        return cls(_joined(lines))

    @property
    def number(self) -> int:
        """The number of the line that was given last, from 1."""
        return self._lines_before + self._block.newlines_before(self._at) + 1

    def read(self, idle: Callable[[], bool]) -> Iterator[str]:
        """The lines that can matter; all of them while the reader is not idle."""
        for data in self._blocks:
            block = self._next(data)
            candidates = block.candidates()
            position = 0
            while position < len(block):
                if candidates is not None and idle():
                    place = bisect_left(candidates, position)
                    after = candidates[place] if place < len(candidates) else len(block)
                    self.passed_over += after - position
                    position = after
                    if position == len(block):
                        break
                self._at = position
                yield block.text(position)
                position += 1
            self._at = len(block) - 1

    def _next(self, data: bytes) -> _Block:
        self._kept = self.since_mark()
        self._lines_before += self._block.newlines
        self._block, self._at, self._marked = _Block(data), -1, 0
        return self._block

    def mark(self) -> None:
        """From the line that was given last on, lines are kept."""
        self._kept, self._marked = [], self._at

    def since_mark(self) -> list[str]:
        """The last lines since the mark, those that were passed over too."""
        first = max(self._marked, self._at + 1 - _KEPT)
        own = [self._block.text(place) for place in range(first, self._at + 1)]
        return [*self._kept, *own][-_KEPT:]


class _Block:
    """Lines of a block of bytes: where each starts and ends; empty ones are left out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        codes = np.frombuffer(data, np.uint8)
        self._breaks: IntArray = np.flatnonzero((codes == 10) | (codes == 13))
        self._is_newline = np.asarray(codes[self._breaks] == 10, dtype=np.bool_)  # and no return
        starts = np.append(0, self._breaks + 1)
        ends = np.append(self._breaks, len(data))
        full = ends > starts
        self._starts: Sequence[int] = starts[full].tolist()
        self._ends: Sequence[int] = ends[full].tolist()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def newlines(self) -> int:
        """Line ends in the block."""
        return int(self._is_newline.sum())

    def newlines_before(self, place: int) -> int:
        """Line ends before a line."""
        if place < 0:
            return 0
        until = int(np.searchsorted(self._breaks, self._starts[place]))
        return int(self._is_newline[:until].sum())

    def text(self, place: int) -> str:
        """A line."""
        start = self._starts[place]
        end = min(self._ends[place], start + LONGEST_SEGMENT)
        return self._data[start:end].decode("utf-8", "replace")

    def candidates(self) -> list[int] | None:
        """The lines that can matter; None where all are to be read."""
        if len(self._data) < WORTHWHILE_BYTES or not len(self):
            return None
        import pyarrow as pa
        import pyarrow.compute as pc

        # A line reaches to the start of the next: the pattern sees its end too.
        offsets = np.append(self._starts, len(self._data)).astype(np.int32)
        lines = pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        )
        structure, not_finite, head, beside = (
            pc.match_substring_regex(lines, f"(?i){pattern}").to_numpy(zero_copy_only=False)
            for pattern in (_STRUCTURE, _NOT_FINITE, _HEAD, _WITH_NUMBER)
        )
        codes = np.frombuffer(self._data, np.uint8)
        starts = np.array(self._starts)
        pairs = _per_line(_numbers_of_names(codes), starts)
        few = _words(codes, starts) <= _WORDS_OF_PAIR * pairs + _WORDS_BESIDE
        kept = structure | not_finite | head | ((pairs > 0) & (beside | few))
        return np.flatnonzero(kept).tolist()


def _numbers_of_names(codes: Any) -> IntArray:
    """Where numbers start that may stand beside a name."""
    digits = (codes - ord("0")) < 10  # unsigned: what is below wraps
    first = digits.copy()
    first[1:] &= ~digits[:-1]
    at = np.flatnonzero(first)
    one, two, three, four = (codes[np.maximum(at - by, 0)] for by in (1, 2, 3, 4))
    decimals = (one == ord(".")) & ((two - ord("0")) < 10)
    separator = (two == ord("=")) | (two == ord(":"))
    before = np.where(three == ord(" "), four, three)
    alone = _IN_NAMES[two] & (three == ord(" "))
    term = _OPERATORS[two] | alone | (separator & ((before - ord("0")) < 10))
    return np.asarray(at[~(decimals | ((one == ord(" ")) & term))], dtype=np.int64)


def _words(codes: Any, starts: IntArray) -> IntArray:
    """How many words of two letters or more each line has, at least."""
    letters = ((codes | 32) - ord("a")) < 26
    begins = letters.copy()
    begins[1:] &= (codes[:-1] == ord(" ")) | (codes[:-1] == ord("\n"))
    begins[:-1] &= letters[1:]
    return _per_line(np.flatnonzero(begins), starts)


def _per_line(places: IntArray, starts: IntArray) -> IntArray:
    """How many of the places each line has."""
    before = np.searchsorted(places, starts)
    return np.diff(np.append(before, len(places)))


def _blocks(source: Source) -> Iterator[bytes]:
    """Whole lines in large blocks, without the codes of terminals."""
    rest = b""
    for chunk in source.chunks(BLOCK_BYTES):
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not cut:
            rest = (rest + chunk)[:LONGEST_SEGMENT]
            continue
        yield _plain(rest + chunk[:cut])
        rest = chunk[cut:][:LONGEST_SEGMENT]
    if rest:
        yield _plain(rest)


def _joined(lines: Iterable[str]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line.encode("utf-8", "replace"))
        size += len(held[-1]) + 1
        if size > BLOCK_BYTES:
            yield _plain(b"\n".join(held))
            held, size = [], 0
    yield _plain(b"\n".join(held))


def _plain(block: bytes) -> bytes:
    return _ANSI.sub(b"", block) if b"\x1b" in block else block
