"""LENGTH_COLLAPSE: completions shrink to a small part of what they were."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import SINCE, WHOLE, Change, Judged, Signal, Stretch, finding, number, restore


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
    stage = "rollout"
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

    share: float = knob(0.25, "part of the usual length", minimum=0.01, maximum=0.9)

    points = fixed(8, "logged lengths that are needed")
    few_tokens = fixed(16, "mean length that leaves no room to think")
    least_std = fixed(0.1, "of the logarithm: no lengths are steadier")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of short completions."""
        length = Signal.of(run, "completion_length_mean", minimum=self.points, above=0)
        past = length.past(log=1, below=-math.log(self.share) / 2, warmup=3, window=WHOLE)
        for stretch in Judged(length, bad=past.under(self.share)).persistent():
            level = float(past.level[stretch.start])
            yield self._finding(
                stretch.extend_to_drift(past, floor=self.least_std, down=True), level
            )

    def _finding(self, stretch: Stretch, level: float) -> Finding:
        reward = stretch.beside("reward_mean")
        return finding(
            self,
            stretch,
            f"Mean completion length fell from {number(level)} to {number(stretch.usual)} "
            f"tokens{SINCE}.",
            severity=self._severity(stretch, reward),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, level, "median since"),
                reward.evidence(),
            ),
            remedies=(
                "read the completions: empty, cut, or one fixed phrase?",
                *_cures(stretch.first, paid=reward.rose()),
            ),
        )

    def _severity(self, stretch: Stretch, reward: Change) -> Severity:
        if reward.rose():
            return Severity.INFO
        lost = reward.fell(0.5) and stretch.usual < self.few_tokens
        return Severity.CRITICAL if lost else Severity.WARNING


def _cures(first: int, *, paid: bool) -> tuple[str, ...]:
    if paid:
        return ("the reward rose with it: check that it does not pay for brevity or form",)
    return ("check the end-of-text token, the stop tokens and the chat template", restore(first))
