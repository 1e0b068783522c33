"""CLIP_SATURATION: the trust region clips a large share of the tokens, for long."""

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

MIN_POINTS = 8
SPAN = 10  # rows that are looked at together
LASTING = 0.8  # share of them that must be high
ALWAYS_ROWS = 20  # rows of a run that clips from the first on, before that is worth a word
LOOK_BACK = 64


class ClipSaturation(Detector):
    """The trust region clips a large share of the tokens, for many rows.

    What it detects
        `rising`: a share of clipped tokens that left its own past and stays high. `steady`: a high
        share from the first row on. `one_sided`: nearly all clips on one side.

    Why it matters
        A clipped token gives no gradient. When many are clipped, the updates are too large for the
        batch they come from, and what is learnt comes from the rest.

    How it is computed
        Rows with more than `share` clipped that are also above `growth` times the median of the
        past are bad; most of ten in a row must be. The onset is walked back to where the share
        left its usual scatter. A share that was high from the start is info: sequence-level ratios
        clip 10 to 45 % in healthy runs. One side is reported, as info, when it holds `one_side`
        times the other's share and at least half of `share`.

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
    caused_by = ("POLICY_MISMATCH", "ADVANTAGE_NOISE", "GRAD_PATHOLOGY", "RESTART_DISCONTINUITY")

    share: float = knob(0.3, "share of clipped tokens", minimum=0.01, maximum=1)
    growth: float = knob(2, "times the run's own past", minimum=1)
    one_side: float = knob(5, "times the share of the other side", minimum=1.5)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Shares that rose, a share that always was high, and one-sided clipping."""
        series = run.series("clip_fraction")
        if series is not None:
            steps, values = stats.measured(series)
            if len(steps) < MIN_POINTS:
                raise Inconclusive(f"clip fraction: {len(steps)} points, needs {MIN_POINTS}")
            found = tuple(self._high(run, steps, values))
            yield from found
            if found:
                return
        yield from self._one_sided(run)

    def _high(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        if not (values > self.share).any():
            return
        past = stats.past_baseline(values, above=self.share / 2, warmup=3)
        rose = (values > self.share) & (values > self.growth * past.center)
        left = values > past.center + np.maximum(3 * past.robust_std, self.share / 5)
        for episode in stats.persistent(rose, width=SPAN, share=LASTING, gap=SPAN):
            start = stats.extend_back(left, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            yield self._finding(run, steps, values, whole, "rising")
        if not rose.any() and len(values) >= ALWAYS_ROWS and stats.median(values) > self.share:
            whole = stats.Episode(0, len(values) - 1, recovered=False)
            yield self._finding(run, steps, values, whole, "steady")

    def _one_sided(self, run: RunContext) -> Iterator[Finding]:
        for name, other in (
            ("clip_fraction_low", "clip_fraction_high"),
            ("clip_fraction_high", "clip_fraction_low"),
        ):
            series = run.series(name)
            if series is None:
                continue
            steps, values = stats.measured(series)
            if not (values > self.share / 2).any():
                continue
            across = stats.at_steps(run.series(other), steps)
            bad = (values > self.share / 2) & (values > self.one_side * across)
            for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=2 * SPAN)[:1]:
                if len(values) >= SPAN:
                    yield self._finding(run, steps, values, episode, "one_sided", name)

    def _finding(
        self,
        run: RunContext,
        steps: stats.IntArray,
        values: stats.FloatArray,
        episode: stats.Episode,
        variant: str,
        metric: str = "clip_fraction",
    ) -> Finding:
        first, last = int(steps[episode.start]), int(steps[episode.end])
        usual = stats.median(values[episode.rows])
        before = stats.median(values[max(0, episode.start - LOOK_BACK) : episode.start])
        since = f", after {before:.1%} before" if np.isfinite(before) else ""
        side = f" on one side ({metric})" if variant == "one_sided" else ""
        return Finding(
            detector=self.id,
            variant=variant,
            severity=Severity.WARNING if variant == "rising" else Severity.INFO,
            confidence=0.8 if variant == "rising" else 0.5,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"{usual:.0%} of the tokens were clipped{side} from step {first:,} on ({variant})"
                f"{since}."
            ),
            evidence=(
                Evidence(metric, first, float(values[episode.start]), self.share, note="onset"),
                Evidence(
                    metric,
                    None,
                    usual,
                    before if np.isfinite(before) else None,
                    note="median since, against before",
                ),
            ),
            remedies=_REMEDIES[variant],
            metrics=(metric,),
        )


_REMEDIES = {
    "rising": (
        "lower the learning rate or the number of updates per batch",
        "check that the log-probabilities of sampler and trainer agree",
        "stop the inner epochs when the drift passes a target",
    ),
    "steady": (
        "nothing, if the ratio is one of whole sequences",
        "otherwise fewer updates per batch, or a lower learning rate",
    ),
    "one_sided": (
        "check the sign and the normalisation of the advantages",
        "a higher upper clip range keeps rare tokens alive",
    ),
}
