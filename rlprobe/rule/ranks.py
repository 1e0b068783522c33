"""One metric of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.values import FloatArray, IntArray, Series


@dataclass(frozen=True, slots=True)
class RankGrid:
    """One metric of all ranks.

    Attributes:
        steps: steps at which any rank reported, shape (n,).
        ranks: shape (m,), ascending.
        values: as logged, shape (n, m); NaN where a rank did not report.
    """

    metric: str
    steps: IntArray
    ranks: IntArray
    values: FloatArray

    @classmethod
    def of(cls, metric: str, by_rank: Mapping[int, Series]) -> RankGrid:
        """The grid of a metric that at least one rank reported."""
        ranks = np.array(sorted(by_rank), dtype=np.int64)
        columns = [by_rank[rank] for rank in ranks.tolist()]
        steps = _all_steps([column.steps for column in columns])
        values = np.full((len(steps), len(ranks)), np.nan)
        for place, column in enumerate(columns):
            values[np.searchsorted(steps, column.steps), place] = column.values
        return cls(metric, steps, ranks, values)


def _all_steps(parts: Sequence[IntArray]) -> IntArray:
    first = parts[0]
    if all(part is first or np.array_equal(part, first) for part in parts):
        return first
    return np.unique(np.concatenate(parts))
