"""CLIP_SATURATION: the trust region clips a large share of the tokens, for long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    Judged,
    Signal,
    Stretch,
    beginning,
    finding,
    from_drift,
    stretch_from,
)


class ClipSaturation(Detector):
    """The trust region clips a large share of the tokens, for many rows.

    What it detects
        A share of clipped tokens that left its own past and stays high, one that has climbed to
        there from a low beginning, however slowly, one that was high from the first row on, or
        nearly all clips on one side.

    Why it matters
        A clipped token gives no gradient. When many are clipped, the updates are too large for the
        batch they come from, and what is learnt comes from the rest.

    How it is computed
        From the share of clipped tokens; most of `span` rows in a row must be bad. A usual run
        clips a few percent of its tokens; above `share` the updates are too large. One-sided
        clipping is only looked for where the share as a whole is not too high.

    What to do
        Lower the learning rate or the number of updates per batch; check that the sampler's and the
        trainer's log-probabilities agree; only then widen the clip range.

    When it is wrong
        Frameworks count differently: all ratios outside the range, or only those whose clip binds,
        which is about half. With one update per batch the share is 0 by construction.

    References
        Schulman et al., Proximal policy optimization (2017). Zheng et al., Group sequence policy
        optimization (2025), on clip shares of sequence ratios. Yu et al., DAPO (2025).
    """

    id = "CLIP_SATURATION"
    severity = Severity.WARNING
    needs = (("clip_fraction",), ("clip_fraction_low", "clip_fraction_high"))
    stage = "policy"
    caused_by = ("POLICY_MISMATCH", "ADVANTAGE_NOISE", "GRAD_PATHOLOGY", "RESTART_DISCONTINUITY")

    share: float = knob(0.3, "share of clipped tokens", minimum=0.01, maximum=1)
    growth: float = knob(2, "times the run's own past", minimum=1)
    one_side: float = knob(5, "times the share of the other side", minimum=1.5)

    points = fixed(8, "logged shares that are needed")
    span = fixed(10, "rows looked at together, most of which must be bad")
    sigmas = fixed(3, "robust standard deviations that are the share's usual scatter")
    least_rise = fixed(0.2, "part of `share` that is never more than scatter")
    most = fixed(0.6, "share of clipped tokens that no kind of ratio explains")
    always_rows = fixed(20, "rows of a run that clips from the first on, to be worth a word")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Shares that rose, a share that always was high, or one-sided clipping."""
        clipped = Signal.logged(run, "clip_fraction")
        high: tuple[Finding, ...] = ()
        if clipped is not None:
            clipped.require(self.points)
            if (clipped.values > self.share).any():
                rose = self._rose(clipped)
                high = tuple(self._rising(rose)) or tuple(self._drifting(clipped))
                high = high or tuple(self._steady(rose))
        yield from high or self._one_sided(run)

    def _rose(self, clipped: Signal) -> Judged:
        past = clipped.past(above=self.share / 2, warmup=3)
        bad = (clipped.values > self.share) & past.times(self.growth)
        departed = past.above(sigmas=self.sigmas, at_least=self.least_rise * self.share)
        return Judged(clipped, bad, departed)

    @rule("rising")
    def _rising(self, rose: Judged) -> Iterator[Finding]:
        """More than `share` is clipped, and more than `growth` times the median of the past. The
        onset is walked back to where the share left its usual scatter. A warning.
        """
        for stretch in rose.persistent(self.span):
            yield self._finding(stretch, "rising", _CALM)

    @rule("drifting")
    def _drifting(self, clipped: Signal) -> Iterator[Finding]:
        """More than `share` is clipped, and more than `growth` times the median of the first `span`
        rows. The onset is the bend at which the climb set in. A warning.
        """
        start = beginning(clipped, self.span)
        bad = clipped.values > max(self.share, self.growth * start)
        bad[: self.span] = False
        high = Judged(clipped, bad).persistent(self.span)
        for stretch in from_drift((it.starting(0) for it in high), clipped.values):
            yield self._finding(stretch, "drifting", _CALM, start)

    @rule("steady")
    def _steady(self, rose: Judged) -> Iterator[Finding]:
        """The median of `always_rows` rows or more is above `share`, without a rise. Info: ratios
        of whole sequences clip 10 to 45 % in healthy runs. A warning above `most`.
        """
        whole = stretch_from(rose.signal, 0)
        if len(whole) >= self.always_rows and whole.usual > self.share and not rose.bad.any():
            yield self._finding(whole, "steady", _USUAL)

    @rule("one_sided")
    def _one_sided(self, run: RunContext) -> Iterator[Finding]:
        """One side's share is above half of `share` and `one_side` times the other's. Info."""
        for side, other in (("low", "high"), ("high", "low")):
            clipped = Signal.logged(run, f"clip_fraction_{side}")
            if clipped is None or len(clipped) < self.span:
                continue
            bad = clipped.values > self.share / 2
            if bad.any():
                bad &= clipped.values > self.one_side * clipped.beside(f"clip_fraction_{other}")
            for stretch in Judged(clipped, bad).persistent(self.span, gap=2 * self.span)[:1]:
                yield self._finding(stretch, "one_sided", _SIGNED)

    def _finding(
        self, stretch: Stretch, variant: str, remedies: tuple[str, ...], start: float | None = None
    ) -> Finding:
        usual = stats.median(stretch.signal.values[stretch.core])
        before = stretch.before(rows=64) if start is None else start
        when = "before" if start is None else "at the beginning"
        after = f", after {before:.1%} {when}" if np.isfinite(before) else ""
        side = f" on one side ({stretch.signal.metric})" if variant == "one_sided" else ""
        bad = variant in ("rising", "drifting") or (variant == "steady" and usual > self.most)
        return finding(
            self,
            stretch,
            f"{usual:.0%} of the tokens were clipped{side}{SINCE} ({variant}){after}."
            if start is None
            else f"The share of clipped tokens climbed{SINCE} to {usual:.0%}{after}.",
            variant=variant,
            severity=Severity.WARNING if bad else Severity.INFO,
            confidence=0.8 if bad else 0.5,
            evidence=(
                stretch.at_onset(self.share),
                stretch.in_all(usual, before, f"level while it is high, against {when}"),
            ),
            remedies=remedies,
        )


_CALM = (
    "lower the learning rate or the number of updates per batch",
    "check that the log-probabilities of sampler and trainer agree",
    "stop the inner epochs when the drift passes a target",
)
_USUAL = (
    "nothing, if the ratio is one of whole sequences",
    "otherwise fewer updates per batch, or a lower learning rate",
)
_SIGNED = (
    "check the sign and the normalisation of the advantages",
    "a higher upper clip range keeps rare tokens alive",
)
