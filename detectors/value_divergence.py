"""VALUE_DIVERGENCE: the critic predicts worse than a constant, or its loss leaves its range."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    Signal,
    Stretch,
    descent_onset,
    finding,
    number,
    stretch_from,
)


class ValueDivergence(Detector):
    """The critic predicts worse than a constant for long, or its loss leaves its range.

    What it detects
        An explained variance below zero for many rows, after it had been above, or from the first
        row to the last; one far below zero, also from the first rows on; or a value loss far above
        its own past for several rows.

    Why it matters
        Advantages are returns minus the critic's guess. A critic that is worse than a constant
        adds noise to every advantage, and a large value loss moves the layers that it shares with
        the policy.

    How it is computed
        Each of the two is compared with its own past, which stands still while it is outside.
        Values that are not finite are passed over: NaN stands for returns without variance. The
        onset of an explained variance is where it began to fall, not where it crossed zero.

    What to do
        Lower the critic's learning rate, clip the value loss, normalise returns, warm the critic
        up before the policy moves. Look at the reward: a change of its scale is a new task for the
        critic.

    When it is wrong
        A critic's first rows are a cold start. When the rewards change their scale, or lengths do,
        the loss of a healthy critic moves too, and comes back.

    References
        Schulman et al., High-dimensional continuous control using generalized advantage estimation
        (2016). Yuan et al., VC-PPO (2025), on value warm-up. trlX issue on a value loss that
        jumped with the loss scale.
    """

    id = "VALUE_DIVERGENCE"
    severity = Severity.WARNING
    needs = (("explained_variance",), ("value_loss",))
    stage = "loss"
    caused_by = (
        "REWARD_HACKING",
        "REWARD_COLLAPSE",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "NONFINITE_METRIC",
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "LOSS_SCALE_COLLAPSE",
        "RESTART_DISCONTINUITY",
    )

    rows: int = knob(10, "rows with a negative explained variance", unit="rows", minimum=2)
    ratio: float = knob(5, "times the value loss's own past", minimum=1.5)

    points = fixed(8, "values that are needed, and a past that the critic may have learnt in")
    knew = fixed(0.1, "explained variance that shows that the critic had learnt")
    negative = fixed(-0.05, "explained variance with which it is worse than a constant")
    always = fixed(0.9, "share of all rows that a critic which never learnt is worse on")
    far = fixed(-0.5, "explained variance with which it is far worse than a constant")
    gained = fixed(0.125, "part of what is missing that half of the rows must gain: a cold start")
    past_rows = fixed(64, "rows before a fall that its mean is compared with")
    before_rows = fixed(16, "rows before a fall whose median is what it fell from")
    least_std = fixed(0.15, "of the logarithm of the value loss: none is steadier")
    bad_stds = fixed(4, "robust standard deviations that a value loss must be above its level")
    departed_stds = fixed(3, "robust standard deviations above its level: the rise began")

    @rule("explained_variance")
    def _variance(self, run: RunContext) -> Iterator[Finding]:
        """Most of `rows` rows in a row are below -0.05, after the median of the past had been above
        0.1; or below -0.5, after it had not been; or more than nine tenths of at least five times
        as many rows are below -0.05, if it never had been above 0.1. A warning.
        """
        variance = Signal.logged(run, "explained_variance")
        if variance is None:
            return
        if found := self._from_the_start(variance):
            yield found
            return
        variance.require(self.points)
        past = variance.past(below=self.knew, warmup=self.points)
        best = stats.rolling_max(past.level)
        below, knew = variance.values < self.negative, best > self.knew
        bad = (below & knew) | ((variance.values < self.far) & (best > self.far / 2))
        if len(variance) >= 5 * self.rows and not knew.any() and below.mean() > self.always:
            if not self._learns(variance):
                yield self._blind(stretch_from(variance, 0))
            return
        for stretch in Judged(variance, bad, below & knew, best).persistent(self.rows):
            if stretch.start >= self.points and self._fell(stretch):
                reached = min(stretch.sure + self.rows - 1, stretch.end)
                fell = descent_onset(variance.values, reached)
                yield self._blind(stretch.starting(min(fell, stretch.sure)))

    def _from_the_start(self, variance: Signal) -> Finding | None:
        """A critic that is far worse than a constant on all rows, and is not getting better."""
        values = variance.values
        far = len(values) > 0 and np.mean(values < self.far) >= self.always
        if not far or self._learns(variance):
            return None
        long = len(values) >= 2 * self.rows
        return self._blind(stretch_from(variance, 0), Severity.WARNING if long else Severity.INFO)

    def _learns(self, variance: Signal) -> bool:
        """Whether a critic that began badly is getting better: a cold start."""
        half = len(variance) // 2
        if not half:
            return False
        was, now = (stats.median(part) for part in (variance.values[:half], variance.values[half:]))
        error = self.bad_stds * stats.noise(variance.values) / math.sqrt(half)
        return now - was > max(error, self.gained * abs(now))

    def _fell(self, stretch: Stretch) -> bool:
        """Whether its median is below what was before by more than scatter."""
        if len(stretch) < self.rows:
            return False
        core = stretch.signal.values[stretch.core]
        drop = stretch.before(self.past_rows) - stats.median(core)
        return drop > self.bad_stds * stats.noise(stretch.signal.values) / math.sqrt(self.rows)

    @rule("value_loss")
    def _loss(self, run: RunContext) -> Iterator[Finding]:
        """On a log scale, the value loss is above `ratio` times the median of its past, and outside
        four times its scatter, on most of five rows in a row. The onset is walked back to where it
        left three times its scatter. A warning, but info if the reward rose with it.
        """
        loss = Signal.logged(run, "value_loss")
        if loss is None:
            return
        loss.require(self.points)
        limit = math.log(self.ratio)
        past = loss.past(log=1e-12, above=limit / 2, warmup=self.points // 2)
        bad = past.above(sigmas=self.bad_stds, at_least=limit, floor=self.least_std)
        departed = past.above(sigmas=self.departed_stds, floor=self.least_std)
        for stretch in Judged(loss, bad, departed, past.level).persistent():
            yield self._loud(stretch)

    def _blind(self, stretch: Stretch, severity: Severity = Severity.WARNING) -> Finding:
        before = stretch.before(self.before_rows)
        usual = stats.median(stretch.signal.values[stretch.core])
        below = int(stretch.signal.steps[stretch.sure])
        since = f" at the median since step {below:,}" if below > stretch.first else ""
        fell = (
            f"The explained variance fell{SINCE}, from {number(before)} to {number(usual)}{since}: "
            "the critic is worse than a constant."
        )
        never = (
            f"The critic is worse than a constant{SINCE}, from the first row on: explained "
            f"variance {number(usual)}."
        )
        return finding(
            self,
            stretch,
            fell if stretch.start else never,
            variant="explained_variance",
            severity=severity,
            confidence=0.8 if before > 0 else 0.65,
            evidence=(
                stretch.at_onset(0.0),
                stretch.in_all(usual, before, "median of the rows below zero, against before"),
                stretch.beside("value_loss").evidence(),
            ),
            remedies=(
                "normalise the returns, and clip the value loss",
                "lower the critic's learning rate, or warm it up before the policy moves",
                "check that the critic sees the same tokens and masks as the policy",
            ),
        )

    def _loud(self, stretch: Stretch) -> Finding:
        # larger returns are harder to guess: the critic then has more to learn, not less sense
        earned, level = stretch.beside("reward_mean").rose(2), stretch.onset_level
        return finding(
            self,
            stretch,
            f"The value loss rose from {number(level)} to {number(stretch.usual)}{SINCE}"
            f"{', as the reward rose' if earned else ''}.",
            variant="value_loss",
            severity=Severity.INFO if earned else Severity.WARNING,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, stretch.before(64), "median since, against before"),
            ),
            remedies=(
                "look at the reward at that step: a new scale, an outlier, longer episodes?",
                "clip the value loss, and normalise the returns",
                "lower the critic's learning rate",
            ),
        )
