"""REWARD_COLLAPSE: the reward falls away and stays down."""

from __future__ import annotations

from collections.abc import Iterator
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

MIN_POINTS = 6
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be low
EARLY = 8  # rows of the past below which its scatter is not known
EARLY_SHARE = 0.05  # part of the range that must be left, while it is not
BEST_ROWS = 16  # rows whose median counts as a level that was reached
LEFT = 0.25  # part of the range below the best level at which the fall has begun
LEAST_SIGMA = 0.05  # relative to the best level
BAND = 4  # scatters below the level that are still learnt from
USUAL_SIGMAS = 3  # of its distances from the best level before
PASSING = 10  # an episode of fewer rows that passes is only info
ALL_LOST = 0.1  # part of the range, of which nothing worth the name is left
GONE = 1e-9
ALIVE = 0.7  # share of the rows before it on which a dead component had been earned


@dataclass(frozen=True, slots=True)
class _View:
    """A reward with the best level before each row and what lay below it.

    Attributes:
        range: from the lowest level so far, at most 0, to the best.
        spread: scatter of the past.
    """

    series: Series
    best: stats.FloatArray
    range: stats.FloatArray
    spread: stats.FloatArray

    @property
    def left(self) -> stats.BoolArray:
        """Where the reward has clearly left the best level, also beyond its usual scatter."""
        least = 3 * np.maximum(self.spread, LEAST_SIGMA * np.abs(self.best))
        result: stats.BoolArray = self.best - self.series.values > np.maximum(
            least, LEFT * self.range
        )
        return result


class RewardCollapse(Detector):
    """The reward falls far below the best level that the run had reached, and stays down.

    What it detects
        The mean reward loses a large part of what it had gained, for several rows. `component`: one
        reward function that had been earned on most rows is exactly 0 from some step on.

    Why it matters
        The policy is unlearning, or the reward function has broken: a verifier that fails gives 0
        without a word. Every step after it makes the policy worse or costs for nothing.

    How it is computed
        The best level is the highest median of sixteen rows so far, so that a lucky batch is not
        the measure. Rows are bad that lost more than `drop` of the range from the lowest level (at
        most 0) to the best, lie outside `sigmas` of the scatter, and are lower than the dips that
        the run had before; most of five in a row must be. With less than eight rows before it, next
        to nothing of the reward may be left. The onset is walked back to where the reward had
        clearly left the best level. A component is dead when it is exactly 0 for `dead_rows` rows
        up to the end.

    What to do
        Look at what broke first: gradient, KL, entropy and length before the onset. Test the
        verifier by hand on a right answer. Restore a checkpoint from before the onset.

    When it is wrong
        A curriculum that moves to harder prompts lowers the reward and nothing is broken. Rewards
        that scatter as widely as their level, as with small batches, are not judged by one dip.
        The implicit rewards of preference losses may fall while their margin grows; they are not
        read.

    References
        Gao et al., Scaling laws for reward model overoptimization (2023). prime-rl and Search-R1
        issues on collapse after about 150 steps (2025).
    """

    id = "REWARD_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (("reward_mean",),)
    caused_by = (
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "KL_BLOWUP",
        "POLICY_MISMATCH",
        "ENTROPY_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "TRUNCATION",
        "REPETITION_LOOP",
        "REWARD_HACKING",
        "CLIP_SATURATION",
        "VALUE_DIVERGENCE",
        "DIVERGENCE",
        "LOSS_SPIKE",
        "ADVANTAGE_NOISE",
        "RESTART_DISCONTINUITY",
        "RANK_OUTLIER",
    )

    drop: float = knob(0.5, "part of the range that is lost", minimum=0.1, maximum=1)
    sigmas: float = knob(3, "robust standard deviations of the past", minimum=1)
    dead_rows: int = knob(
        10, "rows at exactly 0 that make a component dead", unit="rows", minimum=3
    )

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of low reward, then components that died."""
        series = run.series("reward_mean")
        if series is None:
            return
        parts = run.names("reward_component/")
        dead = [finding for name in parts for finding in self._dead(run, name)]
        yield from dead
        steps, values = stats.measured(series)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"reward: {len(steps)} points, needs {MIN_POINTS}")
        view = _view(Series(series.name, steps, values))
        for episode in stats.persistent(self._low(view), width=SPAN, share=LASTING, gap=SPAN):
            onset = stats.extend_back(view.left, episode.start)
            if not any(finding.first_bad_step <= steps[episode.start] for finding in dead):
                whole = stats.Episode(onset, episode.end, episode.recovered)
                yield self._finding(run, view, whole)

    def _low(self, view: _View) -> stats.BoolArray:
        lost = view.best - view.series.values
        low = (lost > self.drop * view.range) & (lost > self.sigmas * view.spread)
        low &= view.range > GONE
        if not low.any():
            return low
        early = np.arange(len(lost)) < EARLY
        nothing = lost >= (1 - EARLY_SHARE) * view.range
        result: stats.BoolArray = low & (~early | nothing) & ~(lost <= _usual_dip(lost, low))
        return result

    def _finding(self, run: RunContext, view: _View, episode: stats.Episode) -> Finding:
        steps, values = view.series.steps, view.series.values
        first, last = int(steps[episode.start]), int(steps[episode.end])
        best = float(view.best[episode.start])
        now = stats.median(values[episode.rows])
        lowest = best - float(view.range[episode.start])
        return Finding(
            detector=self.id,
            severity=_severity(episode, left=(now - lowest) / (best - lowest)),
            confidence=0.9 if len(episode) >= 2 * SPAN else 0.75,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"The mean reward fell from {stats.number(best)} to {stats.number(now)} from step "
                f"{first:,} on and stayed there for {len(episode):,} rows."
            ),
            evidence=(
                Evidence("reward_mean", first, float(values[episode.start]), best, note="onset"),
                Evidence("reward_mean", None, now, best, note="median since, against the best"),
                Evidence("reward_mean", None, float(len(episode)), note="rows"),
            ),
            remedies=_remedies(run, first),
            metrics=("reward_mean",),
        )

    def _dead(self, run: RunContext, name: str) -> Iterator[Finding]:
        series = run.series(name)
        if series is None:
            return
        steps, values = stats.measured(series)
        earned = np.flatnonzero(np.abs(values) > GONE)
        if len(earned) < EARLY:
            return
        start = int(earned[-1]) + 1
        before = values[max(0, start - 8 * EARLY) : start]
        alive = float((np.abs(before) > GONE).mean())
        if len(values) - start < self.dead_rows or alive < ALIVE:
            return
        yield _component(run, name, steps, start, before)


def _view(series: Series) -> _View:
    values = series.values
    noise = stats.noise(values)
    band = max(BAND * noise, LEAST_SIGMA * stats.median(np.abs(values)))
    level = stats.past_baseline(values, below=band, warmup=1, window=BEST_ROWS)
    past = stats.past_baseline(values, below=band, warmup=EARLY)
    # a long fall widens the scatter of the past; the scatter from row to row stays what it was
    spread = np.minimum(np.where(np.isnan(past.robust_std), noise, past.robust_std), 1.25 * noise)
    best = stats.rolling_max(level.center)
    lowest = np.minimum(0.0, np.fmin.accumulate(level.center))
    return _View(series, best, best - lowest, np.maximum(spread, noise / 2))


def _usual_dip(lost: stats.FloatArray, low: stats.BoolArray) -> stats.FloatArray:
    """How far below its best the reward has been now and then, before each row."""
    past = stats.past_baseline(np.where(low, np.nan, lost), warmup=EARLY, window=stats.MAX_BLOCKS)
    return past.center + USUAL_SIGMAS * past.robust_std


def _component(
    run: RunContext, name: str, steps: stats.IntArray, start: int, before: stats.FloatArray
) -> Finding:
    first, rows = int(steps[start]), len(steps) - start
    usual = stats.median(before)
    short = name.removeprefix("reward_component/")
    return Finding(
        detector="REWARD_COLLAPSE",
        variant="component",
        severity=Severity.CRITICAL,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=run.last_step,
        state="ended_run" if run.ended else "ongoing",
        summary=(
            f"The reward function '{short}' gives exactly 0 from step {first:,} on, for {rows:,} "
            f"rows; before, its median was {stats.number(usual)}."
        ),
        evidence=(
            Evidence(name, first, 0.0, usual, note="exactly 0 against the median before"),
            Evidence(name, None, float(rows), note="rows at exactly 0"),
        ),
        remedies=(
            f"test '{short}' by hand on a right answer: has the verifier, its service or the data "
            "changed?",
            f"restore a checkpoint from before step {first:,} once it works again",
        ),
        metrics=(name,),
    )


def _severity(episode: stats.Episode, left: float) -> Severity:
    if episode.recovered and len(episode) < PASSING:
        return Severity.INFO
    return Severity.CRITICAL if left <= ALL_LOST and not episode.recovered else Severity.WARNING


def _remedies(run: RunContext, first: int) -> tuple[str, ...]:
    at = np.array([first], dtype=np.int64)
    cut = float(stats.at_steps(run.series("truncation_rate"), at)[0])
    verifier = "test the reward function by hand on a right answer: does it still pass?"
    restore = f"restore a checkpoint from before step {first:,}"
    calm = "lower the learning rate, or raise the KL coefficient"
    if cut >= 0.5:
        return ("look at truncated completions first: they have no answer", restore, verifier, calm)
    return (verifier, restore, calm)
