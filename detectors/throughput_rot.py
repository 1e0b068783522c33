"""THROUGHPUT_ROT: steps take longer and longer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import Levels, Period, Signal, factor, finding, number


class ThroughputRot(Detector):
    """Steps take longer and longer, and longer completions explain it, or do not.

    What it detects
        A step time that creeps up over the run, compared with the lengths of completions.

    Why it matters
        A run that slows down by half costs twice as much, and nobody looks at step times. If the
        lengths explain it, the policy writes more; if not, something leaks: memory, a cache, a data
        loader, a log that is written in full each time.

    How it is computed
        Medians of ten blocks of rows, without the first rows. The last block must take `ratio`
        times as long as the first, and the blocks must rise steadily (Spearman's rank correlation
        with time). It begins where the step time left that of the beginning for good. It is info,
        and a warning where steps take `multiple` times as long and lengths do not explain it.

    What to do
        If length explains it, decide whether the longer answers are better. If not, profile one
        slow step: memory fragmentation, pre-emption in the engine, the data loader, logging.

    When it is wrong
        Other jobs on the machine. A curriculum with longer prompts, where prompt lengths are not
        logged. Nothing is wrong with what is learnt.

    References
        Sculley et al., Hidden Technical Debt in Machine Learning Systems (2015).
    """

    id = "THROUGHPUT_ROT"
    severity = Severity.WARNING
    facts_only = True
    needs = (("step_time",),)
    stage = "rollout"
    caused_by = ("LENGTH_EXPLOSION", "KV_CACHE_PRESSURE", "STRAGGLER")

    ratio: float = knob(1.5, "times the step time of the start", minimum=1.1)

    blocks = fixed(10, "of rows, whose medians are compared")
    warmup = fixed(0.05, "share of the rows that compile and fill caches, and are left out")
    points = fixed(40, "rows that are needed after those")
    rising = fixed(0.7, "rank correlation of the blocks with time")
    longer = fixed(1.05, "times the length of the start, below which completions did not grow")
    multiple = fixed(2, "times the step time of the start, that is a warning if unexplained")
    left = fixed(0.15, "part of the slowdown, on a log scale, below which it had not begun")
    explained = fixed(0.7, "part of the slowdown, on a log scale, that length must explain")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """At most one finding: over the whole run."""
        time = Signal.of(run, "step_time", above=0)
        cut = int(self.warmup * len(time)) + 1
        time.require(self.points + cut)
        levels = self._medians(time.values[cut:])
        slower = float(levels[-1] / levels[0])
        if slower >= self.ratio and _rank_correlation(levels) >= self.rising:
            first = self._onset(time.where(np.arange(len(time)) >= cut), float(levels[0]), slower)
            lengths = self._medians(time.beside(LENGTH)[cut:])
            longer = float(lengths[-1] / lengths[0]) if lengths[0] > 0 else math.nan
            period = Period(run, first, int(time.steps[-1]), recovered=False)
            yield self._finding(period, levels, longer)

    def _onset(self, time: Signal, begun: float, slower: float) -> int:
        """The step from which on steps are slower than at the beginning."""
        stretch = Levels.of(time).above(begun * slower**self.left)
        return int(time.steps[0]) if stretch is None else stretch.first

    def _medians(self, values: stats.FloatArray) -> stats.FloatArray:
        return np.array([stats.median(block) for block in np.array_split(values, self.blocks)])

    @rule("length")
    def _length(self, slower: float, longer: float) -> bool:
        """Completions grew by most of it, on a log scale. The policy writes more."""
        return bool(longer >= slower**self.explained)

    @rule("unexplained")
    def _unexplained(self, slower: float, longer: float) -> bool:
        """They did not, or their lengths are not logged. Something leaks."""
        return not self._length(slower, longer)

    def _severity(self, slower: float, *, explained: bool) -> Severity:
        return Severity.WARNING if slower >= self.multiple and not explained else Severity.INFO

    def _finding(self, period: Period, levels: stats.FloatArray, longer: float) -> Finding:
        start, end = float(levels[0]), float(levels[-1])
        explained = self._length(end / start, longer)
        grew = f"completions grew{'' if explained else ' only'} {factor(longer)} times as long"
        if longer < self.longer:
            grew = "completions grew no longer"
        if math.isnan(longer):
            grew = "completion lengths are not logged"
        return finding(
            self,
            period,
            f"Steps became {factor(end / start)} times as slow, {number(start)} s -> "
            f"{number(end)} s; {grew}{', which explains it' if explained else ''}.",
            variant="length" if explained else "unexplained",
            severity=self._severity(end / start, explained=explained),
            confidence=0.7,
            evidence=(
                Evidence("step_time", None, end, start, note=COMPARED),
                None if math.isnan(longer) else Evidence(LENGTH, None, longer, 1.0, note=GREW),
            ),
            remedies=WRITES_MORE if explained else LEAKS,
            metrics=("step_time",),
        )


LENGTH = "completion_length_mean"
COMPARED = "median of the last tenth against the first, in seconds"
GREW = "growth over the same rows"
WRITES_MORE = ("decide whether the longer completions are better", "cap or penalise length")
LEAKS = (
    "profile one slow step: pre-emption, memory fragmentation, data loader, logging",
    "watch host and device memory over the run for a leak",
)


def _rank_correlation(levels: stats.FloatArray) -> float:
    """Spearman's, of the levels with time; equal levels share a rank."""
    from scipy.stats import spearmanr

    result: Any = spearmanr(levels, np.arange(len(levels)))
    return float(result.statistic)
