"""KV_CACHE_PRESSURE: the inference engine's KV cache fills up as completions grow."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    Judged,
    Period,
    RankGrid,
    Signal,
    Stretch,
    factor,
    finding,
    listed,
    rise_at_end,
    together,
)

REMEDIES = (
    "cap the tokens of each request, not only of the batch",
    "find out why completions grow (loops, a missing end token, a length reward)",
    "lower the number of concurrent requests, or give the engine more memory",
)


class KVCachePressure(Detector):
    """The KV cache of the inference engine climbs towards exhaustion.

    What it detects
        A cache use that climbs to the top and stays there, or has been there from the start; and
        the same on a few ranks while the others have room.

    Why it matters
        A full cache makes the engine pre-empt requests and compute them again: throughput falls by
        half, and then requests time out. It climbs when completions run away, and a request without
        a cap of its own can fill it alone.

    How it is computed
        Most of five rows in a row must use at least `usage` of the cache. In a console log the use
        of a row is the highest that the engine printed before it. The onset is walked back
        to where the use left the run's own past by two robust standard deviations. It is critical
        where the cache is full and the run died.

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
    needs = (("kv_cache_usage",), ("ranks", "kv_cache_usage"), ("event:preemption",))
    stage = "rollout"
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

    points = fixed(5, "logged values that are needed")
    last_rows = fixed(3, "rows at the end of a log that rise on and on")
    full = fixed(0.98, "use at which there is nothing left")
    percent = fixed(1.5, "a highest value above it means that the use is given in percent")
    least_std = fixed(0.02, "no use is steadier")
    around = fixed(50, "rows before and after the onset whose lengths are compared")
    often = fixed(5, "messages of the engine, or steps with one, that are no passing shortage")
    many = fixed(50, "requests put off that are no passing shortage")
    filling = fixed(8, "rows from the first on that all rise towards a full cache")
    longer = fixed(1.2, "growth of the completions that is named as the likely reason")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch at the top: of single ranks, then of the engine as a whole."""
        yield from self._single(run)
        if run.series("kv_cache_usage") is None:
            yield from self._preempted(run)
            return
        use = Signal.of(run, "kv_cache_usage", minimum=self.points)
        near_top = list(self._at_the_top(use, float(use.values.max())))
        if not near_top:
            yield from self._rising(use)
            yield from self._preempted(run)
        for stretch, before in near_top:
            for variant, holds in (("climbing", self._climbing), ("chronic", self._chronic)):
                if holds(stretch, before):
                    yield self._finding(stretch, before, variant)

    def _at_the_top(self, use: Signal, highest: float) -> Iterator[tuple[Stretch, float]]:
        """Stretches near the top, and the use before each; NaN where there is no past."""
        if highest > self.percent:
            use = use.with_values(use.values / 100)
        past = use.past(above=self.rise, warmup=3)
        departed = past.above(sigmas=2, floor=self.least_std)
        for stretch in Judged(use, use.values >= self.usage, departed).persistent():
            yield stretch, float(past.center[stretch.start])

    @rule("climbing")
    def _climbing(self, stretch: Stretch, before: float) -> bool:
        """Near the top after the use had been lower, by `rise` or more. A warning."""
        return stretch.usual >= before + self.rise

    @rule("chronic")
    def _chronic(self, _: Stretch, before: float) -> bool:
        """Near the top from the first rows on, so that there is no past. Info; a warning where
        each of at least `filling` rows is higher than the one before, and as many more fill it.
        """
        return math.isnan(before)

    def _fills(self, stretch: Stretch) -> bool:
        """Whether the use rises on and on, and is full before as many rows have passed again."""
        values = stretch.values
        rising = len(values) >= self.filling and bool((np.diff(values) > 0).all())
        return rising and bool(2 * values[-1] - values[0] >= 1) and not stretch.recovered

    @rule("preempted")
    def _preempted(self, run: RunContext) -> Iterator[Finding]:
        """The use is not known, or not high, and the engine says `often` times or more that it
        puts requests off. A warning where it says so at as many steps, or of `many` requests.
        """
        told = run.events("preemption")
        steps = sorted({event.step for event in told if event.step is not None})
        times = sum(int(event.data.get("count", 1)) for event in told)
        off = max([times, *(int(event.data.get("total") or 0) for event in told)])
        if off < self.often:
            return
        first, last = (steps[0], steps[-1]) if steps else (run.first_step, run.last_step)
        again = len(steps) >= self.often or off >= self.many
        where = f" at {len(steps):,} step{'s' if len(steps) > 1 else ''}{SINCE}" if steps else ""
        yield finding(
            self,
            Period(run, first, last, recovered=last + run.interval < run.last_step),
            f"The inference engine ran out of KV cache and put requests off{where}: it said so "
            f"{times:,} times, of {off:,} requests at least.",
            variant="preempted",
            severity=Severity.WARNING if again else Severity.INFO,
            confidence=0.8 if again else 0.5,
            evidence=(
                Evidence("event:preemption", first, float(times), note="messages"),
                Evidence("event:preemption", None, float(off), note="requests put off, at least"),
            ),
            remedies=REMEDIES,
        )

    @rule("rising")
    def _rising(self, use: Signal) -> Iterator[Finding]:
        """The last three rows or more of a log each rise above all before them, twice `rise` above
        the usual. Info: it may be the beginning of a run-away.
        """
        full = 100 if use.values.max() > self.percent else 1
        use = use.with_values(use.values / full)
        stretch = rise_at_end(use, self.last_rows)
        before = math.nan if stretch is None else stretch.before(self.around)
        if stretch is None or not use.values[-1] >= before + 2 * self.rise:
            return
        yield finding(
            self,
            stretch,
            f"The use of the KV cache rose on each of the last {len(stretch)} rows, from "
            f"{before:.0%} to {float(use.values[-1]):.0%}{SINCE}.",
            variant="rising",
            severity=Severity.INFO,
            confidence=0.6,
            evidence=(
                stretch.at_onset(before),
                stretch.at_top(before, "highest use"),
                stretch.in_all(len(stretch), None, "rows that rise"),
            ),
            remedies=REMEDIES,
        )

    @rule("ranks")
    def _single(self, run: RunContext) -> Iterator[Finding]:
        """The cache of single ranks, at most half of them where a mean is logged, is near the top
        after it had been lower by `rise` or more. Those that overlap are one finding. A warning.
        """
        by_rank = run.rank_series("kv_cache_usage")
        grid = RankGrid.of(run, "kv_cache_usage", by_rank) if len(by_rank) > 1 else None
        if grid is None:
            return
        highest = np.nanmax(grid.values, axis=0, initial=-np.inf)
        climbed: list[Stretch] = []
        for column in np.flatnonzero(highest >= self.usage).tolist():
            use = grid.of_rank(column)
            use = use.where(np.isfinite(use.values))
            found = self._at_the_top(use, float(highest.max()))
            climbed += [stretch for stretch, before in found if self._climbing(stretch, before)]
        most = len(grid.ranks) // (1 if run.series("kv_cache_usage") is None else 2)
        climbed.sort(key=lambda stretch: stretch.first)
        for group in together(climbed, run.interval):
            ranks = sorted({stretch.signal.rank or 0 for stretch in group})
            if len(ranks) <= most:
                yield self._of_ranks(grid, group, ranks)

    def _of_ranks(self, grid: RankGrid, group: list[Stretch], ranks: list[int]) -> Finding:
        period = Period.over(group)
        top = max(float(stretch.values.max()) for stretch in group)
        mean = stats.median(_means(grid, period)) / (
            100 if np.nanmax(grid.values) > self.percent else 1
        )
        plural = "s" if len(ranks) > 1 else ""
        return finding(
            self,
            period,
            f"The KV cache of rank{plural} {listed(ranks)} of {len(grid.ranks)} is up to {top:.0%} "
            f"full{SINCE}, while the mean over ranks is {mean:.0%}.",
            variant="ranks",
            severity=Severity.WARNING,
            confidence=0.85,
            evidence=(
                *(stretch.at_onset(stretch.before(), "onset, before") for stretch in group[:8]),
                Evidence("kv_cache_usage", None, top, note="highest use of one of them"),
                Evidence("kv_cache_usage", None, mean, note="median of the mean over ranks"),
            ),
            remedies=(
                f"look at the requests of rank {listed(ranks)}: long prompts, completions that run "
                "on, or an uneven load",
                "spread the requests by their length, not by their number",
                "cap the tokens of each request, not only of the batch",
            ),
            ranks=ranks,
        )

    def _finding(self, stretch: Stretch, before: float, variant: str | None) -> Finding:
        climbing = variant == "climbing"
        top, growth = float(stretch.values.max()), self._growth(stretch)
        grew = growth > self.longer
        died = top >= self.full and stretch.state == "ended_run"
        fills = not climbing and self._fills(stretch)
        usually = Severity.WARNING if climbing or fills else Severity.INFO
        since = f" after {before:.0%} before" if climbing else " from the first rows on"
        since += ", and rises with every row" if fills else ""
        why = f", while completions grew {factor(growth)} times as long" if grew else ""
        return finding(
            self,
            stretch,
            f"The KV cache is up to {top:.0%} full{SINCE}{since}{why}.",
            variant=variant,
            severity=Severity.CRITICAL if died else usually,
            confidence=0.85 if climbing else 0.5,
            evidence=(
                stretch.at_onset(before, "onset, against the run's own past"),
                stretch.in_all(top, None, "highest use"),
                _longer(growth) if grew else None,
            ),
            remedies=REMEDIES,
        )

    def _growth(self, stretch: Stretch) -> float:
        """How many times as long completions are from the onset on; NaN where unknown."""
        length = Signal.logged(stretch.signal.run, "completion_length_mean")
        if length is None:
            return math.nan
        cut = int(np.searchsorted(length.steps, stretch.first))
        before = stats.median(length.values[max(0, cut - self.around) : cut])
        after = stats.quantile(length.values[cut : cut + self.around], 0.9)
        return after / before if before > 0 else math.nan


def _means(grid: RankGrid, period: Period) -> stats.FloatArray:
    """Mean over the ranks on the rows of a period."""
    rows = grid.values[(grid.steps >= period.first) & (grid.steps <= period.seen)]
    told = rows[np.isfinite(rows).any(axis=1)]
    means: stats.FloatArray = np.nanmean(told, axis=1)
    return means


def _longer(growth: float) -> Evidence:
    return Evidence("completion_length_mean", None, growth, 1.0, note="times as long as before")
