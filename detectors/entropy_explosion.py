"""ENTROPY_EXPLOSION: the policy turns to noise."""

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

MIN_POINTS = 4
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be high
LEFT = 0.4  # of the logarithm: above the level by so much, it has left its range
EARLY, EARLY_RATIO = 4, 10.0  # before so many rows, so many times the level are needed
RECENT = 32
LOOK_BACK = 64
NOISE_NATS = 3.0  # per token: text of such an entropy is not text any more


class EntropyExplosion(Detector):
    """The policy's entropy rises to a multiple of its past and stays: its text turns to noise.

    What it detects
        An entropy far above both the run's start and its own past, for several rows.

    Why it matters
        A policy that picks tokens almost at random earns nothing, runs to the length cap, and
        gives no gradient to come back by. It is commoner than the collapse of entropy.

    How it is computed
        On a log scale, against the highest level that the median of the run's past ever had, or
        its last 32 rows where the reward has lost half of its best level; the level stands still
        while the series is outside. Rows above `ratio` times that
        level are bad (ten times, while fewer than four rows are known); most of five in a row must
        be. The onset is walked back to where the entropy left its usual scatter. It is critical if
        the reward fell with it or a token carries more than `noise` nats, and info if the reward
        rose.

    What to do
        Restore a checkpoint from before the onset. Lower the learning rate and the entropy bonus,
        raise the KL coefficient, check that sampler and trainer hold the same weights.

    When it is wrong
        Entropy moves within its usual range in every run, and rises when harder prompts come. A
        policy that starts nearly deterministic may rise by much and be none the worse for it.

    References
        Cui et al., The entropy mechanism of reinforcement learning for reasoning language models
        (2025). verl `core_algos.py` and TRL `grpo_trainer.py` for what their entropy is.
    """

    id = "ENTROPY_EXPLOSION"
    severity = Severity.CRITICAL
    needs = (("entropy",),)
    caused_by = (
        "POLICY_MISMATCH",
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "DIVERGENCE",
        "LOSS_SPIKE",
        "ADVANTAGE_NOISE",
        "CLIP_SATURATION",
        "REWARD_HACKING",
        "RESTART_DISCONTINUITY",
    )

    ratio: float = knob(3, "times the run's own level", minimum=1.2)
    noise: float = knob(NOISE_NATS, "entropy at which text is noise", unit="nats/token")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of high entropy."""
        series = run.series("entropy")
        if series is None:
            return
        steps, values = stats.measured(series, above=0.0)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"entropy: {len(steps)} positive points, needs {MIN_POINTS}")
        scale = stats.logs(values, 1e-12)
        limit = float(np.log(self.ratio))
        recent = _recent(scale, limit)
        if not (scale - recent > limit).any():
            return
        past = stats.past_baseline(scale, above=limit / 2, warmup=1, window=stats.MAX_BLOCKS)
        highest = stats.rolling_max(past.center)
        level = np.where(_fell(run, steps) & np.isfinite(recent), recent, highest)
        early = np.arange(len(scale)) < EARLY
        bad = scale - level > np.where(early, np.log(EARLY_RATIO), limit)
        left = scale - level > np.maximum(3 * past.robust_std, LEFT)
        for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=SPAN):
            onset = stats.extend_back(left, episode.start)
            whole = stats.Episode(onset, episode.end, episode.recovered)
            yield self._finding(run, steps, values, np.exp(level), whole)

    def _finding(
        self,
        run: RunContext,
        steps: stats.IntArray,
        values: stats.FloatArray,
        level: stats.FloatArray,
        episode: stats.Episode,
    ) -> Finding:
        first, last = int(steps[episode.start]), int(steps[episode.end])
        base = float(level[episode.start])
        usual = stats.median(values[episode.rows])
        before, during = _rewards(run, steps, episode)
        known = np.isfinite(before) and np.isfinite(during)
        went = f"{stats.number(before)} to {stats.number(during)}"
        beside = f", while the reward went from {went}" if known else ""
        evidence = [
            Evidence("entropy", first, float(values[episode.start]), base, note="onset"),
            Evidence("entropy", None, usual, base, note="median since, against the level before"),
        ]
        if known:
            evidence.append(
                Evidence("reward_mean", None, during, before, note="median since, against before")
            )
        return Finding(
            detector=self.id,
            severity=self._severity(usual, before, during),
            confidence=0.9 if len(episode) >= 2 * SPAN else 0.75,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"Entropy rose from {stats.number(base)} to {stats.number(usual)} nats from step "
                f"{first:,} on{beside}."
            ),
            evidence=tuple(evidence),
            remedies=_remedies(run, first),
            metrics=("entropy",),
        )

    def _severity(self, usual: float, before: float, during: float) -> Severity:
        if during > before:
            return Severity.INFO
        return Severity.CRITICAL if usual > self.noise or during < before / 2 else Severity.WARNING


def _recent(scale: stats.FloatArray, limit: float) -> stats.FloatArray:
    return stats.past_baseline(scale, above=limit / 2, warmup=1, window=RECENT).center


def _fell(run: RunContext, steps: stats.IntArray) -> stats.BoolArray:
    """Where the reward has lost half of the best level that it had reached."""
    reward = stats.finite(stats.at_steps(run.series("reward_mean"), steps))
    best = stats.rolling_max(stats.past_baseline(reward, warmup=EARLY, window=RECENT // 2).center)
    result: stats.BoolArray = reward < best / 2
    return result


def _rewards(run: RunContext, steps: stats.IntArray, episode: stats.Episode) -> tuple[float, float]:
    reward = stats.at_steps(run.series("reward_mean"), steps)
    before = reward[max(0, episode.start - LOOK_BACK) : episode.start]
    return stats.median(before), stats.median(reward[episode.rows])


def _remedies(run: RunContext, first: int) -> tuple[str, ...]:
    bonus = "lower or drop the entropy bonus" if run.setting("entropy_coef") else ""
    rest = (
        "lower the learning rate, and raise the KL coefficient",
        "check that sampler and trainer hold the same weights in the same precision",
        "read a completion from before and after: noise, or longer thoughts?",
    )
    first_aid = f"restore a checkpoint from before step {first:,}"
    return (first_aid, bonus, *rest) if bonus else (first_aid, *rest)
