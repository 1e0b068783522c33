"""A series as one line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlprobe import schema

if TYPE_CHECKING:
    from rlprobe.values import Series

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
        before: median of the values before the onset in view; the first value if there is none.
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


def around(series: Series, first_bad: int, last_bad: int, cells: int = 33) -> Onset | None:
    """The series around an onset in at most `cells` characters; None if it has no values there.

    Short episodes are drawn value by value. Long ones are squeezed: each character then shows the
    value of its stretch farthest from the level before the onset, so that a spike survives.
    """
    steps, values = series.steps.tolist(), series.values.tolist()
    onset = next((i for i, step in enumerate(steps) if step >= first_bad), None)
    if onset is None:
        return None
    end = max(onset, sum(step <= last_bad for step in steps) - 1)
    start, stop = _in_view(onset, end - onset + 1, len(values), cells)
    before = _median([v for v in values[start:onset] if math.isfinite(v)], values[onset])
    size = max(1, math.ceil((stop - start) / cells))
    edges = _edges(start, onset, stop, size)
    ends = [*edges[1:], stop]
    buckets = [values[i:j] for i, j in zip(edges, ends, strict=True)]
    entry = schema.metric(series.name)
    drawn = [_farthest(bucket, before) for bucket in buckets]
    return Onset(
        line=sparkline(drawn, log=entry is not None and entry.scale == "log"),
        before=before,
        worst=_farthest(values[onset : end + 1], before),
        caret=edges.index(onset),
        first_step=steps[start],
        last_step=steps[stop - 1],
    )


def _in_view(onset: int, length: int, size: int, cells: int) -> tuple[int, int]:
    """Short episodes fill the cells with their surroundings; long ones get as much before them."""
    after = length + length // 4
    if after + cells // 3 <= cells:
        start = max(0, onset - min(2 * cells // 3, cells - after))
        return start, min(size, start + cells)
    return max(0, onset - length), min(size, onset + after)


def _edges(start: int, onset: int, stop: int, size: int) -> list[int]:
    """Where each character's stretch begins; the onset begins one of its own."""
    edges = list(range(onset - (onset - start) // size * size, stop, size))
    return edges if edges[0] == start else [start, *edges]


def _median(values: list[float], fallback: float) -> float:
    return sorted(values)[len(values) // 2] if values else fallback


def _farthest(values: list[float], level: float) -> float:
    wild = [value for value in values if not math.isfinite(value)]
    if wild:
        return wild[0]
    return max(values, key=lambda value: abs(value - level)) if math.isfinite(level) else values[-1]
