"""Numbers of lines that have one skeleton, as columns: line by line only where that is needed.

Which number of a line is told under which name is known from the template of its shape; that the
other numbers are spelled as the template wants them is looked at in whole columns, too.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlprobe.importers.console.repeats.meaning import Known
from rlprobe.importers.console.repeats.shapes import ANY, Template
from rlprobe.importers.console.repeats.skeletons import in_numbers, spans
from rlprobe.values import BoolArray, FloatArray, IntArray

_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


class Tokens:
    """The numbers of many lines.

    Args:
        data: the lines.
        number: which of its bytes are of numbers.
    """

    def __init__(self, data: bytes, number: BoolArray) -> None:
        self._data = data
        starts, ends = spans(number)
        self._edges = np.column_stack((starts, ends)).ravel().astype(np.int32)
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        self._first = np.searchsorted(starts, np.append(0, breaks + 1))

    def of(self, lines: Sequence[int]) -> IntArray:
        """The place of the first number of each line."""
        return np.asarray(self._first[np.asarray(lines, dtype=np.int64)], dtype=np.int64)

    def texts(self, places: IntArray) -> Any:
        """Numbers as they are spelled: an array of Arrow's strings."""
        import pyarrow as pa

        from rlprobe.store import arrow

        edges, data = pa.py_buffer(self._edges), pa.py_buffer(self._data)
        size = len(self._edges) - 1  # of the numbers, and of what stands between them
        every = pa.Array.from_buffers(pa.string(), size, [None, edges, data])
        return every.take(arrow.from_numpy(2 * places.ravel(), pa.int64()))

    def values(self, places: IntArray) -> FloatArray:
        """Numbers, in the shape of their places; ValueError where one is none."""
        from rlprobe.store import arrow

        return arrow.doubles(self.texts(places).cast("float64")).reshape(places.shape)

    def match(self, places: IntArray, pattern: str) -> BoolArray:
        """Which numbers are spelled as a pattern wants, in the shape of their places."""
        import pyarrow.compute as pc

        from rlprobe.store import arrow

        fits = pc.match_substring_regex(self.texts(places), f"^(?:{pattern})$")
        return arrow.flags(fits).reshape(places.shape)


def _leading(flags: BoolArray) -> int:
    """How many are true before the first that is not."""
    return len(flags) if flags.all() else int(np.argmin(flags))


@dataclass(frozen=True, slots=True)
class Slots:
    """Which number of a line stands under which name, and how the others are spelled.

    Attributes:
        keys: names in the order of the row; those of counters of a block are pairs.
        places: of the number of each name, from the first of its line; -1: it is always the same.
        factors: what each is multiplied with; the number itself where it is always the same.
        spelled: by the pattern of numbers, the places where one is wanted.
        literal: by the digits of a name, where they stand.
    """

    keys: tuple[Hashable, ...]
    places: IntArray
    factors: FloatArray
    spelled: dict[str, IntArray]
    literal: dict[str, IntArray]

    @property
    def names(self) -> tuple[str, ...]:
        """The names; empty where a number counts something beside them."""
        return tuple(key if isinstance(key, str) else "" for key in self.keys)

    def rows(self, tokens: Tokens, lines: Sequence[int]) -> FloatArray:
        """The numbers (lines x keys) of the first lines, as far as all are spelled as is wanted."""
        first = tokens.of(lines)
        first = first[: _leading(self._fit(tokens, first))]
        there = self.places >= 0
        at = first[:, None] + self.places[there]
        try:
            values = tokens.values(at)
        except ValueError:  # `1.2.3`
            at = at[: _leading(np.asarray(tokens.match(at, _NUMBER).all(axis=1)))]
            values = tokens.values(at)
        rows = np.tile(self.factors, (len(at), 1))
        rows[:, there] *= values
        return rows

    def _fit(self, tokens: Tokens, first: IntArray) -> BoolArray:
        """Which lines are spelled as is wanted."""
        fit = np.ones(len(first), np.bool_)
        for pattern, places in self.spelled.items():
            fit &= tokens.match(first[:, None] + places, pattern).all(axis=1)
        for digits, places in self.literal.items():
            fit &= tokens.match(first[:, None] + places, re.escape(digits)).all(axis=1)
        return fit


def slots_of(line: Known, template: Template) -> Slots | None:
    """Where the numbers of a line stand; None where that is not known by their order."""
    text = line.segment
    match = None if line.head.barred else template.match(text)
    if match is None:
        return None
    data = text.encode()
    starts, ends = spans(in_numbers(data))
    edges = zip(starts.tolist(), ends.tolist(), strict=True)
    place_of = {edge: place for place, edge in enumerate(edges)}
    groups = range(1, len(template.patterns) + 1)
    byte = str.__len__ if text.isascii() else lambda start: len(start.encode())
    at = [(byte(text[: match.start(g)]), byte(text[: match.end(g)])) for g in groups]
    if not all(edge in place_of for edge in at):
        return None
    places = [place_of[edge] for edge in at]
    spelled: dict[str, list[int]] = {}
    for pattern, place in zip(template.patterns, places, strict=True):
        if pattern != ANY:
            spelled.setdefault(pattern, []).append(place)
    literal: dict[str, list[int]] = {}
    for (start, end), place in place_of.items():
        if place not in places:
            literal.setdefault(data[start:end].decode(), []).append(place)
    own = zip(template.keys, template.groups, strict=True)
    placed = {key: places[group - 1] for key, group in own} | dict.fromkeys(template.fixed, -1)
    factors = {**dict.fromkeys(placed, 1.0), **template.scaled, **template.fixed}
    return Slots(
        tuple(placed),
        np.array(list(placed.values()), dtype=np.int64),
        np.array([factors[key] for key in placed]),
        {pattern: np.array(wanted) for pattern, wanted in spelled.items()},
        {digits: np.array(wanted) for digits, wanted in literal.items()},
    )
