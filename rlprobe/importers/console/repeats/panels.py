"""Panels that follow each other, each with the step of its row: taken as columns.

What a panel says is decided by `Blocks` alone. It is given one panel whose numbers know where they
stand, and what becomes of them tells which number of which line is which metric of the row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.importers.console.blocks import Blocks
from rlprobe.importers.console.repeats.columns import Tokens
from rlprobe.importers.console.repeats.meaning import PartHead
from rlprobe.importers.console.repeats.sieve import Like
from rlprobe.values import FloatArray

Place = tuple[int, Hashable]  # of a number: in which line of the panel, under which key


class _Placed(float):
    """A number that knows where it stands."""

    place: Place = (0, "")


@dataclass(frozen=True, slots=True)
class Panel:
    """What the lines of a panel say.

    Attributes:
        lines: of which skeletons they are.
        names: of the metrics.
        places: of the number of each.
        step: of the step.
    """

    lines: Sequence[Like]
    names: tuple[str, ...]
    places: Sequence[Place]
    step: Place

    def rows(self, tokens: Tokens, starts: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Steps and values (panels x names) of the first panels, as far as all are spelled alike.

        Args:
            starts: the first line of each panel.
        """
        columns: dict[Place, FloatArray] = {}
        size = len(starts)
        for at in sorted({line for line, _ in (self.step, *self.places)}):
            line = self.lines[at].line
            slots = None if line is None else self.lines[at].slots_in(line)
            if slots is None:
                return np.empty(0), np.empty((0, len(self.names)))
            rows = slots.rows(tokens, [start + at for start in starts[:size]])
            size = len(rows)
            columns |= {(at, key): rows[:, place] for place, key in enumerate(slots.keys)}
        values = [columns[place][:size] for place in self.places]
        return columns[self.step][:size], np.column_stack(values)


def panel_of(lines: Sequence[Like], blocks: Blocks) -> Panel | None:
    """What lines of these skeletons say between two rows; None where it is more than one row."""
    counters: dict[str, Place] = {}
    for at, like in enumerate(lines):
        if like.line is None or not isinstance(like.line.head, PartHead):
            return None
        numbers: dict[Hashable, float] = {}
        for key, value in like.line.numbers.items():
            numbers[key] = placed = _Placed(value)
            placed.place = at, key
            if isinstance(key, tuple):
                counters[str(key[1])] = placed.place
        if blocks.ready:
            return None
        blocks.take(like.line.head.labelled(numbers), 0, "")
    if len(blocks.ready) != 1 or blocks.ready[0].where != "own":
        return None
    metrics = blocks.ready.pop().metrics
    places = [value.place for value in metrics.values() if isinstance(value, _Placed)]
    steps = set(counters.values()) - set(places)
    if blocks.holds or len(places) < len(metrics) or len(steps) != 1:
        return None
    return Panel(lines, tuple(metrics), places, steps.pop())
