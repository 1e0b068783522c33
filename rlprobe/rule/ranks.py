"""One metric of all ranks, and what each rank is compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.errors import Inconclusive
from rlprobe.rule.signals import Signal
from rlprobe.values import BoolArray, FloatArray, IntArray, Series


@dataclass(frozen=True, slots=True)
class RankGrid:
    """One metric of all ranks.

    Attributes:
        steps: steps at which any rank reported, shape (n,).
        ranks: shape (m,), ascending.
        values: as logged, shape (n, m); NaN where a rank did not report.
    """

    run: RunContext
    metric: str
    steps: IntArray
    ranks: IntArray
    values: FloatArray

    @classmethod
    def each(cls, run: RunContext, metrics: Iterable[str], *, lacking: str) -> Iterator[RankGrid]:
        """The grid of every metric that two ranks or more reported, one after the other.

        Raises:
            Inconclusive: there is none; `lacking` says of what.
        """
        alone = True
        for metric in metrics:
            by_rank = run.rank_series(metric)
            if len(by_rank) > 1:
                alone = False
                yield cls.of(run, metric, by_rank)
        if alone:
            raise Inconclusive(lacking)

    @classmethod
    def of(cls, run: RunContext, metric: str, by_rank: Mapping[int, Series]) -> RankGrid:
        """The grid of a metric that at least one rank reported."""
        ranks = np.array(sorted(by_rank), dtype=np.int64)
        columns = [by_rank[rank] for rank in ranks.tolist()]
        steps = all_steps([column.steps for column in columns])
        values = np.full((len(steps), len(ranks)), np.nan)
        for place, column in enumerate(columns):
            values[np.searchsorted(steps, column.steps), place] = column.values
        return cls(run, metric, steps, ranks, values)

    def of_rank(self, column: int, values: FloatArray | None = None) -> Signal:
        """The metric of one rank, or others of its values; NaN where it did not report."""
        own = self.values[:, column] if values is None else values
        return Signal(self.run, self.metric, self.steps, own, int(self.ranks[column]))

    def with_values(self, values: FloatArray) -> RankGrid:
        """The same grid with other values, e.g. on another scale."""
        return dataclasses.replace(self, values=values)

    def majority(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What most ranks have in common at each step, of values that are finite or NaN.

        Returns:
            The median over ranks, their robust standard deviation around it, and the level which
            that deviation had before (NaN where too little was known): each of shape (n, 1).
        """
        center = stats.row_medians(self.values)[:, None]
        spread = stats.SIGMA_PER_MAD * stats.row_medians(np.abs(self.values - center))
        usual = stats.past_baseline(spread, warmup=3).center
        return center, spread[:, None], usual[:, None]

    def shared(self) -> tuple[FloatArray, BoolArray]:
        """The value that more than half of the ranks have at each step, to the last bit.

        Returns:
            That value, NaN where there is none, shape (n,); and which ranks have another, finite
            one, shape (n, m).
        """
        ordered = np.sort(stats.finite(self.values), axis=1)  # NaN goes last
        known = np.isfinite(ordered).sum(axis=1)
        middle = ordered[np.arange(len(ordered)), np.maximum(known - 1, 0) // 2]
        alike = (ordered == middle[:, None]).sum(axis=1)
        common = np.where((known > 1) & (2 * alike > known), middle, np.nan)
        apart = np.isfinite(self.values) & (self.values != common[:, None])
        return common, apart & np.isfinite(common)[:, None]

    def own_pasts(
        self, *, above: float = math.inf, below: float = math.inf
    ) -> tuple[FloatArray, FloatArray]:
        """Level and robust standard deviation of each rank's own past, each of shape (n, m).

        Args:
            above, below: how far off its level a rank is still learnt from.
        """
        pasts = [
            stats.past_baseline(own, above=above, below=below, warmup=8) for own in self.values.T
        ]
        level = np.stack([past.center for past in pasts], axis=1)
        return level, np.stack([past.robust_std for past in pasts], axis=1)


def all_steps(parts: Sequence[IntArray]) -> IntArray:
    """Steps that are in any of the parts, ascending."""
    first = parts[0]
    if all(part is first or np.array_equal(part, first) for part in parts):
        return first
    return stats.distinct(np.concatenate(parts))
