"""The lines of a long log that can matter, found without a look at each of the others.

Most of a long log is chatter and completions. One pattern over the bytes of a large block tells
which lines can hold a metric or a word of the framework; while the reader waits for nothing, only
these are given to it. What a line means is decided by the reader alone: a line too many costs its
time, and the pattern must let through whatever the reader would take note of.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from rlprobe import schema
from rlprobe.importers.source import Source
from rlprobe.values import BoolArray, IntArray

BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_SEGMENT = 256 * 1024
WORTHWHILE_BYTES = 3 * 1024 * 1024  # below that, loading pyarrow costs more than it saves
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\r\n]*\x07")
_KEPT = 400  # lines that were passed over and can be had again
# What a line may hold that needs no number beside a name to matter (RE2, over bytes; one DFA each).
_STRUCTURE = r"[{}|\t]|\xe2\x94[\x82\x83]|<t|</t|valuat|verflow"
_NOT_FINITE = r"(?:nan|inf|inity)(?:[^A-Za-z]|$)"
_HEAD = r"^.{0,24}(?:step|iter|itr|epoch|episode|update|batch|round|Result for )"
# What makes a line with a number one that has to be looked at, however many words it has.
_WITH_NUMBER = (
    r"step|iter|itr|epoch|episode|update|rollout|batch|round|reward|grad_norm|tensor\(|[0-9.]\s?\("
    r"|[0-9]\.?\s{0,9}[A-Za-z%/]{0,12}[^A-Za-z0-9]*$"
)
# What tells of a training, and not of a step.
_SIGNS = (
    r"(?:train_runtime|TrainOutput\(|Num examples|Num Epochs|Total optimization steps|Total steps"
    r"|Logging to |Running [tTeEpP]|Continuing training|esum|Traceback|Error)"
)
# A name has up to five words, a number a unit; so many more may stand in a line of pairs.
_WORDS_OF_NAME, _WORDS_OF_PAIR, _WORDS_BESIDE = 6, 7, 4
_OPERATORS = np.isin(np.arange(256), list(b"*+,;?!<^~&"))
_IN_NAMES = np.isin(np.arange(256), list(b"./-%@"))


class Lines:
    """What stands between line ends and carriage returns; one that is too long is cut short.

    Args:
        blocks: whole lines, many at once.

    Attributes:
        skipped: how many lines were passed over before the one that was given last.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self.skipped = 0
        self._blocks = blocks
        self._block = _Block(b"")
        self._at = 0  # the line of the block that was given last, or its end
        self._kept: list[str] = []  # of the lines passed over, those of the blocks before
        self._beyond = 0  # how many lines of this block were passed over before that one

    @classmethod
    def of(cls, source: Source) -> Self:
        """The lines of a file."""
        return cls(_blocks(source))

    @classmethod
    def of_text(cls, lines: Iterable[str]) -> Self:
        """Lines from elsewhere."""
        return cls(_joined(lines))

    def read(self, idle: Callable[[], bool]) -> Iterator[str]:
        """The lines that can matter; all of them while the reader is not idle."""
        for data in self._blocks:
            block = self._block = _Block(data)
            candidates = block.candidates()
            last = len(block)
            position = self._beyond = 0
            while position < last:
                if candidates is not None and idle():
                    place = bisect_left(candidates, position)
                    after = candidates[place] if place < len(candidates) else last
                    self.skipped += after - position
                    self._beyond = after - position
                    position = self._at = after
                    if position == last:
                        break
                self._at = position
                yield block.text(position)
                self.skipped, self._beyond, self._kept = 0, 0, []
                position += 1
            self._kept, self._at, self._beyond = self.passed(), 0, 0

    @property
    def longest(self) -> int:
        """Bytes of the longest of the lines that were passed over in this block."""
        return self._block.longest(self._at - self._beyond, self._at)

    def passed(self) -> list[str]:
        """The last of the lines that were passed over."""
        if not self.skipped:
            return []
        first = self._at - min(self._beyond, _KEPT)
        return [*self._kept, *map(self._block.text, range(first, self._at))][-_KEPT:]


def segments(source: Source) -> Iterator[str]:
    """Every line of a file."""
    for data in _blocks(source):
        block = _Block(data)
        yield from map(block.text, range(len(block)))


class _Block:
    """Lines of a block of bytes: where each starts and ends; empty ones are left out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        codes = np.frombuffer(data, np.uint8)
        breaks = np.flatnonzero((codes == ord("\n")) | (codes == ord("\r")))
        starts = np.append(0, breaks + 1)
        ends = np.append(breaks, len(data))
        full = ends > starts
        self._lengths = (ends - starts)[full]
        self._starts: Sequence[int] = starts[full].tolist()
        self._ends: Sequence[int] = ends[full].tolist()

    def __len__(self) -> int:
        return len(self._starts)

    def longest(self, start: int, stop: int) -> int:
        """Bytes of the longest of some lines."""
        return int(self._lengths[start:stop].max(initial=0))

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
        structure, not_finite, head, beside, messages = (
            pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False)
            for pattern in (
                *(f"(?i){part}" for part in (_STRUCTURE, _NOT_FINITE, _HEAD, _WITH_NUMBER)),
                _said(),
            )
        )
        codes = np.frombuffer(self._data, np.uint8)
        starts = np.array(self._starts)
        pairs, few = _pairs_and_few_words(codes, starts)
        kept = structure | not_finite | head | messages | ((pairs > 0) & (beside | few))
        return np.flatnonzero(kept).tolist()


def _pairs_and_few_words(codes: Any, starts: IntArray) -> tuple[IntArray, BoolArray]:
    """How many names may have a number, by line, and where few words are left beside these."""
    ends = np.append(starts[1:], len(codes))
    numbers = _numbers_of_names(codes)
    places = np.append(numbers, len(codes))
    first, after = np.searchsorted(numbers, starts), np.searchsorted(numbers, ends)
    pairs = after - first
    words = _words(codes)
    to_start, to_end = np.searchsorted(words, starts), np.searchsorted(words, ends)
    to_first = np.searchsorted(words, places[first])
    to_last = np.searchsorted(words, places[np.maximum(after - 1, 0)])
    lead = np.maximum(to_first - to_start - _WORDS_OF_NAME, 0)
    tail = np.maximum(to_end - to_last - 1, 0)  # one may be a unit
    few = to_end - to_start <= _WORDS_OF_PAIR * pairs + _WORDS_BESIDE
    return pairs, few & (lead + tail <= pairs + _WORDS_BESIDE)


@functools.cache
def _said() -> str:
    """What frameworks say beside metrics."""
    needles = dict.fromkeys(re.escape(message.needle) for message in schema.messages())
    return "|".join((_SIGNS, *needles))


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


def _words(codes: Any) -> IntArray:
    """Where words of two letters or more begin, behind a blank."""
    letters = ((codes | 32) - ord("a")) < 26
    begins = letters.copy()
    begins[1:] &= (codes[:-1] == ord(" ")) | (codes[:-1] == ord("\n"))
    begins[:-1] &= letters[1:]
    return np.flatnonzero(begins)


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
