"""ENTROPY_COLLAPSE: the policy has become deterministic, and not because it has learnt the task."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Best,
    Judged,
    Shift,
    Signal,
    Stretch,
    finding,
    from_drift,
    near_top,
    number,
    restore,
    shift_finding,
    shifts,
    still_gains,
    told_change,
)


class EntropyCollapse(Detector):
    """The policy's entropy falls to a small part of its start, and no reward is gained by it.

    What it detects
        An entropy that is low while the reward is far below the best level of the run, or of which
        next to nothing is left, whatever the reward; or one that halves from one row to the next.

    Why it matters
        Without entropy all rollouts of a group are the same, so no group gives a gradient: what the
        policy cannot do by then it will not find any more.

    How it is computed
        Against the median of the run's first `start_rows` rows; most of five rows in a row must be
        low. The onset is walked back to where the entropy left `usual_share` of its start, or, if
        the fall took more than a few rows, to the bend at which it set in. The best level of the
        reward is the highest median of sixteen rows so far. The task is solved where the reward is
        near the highest that it can be; near the best of its run is not enough.

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
    halved = fixed(0.5, "times the level before, at one row and for good")
    least_std = fixed(0.05, "of the reward's best level: no reward is steadier")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of low entropy, then jumps of the level elsewhere."""
        entropy = Signal.of(run, "entropy", minimum=self.points)
        start = stats.median(entropy.values[: self.start_rows])
        if start <= 0:
            raise Inconclusive("entropy: 0 or below from the start, nothing to compare with")
        reported = np.zeros(len(entropy), dtype=np.bool_)
        if (entropy.values < max(self.low, self.share) * start).any():
            for stretch, variant in self._low(entropy, start):
                reported[stretch.rows] = True
                yield self._finding(stretch, start, variant)
        yield from self._shift(entropy, reported)

    def _low(self, entropy: Signal, start: float) -> Iterator[tuple[Stretch, str]]:
        """Stretches of low entropy, with the rule that says so."""
        reward = entropy.with_values(stats.finite(entropy.beside("reward_mean")))
        fallen = self._reward_fell(entropy, start, reward.best_level())
        bad = fallen | self._deterministic(entropy, start)
        departed = entropy.values < self.usual_share * start
        low = Judged(entropy, bad, departed).persistent(slack=1)
        for stretch in from_drift(low, entropy.values, down=True):
            fell = fallen[stretch.core].mean() > 0.5
            yield stretch, "reward_fell" if fell else "deterministic"

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
        """The entropy is below `share` times the start, whatever the reward. A warning; info where
        the task is solved, or the reward still grows.
        """
        result: stats.BoolArray = entropy.values < self.share * start
        return result

    @rule("shift")
    def _shift(self, entropy: Signal, reported: stats.BoolArray) -> Iterator[Finding]:
        """The level falls from one row to the next and for good, by far more than it ever moved.
        A warning below `halved` of the level before, if no event of the run
        tells of a change there and the reward does not grow by it; otherwise info.
        """
        least = -math.log(self.usual_share + (1 - self.usual_share) / 2)
        for shift in shifts(entropy, log=1e-9, least=least):
            if not shift.up and shift.lasts and shift.before > 0 and not reported[shift.row]:
                yield self._shift_finding(shift)

    def _scatter(self, best: Best) -> stats.FloatArray:
        std = np.maximum(best.robust_std, self.least_std * np.abs(best.level))
        scatter: stats.FloatArray = self.sigmas * std
        return scatter

    def _finding(self, stretch: Stretch, start: float, variant: str) -> Finding:
        low = stats.median(stretch.signal.values[stretch.core])
        reward = stats.median(stretch.signal.beside("reward_mean")[stretch.core])
        beside = f", with a reward of {number(reward)}" if np.isfinite(reward) else ""
        fell = variant == "reward_fell"
        solved = not fell and near_top(stretch)
        harmless = solved or (not fell and still_gains(stretch))
        return finding(
            self,
            stretch,
            f"Entropy fell to {number(low)}, {low / start:.2%} of its start of {number(start)},"
            f"{SINCE}{beside}.",
            variant=variant,
            severity=Severity.INFO if harmless else Severity.WARNING,
            confidence=0.85 if fell else 0.7,
            evidence=(
                stretch.at_onset(start),
                stretch.in_all(low, start, "level while it is low, against the start"),
                stretch.in_all(low / start, self.low if fell else self.share, "share of the start"),
                Evidence("reward_mean", None, reward, note="level while it is low")
                if np.isfinite(reward)
                else None,
            ),
            remedies=("use harder prompts, or stop here: the policy has settled",)
            if solved
            else _remedies(stretch.first),
        )

    def _shift_finding(self, shift: Shift) -> Finding:
        stretch = shift.stretch
        reward, cause = stretch.beside("reward_mean"), told_change(shift.signal.run, shift.step)
        harmful = shift.after < self.halved * shift.before and not cause and not reward.rose(1)
        return shift_finding(
            self,
            stretch,
            "Entropy went {} nats",
            (shift.before, shift.after),
            severity=Severity.WARNING if harmful else Severity.INFO,
            confidence=0.75,
            beside=reward,
            why=cause,
            remedies=_remedies(shift.step),
        )


def _remedies(step: int) -> tuple[str, ...]:
    return (
        restore(step),
        "raise the entropy bonus, the upper clip range or the sampling temperature",
        "read the completions: one text that always wins points to the reward function",
        "lower the learning rate",
    )
