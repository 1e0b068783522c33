"""LENGTH_COLLAPSE: completions shrink to a small part of what they were."""

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
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be short
LEAST_SIGMA = 0.1  # of the logarithm
LOOK_BACK = 64
FEW_TOKENS = 16  # a mean below it leaves no room to think


class LengthCollapse(Detector):
    """Completions shrink to a small part of their usual length, and stay short.

    What it detects
        The mean completion length falls far below the run's own past, for several rows.

    Why it matters
        A policy that answers in a few tokens has stopped thinking: it ends at once, or repeats the
        one answer that the reward likes. Groups of equal answers give no gradient.

    How it is computed
        On a log scale, against the median of the run's whole past, which stands still while the
        series is outside. Rows below `share` of that level are short; most of five in a row must
        be. The onset is walked back to where the lengths began to drift. If the reward rose with
        it, the policy may only have become concise: that is info. It is critical if the reward
        fell by half and a few tokens are left.

    What to do
        Read the completions: empty, cut, or one fixed phrase? Check the end-of-text token, the chat
        template and any reward for brevity; restore a checkpoint from before the onset.

    When it is wrong
        Answers become shorter in many good runs, by two or three times. A change of prompts to
        shorter tasks looks the same.

    References
        open-r1 issues on format rewards that make answers short (2025). Liu et al., Understanding
        R1-Zero-like training (2025), on what the loss does to length.
    """

    id = "LENGTH_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (("completion_length_mean",),)
    caused_by = (
        "REWARD_HACKING",
        "FORMAT_GAMING",
        "KL_BLOWUP",
        "GRAD_PATHOLOGY",
        "ENTROPY_COLLAPSE",
        "ENTROPY_EXPLOSION",
        "POLICY_MISMATCH",
        "TRUNCATION",
        "ZERO_VARIANCE",
    )

    share: float = knob(0.25, "part of the usual length", ge=0.01, le=0.9)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of short completions."""
        series = run.series("completion_length_mean")
        if series is None:
            return
        steps, values = stats.measured(series, above=0.0)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"mean length: {len(steps)} points, needs {MIN_POINTS}")
        scale = stats.logs(values, 1.0)
        limit = -float(np.log(self.share))
        past = stats.past_baseline(scale, below=limit / 2, warmup=3, window=stats.MAX_BLOCKS)
        short = past.center - scale > limit
        for episode in stats.sustained(short, width=SPAN, share=LASTING, gap=SPAN):
            sigma = max(float(past.spread[episode.start]), LEAST_SIGMA)
            z = (past.center[episode.start] - scale) / sigma
            onset = stats.drift_onset(z, episode.start)
            whole = stats.Episode(onset, episode.end, episode.recovered)
            base = float(np.exp(past.center[episode.start]))
            yield self._finding(run, steps, values, whole, base)

    def _finding(
        self,
        run: RunContext,
        steps: stats.IntArray,
        values: stats.FloatArray,
        episode: stats.Episode,
        base: float,
    ) -> Finding:
        first, last = int(steps[episode.start]), int(steps[episode.end])
        usual = stats.median(values[episode.rows])
        before, during = _rewards(run, steps, episode)
        evidence = [
            Evidence(
                "completion_length_mean", first, float(values[episode.start]), base, note="onset"
            ),
            Evidence("completion_length_mean", None, usual, base, note="median since"),
        ]
        if np.isfinite(before) and np.isfinite(during):
            evidence.append(
                Evidence("reward_mean", None, during, before, note="median since, against before")
            )
        return Finding(
            detector=self.id,
            severity=_severity(usual, before, during),
            confidence=0.9 if len(episode) >= 2 * SPAN else 0.75,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"Mean completion length fell from {stats.number(base)} to {stats.number(usual)} "
                f"tokens from step {first:,} on."
            ),
            evidence=tuple(evidence),
            remedies=_remedies(first, paid=during > before),
            metrics=("completion_length_mean",),
        )


def _severity(usual: float, before: float, during: float) -> Severity:
    if during > before:
        return Severity.INFO
    lost = during < before / 2 and usual < FEW_TOKENS
    return Severity.CRITICAL if lost else Severity.WARNING


def _rewards(run: RunContext, steps: stats.IntArray, episode: stats.Episode) -> tuple[float, float]:
    reward = stats.at_steps(run.series("reward_mean"), steps)
    before = reward[max(0, episode.start - LOOK_BACK) : episode.start]
    return stats.median(before), stats.median(reward[episode.rows])


def _remedies(first: int, *, paid: bool) -> tuple[str, ...]:
    read = "read the completions: empty, cut, or one fixed phrase?"
    if paid:
        return (read, "the reward rose with it: check that it does not pay for brevity or form")
    return (
        read,
        "check the end-of-text token, the stop tokens and the chat template",
        f"restore a checkpoint from before step {first:,}",
    )
