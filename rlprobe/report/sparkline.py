"""A series as one line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rlprobe import schema
from rlprobe.findings import Excerpt
from rlprobe.scan.excerpts import CELLS, edges, farthest, in_view, median

BLOCKS = "▁▂▃▄▅▆▇█"
NON_FINITE = "!"
_DECADES = 2.0  # a positive metric that spans more than this is drawn on a log scale


def sparkline(values: Sequence[float], *, log: bool = False) -> str:
    """One character per value, lowest to highest; NaN and Inf are `!`."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return NON_FINITE * len(values)
    low, high = min(finite), max(finite)
    if log and low > 0 and math.log10(high / low) > _DECADES:
        return sparkline([math.log10(value) if value > 0 else value for value in values])
    return "".join(_block(value, low, high) for value in values)


def _block(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return NON_FINITE
    if high / 2 - low / 2 <= 1e-9 * max(abs(low), abs(high)):
        return BLOCKS[0]
    share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the range may overflow
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]


@dataclass(frozen=True, slots=True)
class Onset:
    """The stretch of a series around the onset of an episode, ready to draw.

    Attributes:
        before: median of the values before the onset in view; the value at the onset if there are
            none.
        worst: the value of the episode farthest from `before`; a non-finite one wins.
        caret: index of the character under which the onset lies.
        first_step, last_step: what is in view.
    """

    line: str
    before: float
    worst: float
    caret: int
    first_step: int
    last_step: int


def around(excerpt: Excerpt, last_bad: int, cells: int = CELLS[-1]) -> Onset:
    """An excerpt in at most `cells` characters, `cells` being one of `CELLS`.

    Short episodes are drawn value by value. Long ones are squeezed: each character then shows the
    value of its stretch farthest from the level before the onset, so that a spike survives.
    """
    values = excerpt.values
    rows = [*excerpt.rows.tolist(), int(excerpt.rows[-1]) + 1]
    onset, size = excerpt.onset, rows[-1]
    end = max(onset + 1, int(np.searchsorted(excerpt.steps, last_bad, side="right")))
    first, last = in_view(rows[onset], rows[end] - rows[onset], size, cells)
    start, stop = rows.index(first), rows.index(last)
    before = median(values[start:onset], float(values[onset])) if start else excerpt.before
    stretches = edges(first, rows[onset], last, max(1, math.ceil((last - first) / cells)))
    places = [rows.index(row) for row in (*stretches, last)]
    entry = schema.metric(excerpt.metric)
    drawn = [farthest(values[i:j], before) for i, j in pairwise(places)]
    return Onset(
        line=sparkline(drawn, log=entry is not None and entry.scale == "log"),
        before=before,
        worst=farthest(values[onset:end], before),
        caret=stretches.index(rows[onset]),
        first_step=int(excerpt.steps[start]),
        last_step=int(excerpt.steps[stop - 1]),
    )
