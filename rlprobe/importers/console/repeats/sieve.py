"""The lines of a long log that can matter, found without a look at each of the others.

Most of a long log is chatter and completions. One pattern over the bytes of a large block tells
which lines can hold a metric or a word of the framework; while the reader waits for nothing, only
these are given to it. What a line means is decided by the reader alone: a line too many costs its
time, and the pattern must let through whatever the reader would take note of.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlprobe import naming, schema
from rlprobe.importers.console.repeats.columns import Slots, Tokens, slots_of
from rlprobe.importers.console.repeats.meaning import Known
from rlprobe.importers.console.repeats.shapes import Shape, Template
from rlprobe.importers.console.repeats.skeletons import in_numbers, skeletons
from rlprobe.importers.source import Source
from rlprobe.numbers import plural
from rlprobe.values import BoolArray, IntArray

BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_SEGMENT = 256 * 1024
_LEARNING_BYTES = 256 * 1024  # of the first block
WORTHWHILE_BYTES = 256 * 1024  # below that, loading pyarrow costs more than it saves
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\r\n]*\x07")
_MOST_KNOWN = 40_000  # skeletons that are remembered
_OFTEN, _NO_TIMES = 2, 2**31
# What a line may hold that needs no number beside a name to matter (RE2, over bytes; one DFA each).
_FORM = r"\{\s*(?:['\"]|$)|%\||<t|</t|valuat|verflow"
_STRUCTURE = r"[|\t]|\xe2\x94[\x82\x83]"
_NOT_FINITE = r"(?:nan|inf|inity)(?:[^A-Za-z]|$)"
_HEAD = r"^.{0,24}(?:step|iter|itr|epoch|episode|update|batch|round)"
# What makes a line with a number one that has to be looked at, however many words it has.
_WITH_NUMBER = (
    r"step|iter|itr|epoch|episode|update|rollout|batch|round|reward|grad_norm|tensor\(|[0-9.]\s?\("
    r"|[0-9]\.?\s{0,9}[A-Za-z%/]{0,12}[^A-Za-z0-9]*$"
)
_LED = frozenset(
    {"and", "debug", "info", "metrics", "root", "warning", "with"}
)  # what may stand before a name
# What tells of a training, and not of a step.
_SIGNS = (
    r"(?:train_runtime|TrainOutput\(|Num examples|Num Epochs|Total optimization steps|Total steps"
    r"|Result for [\w./-]{1,200}:\s*$|Logging to |Running [tTeEpP]|Continuing training|esum"
    r"|Traceback|Error)"
)
# A name has up to five words, a number a unit; so many more may stand in a line of pairs.
_WORDS_OF_NAME, _WORDS_OF_PAIR, _WORDS_BESIDE = 6, 7, 4
_OPERATORS = np.isin(np.arange(256), list(b"*+,;?!<^~&"))
_IN_NAMES = np.isin(np.arange(256), list(b"./-%@"))
_SIGNS_BETWEEN = np.isin(np.arange(256), list(b"*+^="))  # of two terms


class Alike:
    """What is known of the lines of a log, by their skeletons."""

    def __init__(self) -> None:
        self._known: dict[bytes, Like] = {}
        self._is_long = False
        self._once = 0  # lines that came once

    def of(self, block: LineBlock) -> list[Like]:
        """What is known of each line of a block; whether it can matter is."""
        self._is_long |= block.of_long
        if len(self._known) > _MOST_KNOWN:
            self._known = {line: like for line, like in self._known.items() if like.shape}
        known, get = self._known, self._known.get
        counts = Counter(line for line in block.skeletons if get(line, _ONCE) is _ONCE)
        if self._is_long:
            fresh = zip(counts.items(), matter(list(counts)), strict=True)
            for (line, count), often in fresh:
                looked_at = often <= count + (line in known)
                known[line] = Like() if looked_at else _ONCE if often < _NO_TIMES else _NEVER
        else:
            known |= ((line, Like()) for line in counts)
        known[b""] = _NEVER
        likes = list(map(known.__getitem__, block.skeletons))
        self._once += likes.count(_ONCE)
        return likes

    def notes(self) -> list[str]:
        """What was not looked at, in words."""
        if not self._once:
            return []
        return [f"taken for text: {plural(self._once, 'line')} that came once, of no known name"]

    def learn(self, skeleton: bytes, shape: Shape) -> None:
        """How lines of a skeleton are read."""
        like = self._known[skeleton]
        if like is _NEVER or like is _ONCE:
            like = self._known[skeleton] = Like(matters=like is _ONCE)  # it came again
        like.shape = shape


@dataclass(slots=True, eq=False)
class Like:
    """What is known of the lines of a skeleton.

    Attributes:
        matters: whether they can matter to a reader that waits for nothing.
        shape: how they are read; None where that is not known.
        line: one of them with its meaning.
        slots: where their numbers stand, by the template of a line; None where that is not known.
    """

    matters: bool = True
    shape: Shape | None = None
    line: Known | None = None
    slots: dict[Template, Slots | None] = field(default_factory=dict)

    def slots_in(self, line: Known) -> Slots | None:
        """Where the numbers of lines stand that have the template of this one."""
        template = None if line.shape is None else line.shape.fitting(line.segment)
        if template is None:
            return None
        if template not in self.slots:
            self.slots[template] = slots_of(line, template)
        return self.slots[template]


_NEVER, _ONCE = Like(matters=False), Like(matters=False)  # _ONCE: if it comes again, it may


def blocks_of(source: Source) -> Iterator[LineBlock]:
    """The lines of a file, many at once."""
    return _numbered(_blocks(source))


def live_block(data: bytes, ended: int, before: int, *, at_speed: bool) -> LineBlock:
    """Whole lines of output that is still being printed.

    Args:
        ended: lines of it that end before these.
        before: bytes of it before these.
        at_speed: whether it comes so fast that not each line can be looked at.
    """
    at_speed &= before > 0
    is_long = before >= WORTHWHILE_BYTES or at_speed
    return LineBlock(_plain(data), ended, of_long=is_long, at_speed=at_speed)


def blocks_in(lines: Iterable[str]) -> Iterator[LineBlock]:
    """Lines, many at once."""
    return _numbered(_joined(lines))


def _numbered(blocks: Iterable[bytes]) -> Iterator[LineBlock]:
    ended = 0
    for data in blocks:
        # What the first lines teach is of use from the next block on.
        learning = 0 if ended else data.find(b"\n", _LEARNING_BYTES) + 1
        for part in filter(None, (data[:learning], data[learning:])):
            block = LineBlock(part, ended, of_long=len(data) >= WORTHWHILE_BYTES)
            yield block
            ended += block.ends


def _joined(lines: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size > BLOCK_BYTES:
            yield ("\n".join(held) + "\n").encode("utf-8", "replace")
            held, size = [], 0
    yield "\n".join(held).encode("utf-8", "replace")


class LineBlock:
    """What stands between line ends and carriage returns in a block of bytes.

    Args:
        ended: how many lines of the log end before it.
        of_long: whether the log is so long that not all of its lines are looked at.
        at_speed: whether that holds even before the first row of metrics.

    Attributes:
        ends: how many lines end in it.
        texts: the lines; what is too long is cut short, and nothing stands in some.
        numbers: which line of the log each is, from 1.
        longest: characters of the longest.
    """

    def __init__(
        self, data: bytes, ended: int = 0, *, of_long: bool = False, at_speed: bool = False
    ) -> None:
        self.ends, self.of_long, self.at_speed = data.count(b"\n"), of_long, at_speed
        self.numbers: Sequence[int] = range(ended + 1, ended + self.ends + 2)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if b"\r" in data:
            codes = np.frombuffer(data, np.uint8)
            ends = codes == ord("\n")
            breaks = np.flatnonzero(ends | (codes == ord("\r")))
            self.numbers = (np.append(0, np.cumsum(ends[breaks])) + (ended + 1)).tolist()
            data = data.replace(b"\r", b"\n")
        self._data = data
        self.texts = data.decode("utf-8", "replace").split("\n")
        self.longest = max(map(len, self.texts))
        if self.longest > LONGEST_SEGMENT:
            self.texts = [text[:LONGEST_SEGMENT] for text in self.texts]

    @property
    def lines(self) -> Sequence[str]:
        """The lines without what would stand behind the last line end."""
        return self.texts if self.texts[-1] else self.texts[:-1]

    @functools.cached_property
    def _number(self) -> BoolArray:
        return in_numbers(self._data)

    @functools.cached_property
    def skeletons(self) -> list[bytes]:
        """What is left of each line without its numbers."""
        return skeletons(self._data, self._number)

    @functools.cached_property
    def tokens(self) -> Tokens:
        """The numbers of all lines."""
        return Tokens(self._data, self._number)


def matter(lines: Sequence[bytes]) -> list[int]:
    """How often lines have to come for a reader to look at them that waits for nothing.

    A metric is printed again and again: a line that comes once in a long block, and in which no
    word of a known name stands beside a number, is text.

    Args:
        lines: skeletons.
    """
    if not lines:
        return []
    import pyarrow as pa
    import pyarrow.compute as pc

    from rlprobe.store import arrow

    data = b"\n".join(lines) + b"\n"
    codes = np.frombuffer(data, np.uint8)
    starts = np.append(0, np.flatnonzero(codes == ord("\n")) + 1)
    # A line reaches to the start of the next: the pattern sees its end too.
    offsets = pa.py_buffer(starts.astype(np.int32))
    rows = pa.Array.from_buffers(pa.binary(), len(lines), [None, offsets, pa.py_buffer(data)])
    always, structure, head, beside = (
        arrow.flags(pc.match_substring_regex(rows, pattern))
        for pattern in (_always(), _STRUCTURE, f"(?i){_HEAD}", f"(?i){_WITH_NUMBER}")
    )
    pairs, few = _pairs_and_few_words(codes, starts)
    may = np.flatnonzero(~always & (structure | head | ((pairs > 0) & (beside | few))))
    often = np.where(always, 1, _NO_TIMES)
    some = rows.take(arrow.from_numpy(may, pa.int64()))
    braced = arrow.flags(pc.match_substring(some, "{"))  # a dict, or none
    known = arrow.flags(pc.match_substring_regex(some, _known_names()))
    often[may] = np.where(braced, _NO_TIMES, np.where(known, 1, _OFTEN))
    times: list[int] = often.tolist()
    return times


def _pairs_and_few_words(codes: Any, starts: IntArray) -> tuple[IntArray, BoolArray]:
    """How many names may have a number, by line, and where few words are left beside these.

    Args:
        codes: the skeletons, one behind the other.
        starts: where each starts, and where the last ends.
    """
    numbers = _numbers_of_names(codes)
    places = np.append(numbers, len(codes))
    bounds = np.searchsorted(numbers, starts)
    first, after = bounds[:-1], bounds[1:]
    pairs = after - first
    words = _words(codes)
    begins = np.searchsorted(words, starts)
    to_start, to_end = begins[:-1], begins[1:]
    to_first = np.searchsorted(words, places[first])
    to_last = np.searchsorted(words, places[np.maximum(after - 1, 0)])
    lead = np.maximum(to_first - to_start - _WORDS_OF_NAME, 0)
    tail = np.maximum(to_end - to_last - 1, 0)  # one may be a unit
    few = to_end - to_start <= _WORDS_OF_PAIR * pairs + _WORDS_BESIDE
    return pairs, few & (lead + tail <= pairs + _WORDS_BESIDE)


@functools.cache
def _always() -> str:
    """What matters however the line goes on: its form, and what frameworks say beside metrics."""
    needles = dict.fromkeys(re.escape(message.needle) for message in schema.messages())
    return "|".join((f"(?i:{_FORM}|{_NOT_FINITE})", _SIGNS, *needles))


@functools.cache
def _known_names() -> str:
    """A word of the name of a metric: with a number behind it, or in the header of a table."""
    words, last = naming.words()
    prose = naming.prose()
    own = "|".join(sorted(filter(str.isalpha, words - prose)))
    shared = "|".join(sorted(word for word in last & prose if len(word) > 2))
    # A name in words of prose has no other words: `mean length: 0`, and not `so their length: 0`.
    every = "|".join(sorted(filter(str.isalpha, words | _LED)))
    begins = rf"(?:^|[^a-z_ ])\s*(?:(?:{every})[ _/.-]{{1,3}}){{0,4}}"
    return (
        rf"(?i:(?:^|[^a-z])(?:{own})(?:[^a-z][^0]{{0,60}})?0"
        rf"|{begins}(?:{shared})(?:[^a-z0:=]{{0,3}}|[^a-z0:=]?\([^()]{{0,12}}\))\s{{0,9}}[:=]\s{{0,9}}0"
        rf"|^(?:[^0]*[^a-z0])?(?:{own}|{shared})(?:[^a-z0][^0]*)?$"
        rf"|[|\t](?:[^|\t0]*[^a-z|\t0])?(?:{own}|{shared})(?:[^a-z|\t0][^|\t0]*)?(?:[|\t\n]|$)"
        r"|[a-z][_/][a-z][^0]{0,60}0)|[a-z][A-Z][^0 ]{0,40}[ :=]{1,20}0"
    )


def _numbers_of_names(codes: Any) -> IntArray:
    """Where numbers stand that may have a name: no terms of an expression."""
    at = np.flatnonzero(codes == ord("0"))
    last = len(codes) - 1
    one, two, three, four = (codes[np.maximum(at - by, 0)] for by in (1, 2, 3, 4))
    separator = (two == ord("=")) | (two == ord(":"))
    before = np.where(three == ord(" "), four, three)
    alone = _IN_NAMES[two] & (three == ord(" "))
    term = _OPERATORS[two] | alone | (separator & (before == ord("0")))
    behind, then, further = (codes[np.minimum(at + by, last)] for by in (1, 2, 3))
    operand = (behind == ord(" ")) & _SIGNS_BETWEEN[then] & (further == ord(" "))
    return np.asarray(at[~(((one == ord(" ")) & term) | operand)], dtype=np.int64)


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


def _plain(block: bytes) -> bytes:
    return _ANSI.sub(b"", block) if b"\x1b" in block else block
