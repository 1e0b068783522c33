"""THROUGHPUT_ROT: steps take longer and longer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    knob,
)

LEAST_ROWS = 40
WARMUP = 0.05  # share of the rows that compile and fill caches
BLOCKS = 10
RISING = 0.7  # rank correlation of the block levels with time
EXPLAINED = 0.7  # share of the slowdown (of its logarithm) that length must explain


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
        times as long as the first, and the blocks must rise steadily (rank correlation 0.7). Length
        explains it if completions grew by at least seven tenths of it, on a log scale.

    What to do
        If length explains it, decide whether the longer answers are better. If not, profile one
        slow step: memory fragmentation, pre-emption in the engine, the data loader, logging.

    When it is wrong
        Other jobs on the machine. A curriculum with longer prompts, where prompt lengths are not
        logged. It is only info: nothing is wrong with what is learnt.

    References
        Sculley et al., Hidden Technical Debt in Machine Learning Systems (2015).
    """

    id = "THROUGHPUT_ROT"
    severity = Severity.INFO
    facts_only = True
    needs = (("step_time",),)
    caused_by = ("LENGTH_EXPLOSION", "KV_CACHE_PRESSURE", "STRAGGLER")

    ratio: float = knob(1.5, "times the step time of the start", minimum=1.1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """At most one finding: over the whole run."""
        series = run.series("step_time")
        if series is None:
            return
        steps, times = stats.measured(series, above=0.0)
        cut = int(WARMUP * len(times)) + 1
        if len(times) - cut < LEAST_ROWS:
            raise Inconclusive(f"{len(times)} rows, needs {LEAST_ROWS + cut}")
        levels = _levels(times[cut:])
        growth = levels[-1] / levels[0]
        if growth >= self.ratio and _rising(levels):
            yield _finding(run, steps[cut:], levels, growth)


def _levels(values: stats.FloatArray) -> stats.FloatArray:
    return np.array([stats.median(block) for block in np.array_split(values, BLOCKS)])


def _rising(levels: stats.FloatArray) -> bool:
    order = np.argsort(np.argsort(levels))
    return bool(np.corrcoef(order, np.arange(len(levels)))[0, 1] >= RISING)


def _finding(
    run: RunContext, steps: stats.IntArray, levels: stats.FloatArray, growth: float
) -> Finding:
    blocks = np.array_split(steps, BLOCKS)
    slow = int(np.argmax(levels > levels[0] * np.sqrt(growth)))
    first = int(blocks[slow][0])
    length = _length_growth(run, blocks)
    known = np.isfinite(length)
    explains = known and np.log(length) >= EXPLAINED * np.log(growth)
    why = (
        f"completions grew {length:.2g} times as long, which explains it"
        if explains
        else f"completions grew only {length:.2g} times as long"
        if known
        else "completion lengths are not logged"
    )
    evidence = [
        Evidence(
            "step_time",
            int(blocks[-1][-1]),
            float(levels[-1]),
            float(levels[0]),
            note="median of the last tenth against the first, in seconds",
        )
    ]
    if known:
        evidence.append(
            Evidence("completion_length_mean", None, length, 1.0, note="growth over the same rows")
        )
    return Finding(
        detector="THROUGHPUT_ROT",
        variant="length" if explains else "unexplained",
        severity=Severity.INFO,
        confidence=0.7,
        first_bad_step=first,
        last_bad_step=run.last_step,
        state="ended_run" if run.ended else "ongoing",
        summary=(
            f"Steps became {growth:.2g} times as slow, {stats.number(float(levels[0]))} s -> "
            f"{stats.number(float(levels[-1]))} s; {why}."
        ),
        evidence=tuple(evidence),
        remedies=(
            ("decide whether the longer completions are better", "cap or penalise length")
            if explains
            else (
                "profile one slow step: pre-emption, memory fragmentation, data loader, logging",
                "watch host and device memory over the run for a leak",
            )
        ),
        metrics=("step_time",),
    )


def _length_growth(run: RunContext, blocks: list[stats.IntArray]) -> float:
    series = run.series("completion_length_mean")
    start = stats.median(stats.at_steps(series, blocks[0]))
    end = stats.median(stats.at_steps(series, blocks[-1]))
    return end / start if start > 0 else float("nan")
