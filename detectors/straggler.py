"""STRAGGLER: one rank is slower than the others, or than its own past, and all wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Series,
    Severity,
    knob,
)

TIMES = (
    "step_time",
    "time/compute",
    "time/forward",
    "time/backward",
    "time/forward_backward",
    "time/generation",
    "time/update",
)
LEAST_LOG_SIGMA = 0.03
LASTING = 0.8
MERGE_ROWS = 10
WARMUP = 5  # rows of compilation and cold caches at the start
MOST_SLOW = 0.25  # share of ranks that may be slow for one to stand out


@dataclass(frozen=True, slots=True)
class _Slow:
    """A stretch over which a rank was slow in one timer.

    Attributes:
        value, usual: medians of the stretch: of the rank, and of what it is compared with.
        own: whether it is compared with its own past and not with the other ranks.
    """

    metric: str
    rank: int
    first: int
    last: int
    recovered: bool
    value: float
    usual: float
    own: bool


class Straggler(Detector):
    """One rank is slower than the others, or than its own past, and all wait for it.

    What it detects
        A rank whose step (or one phase of it) takes longer than that of the others for many steps
        in a row; with two or three ranks, longer than its own past while the others keep theirs.

    Why it matters
        In synchronous training the slowest rank sets the pace of all: one throttled device of 64
        costs as much as if all were throttled. A rank that slows down is often about to fail.

    How it is computed
        The ratio to the median over ranks at each step, where a rank is slow above `ratio` and
        outside the usual spread; most of `rows` rows in a row must be. The first rows are left out:
        compilation and cold caches. Where a quarter of the ranks or more is slow, none stands out.

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
    caused_by = ("RANK_OUTLIER", "LENGTH_EXPLOSION", "RESTART_DISCONTINUITY")

    ratio: float = knob(1.3, "times the others' time", minimum=1.05)
    rows: int = knob(10, "rows in a row", unit="rows", minimum=2)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per rank and stretch."""
        found: list[_Slow] = []
        reported = 0
        for metric in TIMES:
            by_rank = run.rank_series(metric)
            reported = max(reported, len(by_rank))
            if len(by_rank) > 1:
                found.extend(self._slow(metric, by_rank))
        for group in _groups(found, run.interval):
            yield _finding(run, group, reported)
        if reported < 2:
            raise Inconclusive("no times of single ranks")

    def _slow(self, metric: str, by_rank: Mapping[int, Series]) -> Iterator[_Slow]:
        ranks = sorted(by_rank)
        steps = np.unique(np.concatenate([by_rank[rank].steps for rank in ranks]))
        times = np.full((len(steps), len(ranks)), np.nan)
        for column, rank in enumerate(ranks):
            own = by_rank[rank]
            times[np.searchsorted(steps, own.steps), column] = own.values
        times[times <= 0] = np.nan
        logs = stats.logs(times, 1e-9)
        alone = len(ranks) < 4
        usual, sigma = _own_past(logs) if alone else _majority(logs)
        over = logs - usual
        slow = over > np.maximum(np.log(self.ratio), 4 * sigma)
        slow[:WARMUP] = False
        crowd = slow.sum(axis=1) > (1 if alone else max(1, MOST_SLOW * len(ranks)))
        slow[crowd] = False
        level = np.broadcast_to(usual, logs.shape)
        for column in np.flatnonzero(slow.sum(axis=0) >= self.rows * LASTING).tolist():
            mask = slow[:, column]
            for found in stats.persistent(mask, width=self.rows, share=LASTING, gap=MERGE_ROWS):
                yield _Slow(
                    metric,
                    ranks[column],
                    int(steps[found.start]),
                    int(steps[found.end]),
                    found.recovered,
                    stats.median(times[found.rows, column]),
                    float(np.exp(stats.median(level[found.rows, column]))),
                    alone,
                )


def _majority(logs: stats.FloatArray) -> tuple[stats.FloatArray, stats.FloatArray]:
    """Median over ranks at each step, and the usual spread around it."""
    center = _row_medians(logs)
    sigma = stats.SIGMA_PER_MAD * _row_medians(np.abs(logs - center[:, None]))
    usual = np.fmax(stats.past_baseline(sigma, warmup=3).center, LEAST_LOG_SIGMA)
    return center[:, None], usual[:, None]


def _own_past(logs: stats.FloatArray) -> tuple[stats.FloatArray, stats.FloatArray]:
    pasts = [stats.past_baseline(column, above=0.2, below=1.0, warmup=8) for column in logs.T]
    usual = np.stack([past.center for past in pasts], axis=1)
    spread = np.stack([past.robust_std for past in pasts], axis=1)
    return usual, np.fmax(spread, LEAST_LOG_SIGMA)


def _row_medians(values: stats.FloatArray) -> stats.FloatArray:
    ordered = np.sort(values, axis=1)  # NaN goes last
    last = np.maximum(np.isfinite(ordered).sum(axis=1) - 1, 0)
    row = np.arange(len(ordered))
    middle: stats.FloatArray = (ordered[row, last // 2] + ordered[row, (last + 1) // 2]) / 2
    return middle


def _groups(found: list[_Slow], interval: int) -> list[list[_Slow]]:
    """Stretches of one rank that overlap, whatever timer saw them."""
    groups: list[list[_Slow]] = []
    for item in sorted(found, key=lambda slow: (slow.rank, slow.first)):
        reach = MERGE_ROWS * interval
        last = groups[-1] if groups else []
        if last and last[0].rank == item.rank and item.first <= last[-1].last + reach:
            last.append(item)
        else:
            groups.append([item])
    return groups[: stats.MOST_EPISODES]


def _finding(run: RunContext, group: list[_Slow], ranks: int) -> Finding:
    worst = max(group, key=lambda slow: slow.value / max(slow.usual, 1e-9))
    recovered = all(slow.recovered for slow in group)
    first = min(slow.first for slow in group)
    compared = "its own past" if worst.own else "the median of the others"
    return Finding(
        detector="STRAGGLER",
        variant="own_past" if worst.own else "others",
        severity=Severity.WARNING,
        confidence=0.8,
        first_bad_step=first,
        last_bad_step=max(slow.last for slow in group) if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=(
            f"Rank {worst.rank} of {ranks} is {worst.value / max(worst.usual, 1e-9):.2g} times as "
            f"slow as {compared} from step {first:,} on: {worst.metric} "
            f"{stats.number(worst.value)} s against {stats.number(worst.usual)} s."
        ),
        evidence=tuple(
            Evidence(
                slow.metric,
                slow.first,
                slow.value,
                slow.usual,
                rank=slow.rank,
                note="median of the stretch, in seconds",
            )
            for slow in group
        ),
        remedies=(
            f"look at the device of rank {worst.rank}: clocks, temperature, ECC errors, its link",
            "compare the lengths of its batches with those of the other ranks",
            "move that rank to another machine at the next restart",
        ),
        metrics=tuple(dict.fromkeys(slow.metric for slow in group)),
        ranks=(worst.rank,),
    )
