"""ENTROPY_EXPLOSION: the policy turns to noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Change,
    Judged,
    Shift,
    Signal,
    Stretch,
    beginning,
    finding,
    from_drift,
    number,
    restore,
    shift_finding,
    shifts,
    told_change,
)


class EntropyExplosion(Detector):
    """The policy's entropy rises to a multiple of its past and stays: its text turns to noise.

    What it detects
        An entropy far above both the run's start and its own past, for several rows: at once, or
        after a long climb; or one that doubles from one row to the next.

    Why it matters
        A policy that picks tokens almost at random earns nothing, runs to the length cap, and
        gives no gradient to come back by. It is commoner than the collapse of entropy.

    How it is computed
        On a log scale, against the highest level that the median of the run's past ever had, or
        that of its last `recent` rows where the reward has lost half of its best level; the level
        stands still while the series is outside. Rows above `ratio` times that level are bad
        (`first_ratio` times, in the first rows); most of five in a row must be. So are rows above
        `ratio` times the median of the first `start_rows` rows, if most of `span` in a row are. The
        onset is walked back to where the entropy left its usual scatter, or, if the rise took more
        than a few rows, to the bend at which it set in. It is critical if the reward fell by half
        with it or a token carries more than `noise` nats, info if the reward rose, else a warning.

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
    stage = "policy"
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
    recent = fixed(32, "rows that are the past of a run whose reward has fallen")
    start_rows = fixed(16, "rows that the start is taken from, or a twentieth of a long run")
    span = fixed(10, "rows looked at together, most of which must be above the start")
    doubled = fixed(2.0, "times the level before, at one row and for good")
    first_rows = fixed(4, "rows from the start on that must reach `first_ratio`")
    first_ratio = fixed(10.0, "times the level, among the first rows")
    departed = fixed(0.4, "of the logarithm, or 3 robust standard deviations: out of its range")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """High entropy against the past and against the start, then jumps of the level."""
        entropy = Signal.of(run, "entropy", minimum=self.points, above=0)
        reported = np.zeros(len(entropy), dtype=np.bool_)
        for stretch, level in (*self._against_past(entropy), *self._against_start(entropy)):
            if not reported[stretch.core].any():
                yield self._finding(stretch, level)
            reported[stretch.rows] = True
        yield from self._shift(entropy, reported)

    @rule(None)
    def _against_past(self, entropy: Signal) -> Iterator[tuple[Stretch, float]]:
        """Stretches above the run's own past, with the level that they left."""
        belongs = math.log(self.ratio) / 2
        recent = entropy.past(log=1e-12, above=belongs, warmup=1, window=self.recent)
        if not recent.times(self.ratio).any():
            return
        past = entropy.past(log=1e-12, above=belongs, warmup=1, window=WHOLE)
        highest = stats.rolling_max(past.center)
        known = np.isfinite(recent.center)
        level = np.where(self._earns_less(entropy) & known, recent.center, highest)
        past = dataclasses.replace(past, center=level)
        first = np.arange(len(entropy)) < self.first_rows
        bad = np.where(first, past.times(self.first_ratio), past.times(self.ratio))
        departed = past.above(sigmas=3, at_least=self.departed)
        high = Judged(entropy, bad, departed).persistent()
        for stretch in from_drift(high, np.log(entropy.values)):
            yield stretch, float(past.level[stretch.start])

    def _against_start(self, entropy: Signal) -> Iterator[tuple[Stretch, float]]:
        """Stretches above the run's start, however slowly they got there, with that start."""
        start = beginning(entropy, self.start_rows)
        bad = entropy.values > self.ratio * start
        bad[: self.start_rows] = False
        left_start = entropy.values > math.exp(self.departed) * start
        high = Judged(entropy, bad, left_start).persistent(self.span)
        yield from ((it, start) for it in from_drift(high, np.log(entropy.values)))

    @rule("shift")
    def _shift(self, entropy: Signal, reported: stats.BoolArray) -> Iterator[Finding]:
        """The level is `doubled` times as high from one row on and for good, which is far more than
        it ever moved. A warning, if no event of the run tells of a change there and the reward does
        not rise by it; otherwise info.
        """
        for shift in shifts(entropy, log=1e-9, least=math.log(self.doubled)):
            if shift.up and shift.lasts and not reported[shift.row]:
                yield self._shift_finding(shift)

    def _earns_less(self, entropy: Signal) -> stats.BoolArray:
        """Where the reward has lost half of the best level that it had reached."""
        reward = entropy.with_values(stats.finite(entropy.beside("reward_mean")))
        return reward.best_level(16, warmup=4).lost(0.5)

    def _finding(self, stretch: Stretch, level: float) -> Finding:
        reward = stretch.beside("reward_mean")
        went = f", while the reward went from {number(reward.before)} to {number(reward.during)}"
        bonus = stretch.signal.run.setting("entropy_coef")
        return finding(
            self,
            stretch,
            f"Entropy rose from {number(level)} to {number(stretch.usual)} nats{SINCE}"
            f"{went if reward.known else ''}.",
            severity=self._severity(stretch, reward),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, level, "level since, against what it is judged by"),
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

    def _shift_finding(self, shift: Shift) -> Finding:
        stretch = shift.stretch
        reward, cause = stretch.beside("reward_mean"), told_change(shift.signal.run, shift.step)
        harmless = bool(cause) or reward.rose(1)
        return shift_finding(
            self,
            stretch,
            "Entropy went {} nats",
            (shift.before, shift.after),
            severity=Severity.INFO if harmless else Severity.WARNING,
            confidence=0.75,
            beside=reward,
            why=cause,
            remedies=(restore(shift.step),),
        )

    def _severity(self, stretch: Stretch, reward: Change) -> Severity:
        if reward.rose(1):
            return Severity.INFO
        lost = stretch.usual > self.noise or reward.fell(0.5)
        return Severity.CRITICAL if lost else Severity.WARNING
