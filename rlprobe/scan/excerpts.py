"""What a reporter draws of a finding: its main metric around the onset, in few values.

A view that is long holds one value per stretch of rows; the stretches are those of every width
that a terminal may draw it in, so that no drawing can tell the excerpt from the whole series.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rlprobe.findings import Excerpt, Finding
from rlprobe.scan.context import Context
from rlprobe.store.frame import Frame
from rlprobe.values import FloatArray, Series

CELLS = range(10, 34)  # characters that a drawing on a terminal may take
_WHOLE = 512  # rows in view that are all held; more are held by stretches


def with_excerpts(findings: Iterable[Finding], context: Context) -> tuple[Finding, ...]:
    """The findings, each with its picture, and whether its first step is one that was logged."""
    ranks = context.run.ranks
    ranks = replace(ranks, load=functools.lru_cache(maxsize=4)(ranks.load))  # one rank each: often
    return tuple(_with_excerpt(finding, context, ranks) for finding in findings)


def _with_excerpt(finding: Finding, context: Context, ranks: Frame) -> Finding:
    series = _main_series(finding, context, ranks)
    first, last = finding.first_bad_step, finding.last_bad_step
    return replace(
        finding,
        excerpt=None if series is None else excerpt(series, first, last),
        onset_logged=first in context.steps,
    )


def _main_series(finding: Finding, context: Context, ranks: Frame) -> Series | None:
    """The first metric of the finding that was logged, of its own rank if it names one."""
    for metric in (*finding.metrics, *(item.metric for item in finding.evidence)):
        if finding.ranks and metric in ranks.names:
            rows, own = context.in_lineage(ranks), ranks.rank == finding.ranks[0]
            return ranks.series(metric, own if rows is None else rows & own)
        series = context.series(metric)
        if series is not None:
            return series
    return None


def excerpt(series: Series, first_bad: int, last_bad: int) -> Excerpt | None:
    """The series around an episode; None if it has no values from its first step on."""
    size = len(series)
    onset = int(np.searchsorted(series.steps, first_bad))
    if onset == size:
        return None
    end = max(onset + 1, int(np.searchsorted(series.steps, last_bad, side="right")))
    views = [in_view(onset, end - onset, size, cells) for cells in CELLS]
    start, stop = min(first for first, _ in views), max(last for _, last in views)
    before = median(series.values[start:onset], float(series.values[onset]))
    rows = list(range(start, stop)) if stop - start <= _WHOLE else _rows(start, onset, end, stop)
    values = series.values[rows]
    if len(rows) < stop - start:
        stretches = pairwise([*rows, stop])
        values = np.array([farthest(series.values[i:j], before) for i, j in stretches])
    return Excerpt(
        metric=series.name,
        steps=series.steps[rows],
        values=values,
        onset=rows.index(onset),
        rows=np.array(rows) - start,
        before=before,
    )


def _rows(start: int, onset: int, end: int, stop: int) -> list[int]:
    """First rows of stretches that add up to those of a drawing of any width."""
    sizes = {math.ceil((stop - start) / cells) for cells in CELLS}
    rows = {row for size in sizes for row in edges(start, onset, stop, size)}
    return sorted(rows | {min(end, stop - 1), stop - 1})


def in_view(onset: int, length: int, size: int, cells: int) -> tuple[int, int]:
    """Which rows around an episode a drawing of so many characters shows.

    Short episodes fill the cells with their surroundings; long ones get as much before them.
    """
    after = length + length // 4
    if after + cells // 3 <= cells:
        start = max(0, onset - min(2 * cells // 3, cells - after))
        return start, min(size, start + cells)
    return max(0, onset - length), min(size, onset + after)


def edges(start: int, onset: int, stop: int, size: int) -> list[int]:
    """Where each stretch of `size` rows begins; the onset begins one of its own."""
    rows = list(range(onset - (onset - start) // size * size, stop, size))
    return rows if rows[0] == start else [start, *rows]


def median(values: FloatArray, fallback: float) -> float:
    """The upper median of the finite values."""
    finite = values[np.isfinite(values)]
    middle = len(finite) // 2
    return float(np.partition(finite, middle)[middle]) if len(finite) else fallback


def farthest(values: FloatArray, level: float) -> float:
    """What stands for a stretch: a non-finite value, else the one farthest from a level."""
    wild = ~np.isfinite(values)
    if wild.any():
        return float(values[wild.argmax()])
    if not math.isfinite(level):
        return float(values[-1])
    with np.errstate(over="ignore"):
        return float(values[np.abs(values - level).argmax()])
