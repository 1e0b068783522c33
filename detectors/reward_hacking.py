"""REWARD_HACKING: the reward rises for the wrong reason."""

from __future__ import annotations

import itertools
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

EARLY = 8  # rows of the past below which nothing is compared with it
SPAN = 5  # rows that are looked at together
LASTING = 0.8
BEST_ROWS = 16  # rows whose median counts as a level that was reached
LEAST_SIGMA = 0.02  # relative to the best level
EXTREMES = ("reward_mean", "reward_max", "reward_min")
OUTLIER_PAST = 3  # rows that an outlier is compared with, at least
OUTLIER_GAP = 25  # rows between two outliers of one finding
LEAST_SIZE = 0.5  # of a reward: below it, scales are not compared
CUT = 0.8  # share of truncated completions with which no answer can be right
RARELY_CUT = 0.5
EVALUATIONS = ("eval/reward_mean", "eval/accuracy", "eval/score_mean", "eval/pass_rate")
MIN_EVALS = 4
EVAL_ROWS = 2
EARNED = 0.02  # of the total: a component below it was never worth anything


@dataclass(frozen=True, slots=True)
class _Rewards:
    """The mean reward with its level and scatter before each row."""

    steps: stats.IntArray
    values: stats.FloatArray
    best: stats.FloatArray
    spread: stats.FloatArray

    @property
    def gained(self) -> stats.BoolArray:
        """Where the reward is above the best level it had reached, outside its scatter."""
        result: stats.BoolArray = self.z > 2
        return result

    @property
    def z(self) -> stats.FloatArray:
        """Distance from the best level in scatters of the past."""
        least = np.maximum(self.spread, LEAST_SIGMA * np.abs(self.best))
        result: stats.FloatArray = (self.values - self.best) / np.maximum(least, 1e-9)
        return result


class RewardHacking(Detector):
    """The reward rises for the wrong reason: impossible values, cut answers, one component.

    What it detects
        `outlier`: a reward of an impossible size on single rows. `truncated`: the reward rises to
        new heights while nearly all completions are cut before their end. `component`: the total
        reaches new heights while a part of it that had been earned is lost. `evaluation`: the
        training reward is at its best while the same model gets worse on held-out data.

    Why it matters
        The policy optimises what is paid, not what is meant. The dashboards look better than ever
        while the model gets worse; only the completions show it.

    How it is computed
        Everything is compared with the run's own past. An outlier is more than `outlier` times as
        far from the median as the reward is large or scattered. New heights are rewards above the
        highest median of sixteen rows so far, outside their scatter, on most of five rows; with a
        truncated share of 80 % after it had been below 50 %, or with a component that has lost
        `component_drop` of its best level. For evaluations, the last two must have lost
        `eval_drop` of the best while the reward is not below its own.

    What to do
        Read the completions with the highest rewards. Bound each reward function to its range; pay
        nothing for a truncated answer; weigh the components; hold the policy closer to the
        reference.

    When it is wrong
        A length penalty or another component that trades off against the task may fall for good
        reasons. An evaluation on other tasks than those trained on may fall too. A total that
        rises because one component does, the others being level, is not reported.

    References
        Skalse et al., Defining and characterizing reward hacking (2022). Gao et al., Scaling laws
        for reward model overoptimization (2023). open-r1 issues on format rewards (2025).
    """

    id = "REWARD_HACKING"
    severity = Severity.WARNING
    needs = (("reward_mean",),)
    caused_by = ("LENGTH_EXPLOSION", "TRUNCATION", "RESTART_DISCONTINUITY", "RANK_OUTLIER")

    outlier: float = knob(40, "times the size and the scatter of the reward", minimum=5)
    component_drop: float = knob(
        0.6, "part of its best level that a component lost", minimum=0.1, maximum=1
    )
    eval_drop: float = knob(
        0.25, "part of the best evaluation that is lost", minimum=0.05, maximum=1
    )

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Outliers first, then the three ways to rise for the wrong reason."""
        series = run.series("reward_mean")
        if series is None:
            return
        steps, values = stats.measured(series)
        yield from self._outliers(run)
        if len(steps) <= EARLY:
            raise Inconclusive(f"reward: {len(steps)} points, needs {EARLY + 1}")
        rewards = _levels(steps, values)
        rises = itertools.chain(
            self._truncated(run, rewards),
            self._component(run, rewards),
            self._evaluation(run, rewards),
        )
        yield from itertools.islice(rises, 1)  # one rise, told in the clearest way

    # --- impossible values ------------------------------------------------------------------------

    def _outliers(self, run: RunContext) -> Iterator[Finding]:
        for name in EXTREMES:
            series = run.series(name)
            if series is None:
                continue
            steps, values = stats.measured(series)
            if not len(values) or np.ptp(values) < self.outlier * LEAST_SIZE:
                continue
            past = stats.past_baseline(values, warmup=OUTLIER_PAST)
            size = np.fmax(np.abs(past.center), LEAST_SIZE)
            off = np.abs(values - past.center)
            far = off > self.outlier * np.maximum(6 * past.robust_std, size)
            found = stats.episodes(far, gap=OUTLIER_GAP)
            for episode in found:
                yield _outlier(run, Series(name, steps, values), past.center, far, episode)
            if found:
                return

    # --- new heights ------------------------------------------------------------------------------

    def _truncated(self, run: RunContext, rewards: _Rewards) -> Iterator[Finding]:
        cut = stats.at_steps(run.series("truncation_rate"), rewards.steps)
        if not (cut >= CUT).any():
            return
        before = stats.past_baseline(cut, above=RARELY_CUT, warmup=EARLY).center
        # what is earned by cut answers is no measure for them
        rewards = _levels(rewards.steps, rewards.values, leave_out=cut >= RARELY_CUT)
        for episode in _first(rewards.gained & (cut >= CUT) & (before < RARELY_CUT)):
            start = stats.extend_back(cut > np.fmax(2 * before, RARELY_CUT / 2), episode.start)
            start = stats.drift_onset(rewards.z, start, reach=2 * SPAN)
            whole = stats.Episode(start, episode.end, episode.recovered)
            whole = _extended(rewards, cut >= CUT, whole)
            share = stats.median(cut[episode.rows])
            usual = float(before[start]) if start < len(before) else float("nan")
            yield _rise(
                run,
                rewards,
                whole,
                variant="truncated",
                why=f"while {share:.0%} of the completions are cut before their end",
                more=Evidence("truncation_rate", None, share, _known(usual), note="median since"),
                cures=(
                    "pay nothing for a truncated completion, and take length out of the reward",
                ),
            )

    def _component(self, run: RunContext, rewards: _Rewards) -> Iterator[Finding]:
        names = run.names("reward_component/")
        if len(names) < 2:
            return
        for name in names:
            yield from self._lost(run, rewards, name)

    def _lost(self, run: RunContext, rewards: _Rewards, name: str) -> Iterator[Finding]:
        values = stats.at_steps(run.series(name), rewards.steps)
        low = values < (1 - self.component_drop) * stats.quantile(values, 1.0)
        if not stats.persistent(low, width=SPAN, share=LASTING):
            return
        past = stats.past_baseline(values, warmup=EARLY, window=BEST_ROWS)
        best = stats.rolling_max(past.center)
        worth = best > EARNED * np.maximum(np.abs(rewards.best), LEAST_SIZE)
        fading = best - values > np.maximum(self.component_drop / 2 * best, 4 * past.robust_std)
        lost = fading & (best - values > self.component_drop * best) & worth
        # what is earned at its cost is no measure for the total
        rewards = _levels(rewards.steps, rewards.values, leave_out=fading & worth)
        for first in _first(rewards.gained & lost):
            kept = (1 - self.component_drop) * float(best[first.start])
            start = stats.extend_back(fading, first.start)
            whole = stats.Episode(start, first.end, first.recovered)
            episode = _extended(rewards, values < kept, whole)
            now, top = stats.median(values[episode.rows]), float(best[episode.start])
            short = name.removeprefix("reward_component/")
            fell = f"fell from {stats.number(top)} to {stats.number(now)}"
            yield _rise(
                run,
                rewards,
                episode,
                variant="component",
                why=f"while '{short}', a part of it, {fell}",
                more=Evidence(name, None, now, top, note="median since, against its best"),
                cures=(f"raise the weight of '{short}', or cap what the others can pay",),
            )

    def _evaluation(self, run: RunContext, rewards: _Rewards) -> Iterator[Finding]:
        for name in EVALUATIONS:
            series = run.series(name)
            if series is None:
                continue
            steps, values = stats.measured(series)
            if len(steps) < MIN_EVALS:
                continue
            best = np.maximum.accumulate(values)
            noise = stats.SIGMA_PER_MAD * stats.median(np.abs(np.diff(values)))
            lost = (best - values > self.eval_drop * np.abs(best)) & (best - values > 2 * noise)
            if not lost[-EVAL_ROWS:].all() or not _at_its_best(rewards, int(steps[-EVAL_ROWS])):
                continue
            first = int(steps[stats.extend_back(lost, len(lost) - 1)])
            row = min(int(np.searchsorted(rewards.steps, first)), len(rewards.steps) - 1)
            now = stats.median(values[lost][-EVAL_ROWS:])
            yield _rise(
                run,
                rewards,
                stats.Episode(row, len(rewards.steps) - 1, recovered=False),
                variant="evaluation",
                why=(f"while {name} fell from {stats.number(best[-1])} to {stats.number(now)}"),
                more=Evidence(name, None, now, float(best[-1]), note="last, against its best"),
                cures=("keep the checkpoint of the best evaluation, and stop there",),
            )


def _levels(
    steps: stats.IntArray, values: stats.FloatArray, leave_out: stats.BoolArray | None = None
) -> _Rewards:
    """The best level and the scatter before each row, learnt from the other rows only."""
    learnt = values if leave_out is None else np.where(leave_out, np.nan, values)
    past = stats.past_baseline(learnt, warmup=EARLY, window=BEST_ROWS)
    return _Rewards(steps, values, stats.rolling_max(past.center), past.robust_std)


def _first(bad: stats.BoolArray) -> tuple[stats.Episode, ...]:
    """The first stretch: what was a new height then is the level afterwards."""
    found = stats.persistent(bad, width=SPAN, share=LASTING, gap=4 * SPAN)
    return found[:1] if len(bad) >= SPAN else ()


def _extended(rewards: _Rewards, still: stats.BoolArray, episode: stats.Episode) -> stats.Episode:
    """The stretch goes on while the sign is there and the reward is above its level before."""
    high = rewards.values > rewards.best[episode.start]
    for longer in stats.episodes(still & high, gap=2 * SPAN):
        if longer.start <= episode.end <= longer.end:
            return stats.Episode(min(episode.start, longer.start), longer.end, longer.recovered)
    return episode


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _at_its_best(rewards: _Rewards, step: int) -> bool:
    since = rewards.values[rewards.steps >= step]
    return stats.median(since) >= float(rewards.best[-1]) - float(rewards.spread[-1])


def _outlier(
    run: RunContext,
    series: Series,
    level: stats.FloatArray,
    far: stats.BoolArray,
    episode: stats.Episode,
) -> Finding:
    rows = np.flatnonzero(far[episode.rows]) + episode.start
    top = int(rows[int(np.argmax(np.abs(series.values[rows])))])
    base = float(level[episode.start])
    first, last = int(series.steps[episode.start]), int(series.steps[episode.end])
    often = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    return Finding(
        detector="REWARD_HACKING",
        variant="outlier",
        severity=Severity.WARNING,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"{series.name} took an impossible size on {often} from step {first:,} on: "
            f"{stats.number(series.values[top])} at step {int(series.steps[top]):,}, against "
            f"{stats.number(base)} before."
        ),
        evidence=(
            Evidence(
                series.name, first, float(series.values[episode.start]), base, note="first outlier"
            ),
            Evidence(
                series.name, int(series.steps[top]), float(series.values[top]), base, note="largest"
            ),
            Evidence(series.name, None, float(len(rows)), note="rows"),
        ),
        remedies=(
            "bound every reward function to its range before it is used",
            f"read the completions of step {first:,} with the highest reward",
            "rewards that are normalised inside a group hide it from the gradient, not from the "
            "other rollouts of that group",
        ),
        metrics=(series.name,),
    )


def _rise(
    run: RunContext,
    rewards: _Rewards,
    episode: stats.Episode,
    *,
    variant: str,
    why: str,
    more: Evidence,
    cures: tuple[str, ...],
) -> Finding:
    first, last = int(rewards.steps[episode.start]), int(rewards.steps[episode.end])
    now, best = stats.median(rewards.values[episode.rows]), float(rewards.best[episode.start])
    return Finding(
        detector="REWARD_HACKING",
        variant=variant,
        severity=Severity.WARNING,
        confidence=0.8,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"From step {first:,} on the mean reward is at {stats.number(now)}, against a best "
            f"level of {stats.number(best)} before, {why}."
        ),
        evidence=(
            Evidence("reward_mean", None, now, _known(best), note="median since, against before"),
            Evidence("reward_mean", first, float(rewards.values[episode.start]), note="onset"),
            more,
        ),
        remedies=(
            "read the completions with the highest rewards: is that what was meant?",
            *cures,
            f"restore a checkpoint from before step {first:,}; a KL term slows such drift",
        ),
        metrics=("reward_mean", more.metric),
    )
