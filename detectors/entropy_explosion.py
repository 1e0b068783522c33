"""ENTROPY_EXPLOSION: the policy turns to noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Change,
    Judged,
    Signal,
    Stretch,
    early,
    finding,
    number,
    restore,
)


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
        level are bad (`early_ratio` times, in the first rows); most of five in a row must be. The
        onset is walked back to where the entropy left its usual scatter. It is critical if the
        reward fell by half or a token carries more than `noise` nats, and info if the reward rose.

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
    noise: float = knob(3, "entropy at which text is noise", unit="nats/token")

    points = fixed(4, "positive entropies that are needed")
    early_ratio = fixed(10, "times the level, within the first rows")
    early_rows = fixed(4, "rows that are the first ones")
    recent_rows = fixed(32, "rows that are the recent past")
    least_rise = fixed(0.4, "of the logarithm: above the level by so much, it has left its range")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of high entropy."""
        entropy = Signal.of(run, "entropy", minimum=self.points, above=0)
        limit = float(np.log(self.ratio))
        recent = entropy.past(log=1e-12, above=limit / 2, warmup=1, window=self.recent_rows)
        if not (recent.rise > limit).any():
            return
        past = entropy.past(log=1e-12, above=limit / 2, warmup=1, window=WHOLE)
        after_loss = self._reward_fell(entropy) & np.isfinite(recent.center)
        level = np.where(after_loss, recent.center, stats.rolling_max(past.center))
        rise = past.scaled - level
        first = early(self.early_rows, len(entropy))
        bad = rise > np.where(first, np.log(self.early_ratio), limit)
        departed = rise > np.maximum(3 * past.robust_std, self.least_rise)
        for stretch in Judged(entropy, bad, departed).persistent():
            yield self._finding(stretch, float(np.exp(level[stretch.start])))

    def _reward_fell(self, entropy: Signal) -> stats.BoolArray:
        """Where the reward has lost half of the best level that it had reached."""
        reward = entropy.with_values(stats.finite(entropy.beside("reward_mean")))
        best = reward.best_level(self.recent_rows // 2, warmup=self.early_rows)
        result: stats.BoolArray = reward.values < best.level / 2
        return result

    def _finding(self, stretch: Stretch, level: float) -> Finding:
        reward = stretch.beside("reward_mean")
        went = f"{number(reward.before)} to {number(reward.during)}"
        beside = f", while the reward went from {went}" if reward.known else ""
        bonus = stretch.signal.run.setting("entropy_coef")
        return finding(
            self,
            stretch,
            f"Entropy rose from {number(level)} to {number(stretch.usual)} nats{SINCE}{beside}.",
            severity=self._severity(stretch, reward),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, level, "median since, against the level before"),
                reward.evidence(),
            ),
            remedies=(
                restore(stretch.first),
                "lower or drop the entropy bonus" if bonus else "",
                "lower the learning rate, and raise the KL coefficient",
                "check that sampler and trainer hold the same weights in the same precision",
                "read a completion from before and after: noise, or longer thoughts?",
            ),
        )

    def _severity(self, stretch: Stretch, reward: Change) -> Severity:
        if reward.rose():
            return Severity.INFO
        ruined = stretch.usual > self.noise or reward.fell(0.5)
        return Severity.CRITICAL if ruined else Severity.WARNING
