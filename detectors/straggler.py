"""STRAGGLER: one rank is slower than the others, or than its own past, and all wait for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import SINCE, Judged, Period, RankGrid, Stretch, factor, finding, number, together

PHASES = ("compute", "forward", "backward", "forward_backward", "generation", "update")
TIMES = ("step_time", *(f"time/{phase}" for phase in PHASES))


class Straggler(Detector):
    """One rank is slower than the others, or than its own past, and all wait for it.

    What it detects
        A rank whose step (or one phase of it) takes longer than that of the others for many steps
        in a row; with two or three ranks, longer than its own past while the others keep theirs.

    Why it matters
        In synchronous training the slowest rank sets the pace of all: one throttled device of 64
        costs as much as if all were throttled. A rank that slows down is often about to fail.

    How it is computed
        A rank is slow above `ratio` times what it is compared with and out of the usual spread;
        most of `rows` rows in a row must be. The first rows are left out: compilation and cold
        caches. Where more than a quarter of the ranks is slow, none stands out. Stretches of one
        rank that overlap are one finding, whatever timer saw them.

    What to do
        Look at the machine: clocks and temperature, ECC errors, its network link, another job on
        it, its data loader. Compare the lengths of its batches with those of the others.

    When it is wrong
        Timers that include the wait for the others show nothing: all ranks then agree. A rank that
        writes checkpoints or evaluates is slow on single steps, which is no finding.

    References
        Jiang et al., MegaScale (NSDI 2024), on stragglers. Lin et al., Understanding Stragglers in
        Large Model Training (2025).
    """

    id = "STRAGGLER"
    severity = Severity.WARNING
    facts_only = True
    needs = tuple(("ranks", name) for name in TIMES)
    stage = "machine"
    caused_by = ("RANK_OUTLIER", "LENGTH_EXPLOSION", "RESTART_DISCONTINUITY")

    ratio: float = knob(1.3, "times the others' time", minimum=1.05)
    rows: int = knob(10, "rows in a row", unit="rows", minimum=2)

    most_slow = fixed(0.25, "share of the ranks that may be slow at once")
    majority = fixed(4, "ranks of which most tell what is usual")
    cold = fixed(5, "rows of compilation and cold caches at the start")
    merge_rows = fixed(10, "rows between two stretches of one rank that do not part them")
    least_std = fixed(0.03, "of the logarithm: no times are steadier")
    own_growth = fixed(0.2, "of the logarithm, above its past: a rank so slow is not learnt from")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per rank and stretch."""
        slow: list[Stretch] = []
        ranks = 0
        for grid in RankGrid.each(run, TIMES, lacking="no times of single ranks"):
            slow.extend(self._slow(grid))
            ranks = max(ranks, len(grid.ranks))
        slow.sort(key=lambda stretch: (_rank(stretch), stretch.first))
        by_rank = (list(stretches) for _, stretches in itertools.groupby(slow, key=_rank))
        reach = self.merge_rows * run.interval
        groups = (group for stretches in by_rank for group in together(stretches, reach))
        for group in itertools.islice(groups, stats.MOST_EPISODES):
            yield self._finding(group, ranks)

    @rule("others")
    def _others(self, logs: RankGrid) -> tuple[stats.FloatArray, stats.FloatArray]:
        """With four ranks or more: slower than the median over ranks at that step, by four times
        the spread that ranks used to have around it. A warning.
        """
        level, _, std = logs.majority()
        return level, std

    @rule("own_past")
    def _own_past(self, logs: RankGrid) -> tuple[stats.FloatArray, stats.FloatArray]:
        """With two or three ranks: slower than its own past by four times its spread, while no
        other is. A warning.
        """
        return logs.own_pasts(above=self.own_growth, below=1)

    def _slow(self, grid: RankGrid) -> Iterator[Stretch]:
        times = grid.with_values(np.where(grid.values > 0, grid.values, np.nan))
        logs = grid.with_values(stats.logs(times.values, 1e-9))
        many = len(grid.ranks) >= self.majority
        level, std = self._others(logs) if many else self._own_past(logs)
        far = np.maximum(np.log(self.ratio), 4 * np.fmax(std, self.least_std))
        slow = logs.values - level > far
        slow[: self.cold] = False
        slow[slow.sum(axis=1) > max(1, self.most_slow * len(grid.ranks))] = False
        expected = np.broadcast_to(np.exp(level), slow.shape)
        for column in np.flatnonzero(slow.any(axis=0)).tolist():
            judged = Judged(times.of_rank(column), slow[:, column], level=expected[:, column])
            yield from judged.persistent(self.rows, gap=self.merge_rows)

    def _finding(self, group: list[Stretch], ranks: int) -> Finding:
        many = ranks >= self.majority
        worst = max(group, key=lambda stretch: stretch.usual / stretch.expected)
        rank, usual, expected = _rank(worst), worst.usual, worst.expected
        compared = "the median of the others" if many else "its own past"
        return finding(
            self,
            Period.over(group),
            f"Rank {rank} of {ranks} is {factor(usual / expected)} times as slow as "
            f"{compared}{SINCE}: {worst.signal.metric} {number(usual)} s against "
            f"{number(expected)} s.",
            variant="others" if many else "own_past",
            evidence=map(_evidence, group),
            remedies=(
                f"look at the device of rank {rank}: clocks, temperature, ECC errors, its link",
                "compare the lengths of its batches with those of the other ranks",
                "move that rank to another machine at the next restart",
            ),
            ranks=(rank,),
        )


def _rank(stretch: Stretch) -> int:
    return stretch.signal.rank or 0


def _evidence(stretch: Stretch) -> Evidence:
    note = "median while it was slow, in seconds"
    return Evidence(
        stretch.signal.metric, None, stretch.usual, stretch.expected, _rank(stretch), note
    )
