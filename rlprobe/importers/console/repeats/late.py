"""What is printed behind every row of a stretch under names of its own: it is of the row's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.regular import Regular
from rlprobe.importers.console.repeats.columns import Tokens
from rlprobe.importers.console.repeats.meaning import Head, PartHead
from rlprobe.importers.console.repeats.sieve import Like
from rlprobe.values import FloatArray, IntArray

_MOST_TIMES = 1_000  # that a name comes behind one row


def is_late(head: Head) -> bool:
    """Whether a line adds names and numbers to the step of the row before it."""
    return (
        isinstance(head, PartHead)
        and head.kind == "labels"
        and not (head.counts or head.redrawn or head.barred)
        and head.rank is None
    )


@dataclass(frozen=True, slots=True)
class _Lines:
    """Those of one skeleton.

    Attributes:
        places: where each stands.
        behind: behind which row.
        sure: which of the names are known, or stand in a table.
    """

    names: tuple[str, ...]
    places: Sequence[int]
    behind: IntArray
    values: FloatArray
    sure: frozenset[str]
    measures: bool


class Late:
    """Lines behind the rows of a stretch.

    Args:
        lines: of each skeleton.
        size: rows, the one before the first of the stretch included.
    """

    def __init__(self, lines: Sequence[_Lines], size: int) -> None:
        self._lines = lines
        self._size = size

    def fits(self, *, stepped: bool) -> bool:
        """Whether it is plain what becomes of them.

        Args:
            stepped: whether the rows tell their steps.
        """
        names = [name for lines in self._lines for name in lines.names]
        if len(names) > len(set(names)) or "" in names:
            return False
        every = np.arange(self._size)
        for lines in self._lines:
            if lines.sure and not (stepped and np.array_equal(lines.behind, every)):
                return False
            if not lines.sure and console_line.meanings(lines.names):
                return False
            if np.bincount(lines.behind, minlength=1).max() > _MOST_TIMES:
                return False
        return True

    def beside(self, names: Sequence[str]) -> tuple[tuple[str, ...], FloatArray, int] | None:
        """Rows beside those of the stretch, if any, and of how many lines each is made.

        Args:
            names: of the rows of the stretch.
        """
        sure = [lines for lines in self._lines if lines.sure]
        if not any(lines.measures for lines in sure):
            return None
        columns = {
            name: lines.values[:, at]
            for lines in sure
            for at, name in enumerate(lines.names)
            if name in lines.sure and name not in names
        }
        if not columns:
            return None
        count = sum(lines.measures for lines in sure)
        return tuple(columns), np.column_stack(list(columns.values())), count

    def samples(self) -> tuple[int, int]:
        """How many lines of unknown names came several times behind one row; the first of them."""
        count, first = 0, (self._size, -1)
        for lines in self._lines:
            several = np.bincount(lines.behind)[lines.behind] > 1
            if not lines.measures and several.any():
                count += int(several.sum())
                at = int(np.argmax(several))
                first = min(first, (int(lines.behind[at]), lines.places[at]))
        return count, first[1]

    def tell(self, regular: Regular, steps: Sequence[int]) -> None:
        """Give numbers under unknown names to those that come regularly.

        Args:
            steps: of the rows, that before the first of the stretch included.
        """
        measured = any(lines.measures for lines in self._lines)
        for lines in self._lines:
            rows, counts = np.unique(lines.behind, return_counts=True)
            at = [steps[row] for row in rows.tolist()]
            for place, name in enumerate(lines.names):
                if name in lines.sure and measured:
                    continue
                sums = np.bincount(lines.behind, weights=lines.values[:, place])[rows]
                repeated = bool((counts > 1).any())
                regular.add_column(name, at, (sums / counts).tolist(), repeated=repeated)


def late_of(
    places_of: Mapping[Like, Sequence[int]], rows: Sequence[int], tokens: Tokens
) -> Late | None:
    """Lines behind rows; None where some number in them is spelled in another way.

    Args:
        places_of: where the lines of each skeleton stand.
        rows: where the rows stand; nothing counts that is behind the last of them.
    """
    known: list[_Lines] = []
    for like, lines in places_of.items():
        places = [place for place in lines if place < rows[-1]]
        if like.line is None or not places:
            continue
        head, slots = like.line.head, like.slots_in(like.line)
        if slots is None or not isinstance(head, PartHead):
            return None
        names, values = slots.names, slots.rows(tokens, places)
        if len(values) < len(places):
            return None
        sure = names if head.panel else filter(console_line.is_measurement, names)
        behind = np.searchsorted(rows, places) - 1
        known.append(_Lines(names, places, behind, values, frozenset(sure), head.measures))
    return Late(known, len(rows) - 1)
