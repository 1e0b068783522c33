"""Numbers of lines that have one skeleton, as columns: line by line only where that is needed.

Which number of a line is told under which name is known from the template of its shape; that the
other numbers are spelled as the template wants them is looked at in whole columns, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlprobe.importers.console.meaning import RowHead
from rlprobe.importers.console.shapes import ANY, Template
from rlprobe.importers.console.skeletons import in_numbers, spans
from rlprobe.values import BoolArray, FloatArray, IntArray


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
        return np.asarray(self._first[np.asarray(lines)], dtype=np.int64)

    def texts(self, places: IntArray) -> Any:
        """Numbers as they are spelled: an array of Arrow's strings."""
        import pyarrow as pa

        edges, data = pa.py_buffer(self._edges), pa.py_buffer(self._data)
        size = len(self._edges) - 1  # of the numbers, and of what stands between them
        every = pa.Array.from_buffers(pa.string(), size, [None, edges, data])
        return every.take(pa.array(2 * places.ravel()))

    def values(self, places: IntArray) -> FloatArray:
        """Numbers, in the shape of their places; ValueError where one is none."""
        values = self.texts(places).cast("float64").to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64).reshape(places.shape)


@dataclass(frozen=True, slots=True)
class Slots:
    """Which number of a line stands under which name, and how the others are spelled.

    Attributes:
        names: in the order of the row.
        places: of the number of each name, from the first of its line; -1: it is always the same.
        factors: what each is multiplied with; the number itself where it is always the same.
        spelled: by the pattern of numbers, the places where one is wanted.
        literal: by the digits of a name, where they stand.
    """

    names: tuple[str, ...]
    places: IntArray
    factors: FloatArray
    spelled: dict[str, IntArray]
    literal: dict[str, IntArray]

    def rows(self, tokens: Tokens, lines: Sequence[int]) -> FloatArray | None:
        """The numbers of lines, (lines x names); None where one is spelled in another way."""
        first = tokens.of(lines)
        if not self._fit(tokens, first):
            return None
        told = self.places >= 0
        rows = np.broadcast_to(self.factors, (len(lines), len(self.names))).copy()
        try:
            values = tokens.values(first[:, None] + self.places[told])
        except ValueError:
            return None
        rows[:, told] = np.where(rows[:, told] == 1.0, values, values * rows[:, told])
        return rows

    def _fit(self, tokens: Tokens, first: IntArray) -> bool:
        import pyarrow.compute as pc

        for pattern, places in self.spelled.items():
            texts = tokens.texts(first[:, None] + places)
            if not pc.all(pc.match_substring_regex(texts, f"^{pattern}$")).as_py():
                return False
        for digits, places in self.literal.items():
            if not pc.all(pc.equal(tokens.texts(first[:, None] + places), digits)).as_py():
                return False
        return True


def slots_of(template: Template, text: str) -> Slots | None:
    """Where the numbers of a row stand; None where that is not known by their order.

    Args:
        text: a line of the template.
    """
    head, match = template.head, template.match(text)
    if match is None or template.unchecked or not isinstance(head, RowHead) or head.barred:
        return None
    data = text.encode()
    starts, ends = spans(in_numbers(data))
    place_of = {span: place for place, span in enumerate(zip(starts, ends, strict=True))}
    groups = [
        place_of.get((_bytes(text, match.start(group)), _bytes(text, match.end(group))))
        for group in range(1, len(template.patterns) + 1)
    ]
    if None in groups or not template.groups:
        return None
    spelled: dict[str, list[int]] = {}
    for pattern, place in zip(template.patterns, groups, strict=True):
        if pattern != ANY:
            spelled.setdefault(pattern, []).append(place or 0)
    literal: dict[str, list[int]] = {}
    for (start, end), place in place_of.items():
        if place not in groups:
            literal.setdefault(data[start:end].decode(), []).append(place)
    told = {
        key: groups[group - 1] or 0
        for key, group in zip(template.keys, template.groups, strict=True)
    }
    told |= dict.fromkeys(template.fixed, -1)
    factors = [
        template.fixed[key] if key in template.fixed else template.scaled.get(key, 1.0)
        for key in told
    ]
    return Slots(
        tuple(map(str, told)),
        np.array(list(told.values())),
        np.array(factors),
        {pattern: np.array(places) for pattern, places in spelled.items()},
        {digits: np.array(places) for digits, places in literal.items()},
    )


def _bytes(text: str, end: int) -> int:
    return end if text.isascii() else len(text[:end].encode())
