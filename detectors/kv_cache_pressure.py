"""KV_CACHE_PRESSURE: the inference engine's KV cache fills up as completions grow."""

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

SPAN = 5  # rows that are looked at together
LASTING = 0.8
LEAST_SIGMA = 0.02
LEAST_ROWS = 5
FULL = 0.98


class KVCachePressure(Detector):
    """The KV cache of the inference engine climbs towards exhaustion.

    What it detects
        A cache use that had been lower and now stays near the top (`climbing`), and, as info, one
        that has been there from the first row on (`chronic`).

    Why it matters
        A full cache makes the engine pre-empt requests and compute them again: throughput falls by
        half, and then requests time out. It climbs when completions run away, and a request without
        a cap of its own can fill it alone.

    How it is computed
        Most of five rows in a row must use at least `usage` of the cache, and at least `rise` more
        than the run's own past. The onset is walked back to where the use left that past. It is
        critical where the cache is full and the run died.

    What to do
        Cap each request, stop the growth of lengths, or lower the number of concurrent requests.

    When it is wrong
        An engine that is driven at full load on purpose uses its cache fully from the start and is
        healthy. Some engines report the share of reserved blocks, which never falls.

    References
        Kwon et al., PagedAttention (SOSP 2023). vLLM documentation, preemption.
    """

    id = "KV_CACHE_PRESSURE"
    severity = Severity.CRITICAL
    facts_only = True
    needs = (("kv_cache_usage",),)
    caused_by = (
        "LENGTH_EXPLOSION",
        "TRUNCATION",
        "REPETITION_LOOP",
        "ENTROPY_EXPLOSION",
        "KL_BLOWUP",
        "REWARD_HACKING",
    )

    usage: float = knob(0.9, "share of the cache that is too much", minimum=0.3, maximum=1)
    rise: float = knob(0.15, "over the run's own past", minimum=0.01, maximum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch at the top."""
        series = run.series("kv_cache_usage")
        if series is None:
            return
        steps, values = stats.measured(series)
        if len(values) < LEAST_ROWS:
            raise Inconclusive(f"{len(values)} rows, needs {LEAST_ROWS}")
        values = values / 100 if stats.quantile(values, 1.0) > 1.5 else values  # percent
        past = stats.past_baseline(values, above=self.rise, warmup=3)
        outside = stats.robust_z(values, past, LEAST_SIGMA) > 2
        for episode in stats.persistent(values >= self.usage, width=SPAN, share=LASTING, gap=SPAN):
            start = stats.extend_back(outside, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            before = float(past.center[start])
            climbed = stats.median(values[whole.rows]) >= before + self.rise
            if climbed or np.isnan(before):
                yield _finding(run, steps, values, whole, before)


def _finding(
    run: RunContext,
    steps: stats.IntArray,
    values: stats.FloatArray,
    episode: stats.Episode,
    before: float,
) -> Finding:
    first, last = int(steps[episode.start]), int(steps[episode.end])
    top = float(values[episode.rows].max())
    climbing = not np.isnan(before)
    died = top >= FULL and run.ended and not episode.recovered
    since = f" after {before:.0%} before" if climbing else " from the first rows on"
    longer = _growth(run, first)
    why = f", while completions grew {longer:.2g} times as long" if longer > 1.2 else ""
    lengths = (
        (Evidence("completion_length_mean", first, longer, 1.0, note="times as long as before"),)
        if why
        else ()
    )
    severity = Severity.CRITICAL if died else Severity.WARNING if climbing else Severity.INFO
    return Finding(
        detector="KV_CACHE_PRESSURE",
        variant="climbing" if climbing else "chronic",
        severity=severity,
        confidence=0.85 if climbing else 0.5,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=f"The KV cache is up to {top:.0%} full from step {first:,} on{since}{why}.",
        evidence=(
            Evidence(
                "kv_cache_usage",
                first,
                float(values[episode.start]),
                before if climbing else None,
                note="onset, against the run's own past",
            ),
            Evidence("kv_cache_usage", None, top, note="highest use"),
            *lengths,
        ),
        remedies=(
            "cap the tokens of each request, not only of the batch",
            "find out why completions grow (loops, a missing end token, a length reward)",
            "lower the number of concurrent requests, or give the engine more memory",
        ),
        metrics=("kv_cache_usage",),
    )


def _growth(run: RunContext, first: int) -> float:
    """How many times as long completions were from this step on; NaN where unknown."""
    series = run.series("completion_length_mean")
    if series is None:
        return float("nan")
    cut = int(np.searchsorted(series.steps, first))
    before = stats.median(series.values[max(0, cut - 50) : cut])
    after = stats.quantile(series.values[cut : cut + 50], 0.9)
    return after / before if before > 0 else float("nan")
