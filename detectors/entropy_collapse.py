"""ENTROPY_COLLAPSE: the policy has become deterministic, and not because it has learnt the task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import SINCE, Best, Judged, Signal, Stretch, finding, number, restore


class EntropyCollapse(Detector):
    """The policy's entropy falls to a small part of its start, and no reward is gained by it.

    What it detects
        An entropy that is low while the reward is far below the best level of the run, or of which
        next to nothing is left, whatever the reward.

    Why it matters
        Without entropy all rollouts of a group are the same, so no group gives a gradient: what the
        policy cannot do by then it will not find any more.

    How it is computed
        Against the median of the run's first `start_rows` rows; most of five rows in a row must be
        low. The onset is walked back to where the entropy left `usual_share` of its start. The best
        level of the reward is the highest median of sixteen rows so far.

    What to do
        Restore a checkpoint from before the onset. Raise the entropy bonus, the upper clip range or
        the sampling temperature; lower the learning rate; look for one completion that always wins.

    When it is wrong
        Entropy falls in every healthy run, often to a tenth of its start, as the reward rises. The
        kind of entropy differs by framework (per token, per sequence, estimated from samples), so
        levels of two runs cannot be compared. A run that begins deterministic has no start to
        compare with.

    References
        Cui et al., The entropy mechanism of reinforcement learning for reasoning language models
        (2025). Yu et al., DAPO (2025), on the upper clip range.
    """

    id = "ENTROPY_COLLAPSE"
    severity = Severity.WARNING
    needs = (("entropy",),)
    stage = "policy"
    caused_by = (
        "REWARD_HACKING",
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "DIVERGENCE",
        "CLIP_SATURATION",
        "POLICY_MISMATCH",
        "ENTROPY_EXPLOSION",
        "RESTART_DISCONTINUITY",
    )

    low: float = knob(0.2, "times the start, when the reward fell", minimum=0.001, maximum=0.9)
    share: float = knob(0.04, "times the start, in any case", minimum=0, maximum=0.9)

    points = fixed(8, "logged entropies that are needed")
    start_rows = fixed(8, "rows that the start is taken from")
    usual_share = fixed(0.6, "times the start: below it the entropy has left its usual range")
    sigmas = fixed(2, "robust standard deviations off the best level that are its scatter")
    least_std = fixed(0.05, "of the reward's best level: no reward is steadier")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of low entropy."""
        entropy = Signal.of(run, "entropy", minimum=self.points)
        start = stats.median(entropy.values[: self.start_rows])
        if start <= 0:
            raise Inconclusive("entropy: 0 or below from the start, nothing to compare with")
        if not (entropy.values < max(self.low, self.share) * start).any():
            return
        reward = entropy.with_values(stats.finite(entropy.beside("reward_mean")))
        best = reward.best_level()
        fallen = self._reward_fell(entropy, start, best)
        bad = fallen | self._deterministic(entropy, start)
        departed = entropy.values < self.usual_share * start
        for stretch in Judged(entropy, bad, departed).persistent(slack=1):
            variant = "reward_fell" if fallen[stretch.core].mean() > 0.5 else "deterministic"
            near_best = reward.values >= best.level - self._scatter(best)
            solved = variant == "deterministic" and near_best[stretch.core].mean() > 0.5
            now = stats.median(reward.values[stretch.core])
            yield self._finding(stretch, start, variant, now, solved=solved)

    @rule("reward_fell")
    def _reward_fell(self, entropy: Signal, start: float, best: Best) -> stats.BoolArray:
        """The entropy is below `low` times the start while the reward has lost half of what it had
        reached, and more than its scatter. A warning.
        """
        lowest = np.fmin(0.0, np.fmin.accumulate(best.values))
        limit = np.minimum(best.level - self._scatter(best), (best.level + lowest) / 2)
        return (entropy.values < self.low * start) & (best.values < limit)

    @rule("deterministic")
    def _deterministic(self, entropy: Signal, start: float) -> stats.BoolArray:
        """The entropy is below `share` times the start, whatever the reward. A warning; info while
        the reward is near its best: then the task is solved.
        """
        result: stats.BoolArray = entropy.values < self.share * start
        return result

    def _scatter(self, best: Best) -> stats.FloatArray:
        std = np.maximum(best.robust_std, self.least_std * np.abs(best.level))
        scatter: stats.FloatArray = self.sigmas * std
        return scatter

    def _finding(
        self, stretch: Stretch, start: float, variant: str, reward: float, *, solved: bool
    ) -> Finding:
        low = stats.median(stretch.signal.values[stretch.core])
        beside = f", with a reward of {number(reward)}" if np.isfinite(reward) else ""
        return finding(
            self,
            stretch,
            f"Entropy fell to {number(low)}, {low / start:.2%} of its start of {number(start)},"
            f"{SINCE}{beside}.",
            variant=variant,
            severity=Severity.INFO if solved else Severity.WARNING,
            confidence=0.85 if variant == "reward_fell" else 0.7,
            evidence=(
                stretch.at_onset(start),
                stretch.in_all(low, start, "median since, against the start"),
                stretch.in_all(
                    low / start, self.low if solved else self.share, "share of the start"
                ),
                Evidence("reward_mean", None, reward, note="median since")
                if np.isfinite(reward)
                else None,
            ),
            remedies=("use harder prompts, or stop here: the policy has settled",)
            if solved
            else (
                restore(stretch.first),
                "raise the entropy bonus, the upper clip range or the sampling temperature",
                "read the completions: one text that always wins points to the reward function",
                "lower the learning rate",
            ),
        )
