"""LENGTH_COLLAPSE: completions shrink to a small part of what they were."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Change,
    Judged,
    Learnt,
    Levels,
    Signal,
    Stretch,
    drift_finding,
    finding,
    learnt_since,
    number,
    restore,
    shift_finding,
    shifts,
)

# Logs whose lengths are steps in an environment: to stay longer is what the agent learns.
OF_EPISODES = frozenset({"monitor"})


class LengthCollapse(Detector):
    """Completions shrink to a small part of their usual length, and stay short.

    What it detects
        The mean completion length falls far below the run's own past, for several rows; or shrinks
        over the run to a small part of what it began with, and nothing is learnt by it.

    Why it matters
        A policy that answers in a few tokens has stopped thinking: it ends at once, or repeats the
        one answer that the reward likes. Groups of equal answers give no gradient.

    How it is computed
        On a log scale, against the median of the run's whole past, which stands still while the
        series is outside. Rows below `share` of that level are short; most of five in a row must
        be. The onset is walked back to where the lengths began to drift. If the reward clearly rose
        with it, the policy may only have become concise: that is info. It is critical if the reward
        fell by half and a few tokens are left. A shift, and slow shrinking, are judged where no
        such episode is found.

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
    blocks = fixed(8, "blocks of five rows or more that show slow shrinking")
    left = fixed(0.15, "part of it, on a log scale, below which it had not begun")
    shifted = fixed(1.5, "times shorter than before, that a shift is worth a word")
    fell_stds = fixed(3, "standard deviations that a reward fell by, that a shift is a warning")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of short completions; else a length that shrinks slowly, or that shifted."""
        if run.framework in OF_EPISODES:
            return
        length = Signal.of(run, "completion_length_mean", minimum=self.points, above=0)
        drift, learnt = self._drift(length)
        sudden = list(self._short(length, drift))
        yield from sudden
        if sudden:
            return
        if drift is not None:
            yield self._shrunk(drift, Levels.of(length), learnt)
        else:
            yield from self._shift(length)

    @rule(None)
    def _short(self, length: Signal, drift: Stretch | None) -> Iterator[Finding]:
        """Most of five rows in a row are below `share` of the level of the whole past."""
        past = length.past(log=1, below=-math.log(self.share) / 2, warmup=3, window=WHOLE)
        for stretch in Judged(length, bad=past.under(self.share)).persistent():
            level = float(past.level[stretch.start])
            drifted = stretch.extend_to_drift(past, floor=self.least_std, down=True)
            if drift is not None and not stretch.recovered and drift.start < drifted.start:
                drifted = stretch.starting(drift.start)
            yield self._finding(drifted, level)

    @rule("slow")
    def _drift(self, length: Signal) -> tuple[Stretch | None, Learnt | None]:
        """The last tenth of the run is at most `share` of the first, while neither the evaluation
        nor the task's reward gained a good part of what it ever gained. A warning, and info where
        no reward is logged.
        """
        levels = Levels.of(length)
        begun, now = levels.beginning, levels.now
        if len(levels) < self.blocks or now > self.share * begun:
            return None, None
        stretch = levels.below(begun * (now / begun) ** self.left)
        learnt = None if stretch is None else learnt_since(length.run, stretch.first)
        return (None, None) if learnt is not None and learnt.enough else (stretch, learnt)

    @rule("shift")
    def _shift(self, length: Signal) -> Iterator[Finding]:
        """The level fell to two thirds or less from one row to the next and stays, by far more than
        it had ever changed. Info, and a warning where the reward fell with it.
        """
        for shift in shifts(length, log=1, least=math.log(self.shifted)):
            if not shift.up and shift.lasts:
                yield self._shifted(shift.stretch, shift.before, shift.stretch.usual)
                return

    def _shrunk(self, stretch: Stretch, levels: Levels, learnt: Learnt | None) -> Finding:
        return drift_finding(
            self,
            stretch,
            "Mean completion length shrank {} tokens",
            levels,
            learnt,
            remedies=(
                "read completions from before and after: concise, or empty?",
                *_cures(stretch.first, paid=False),
            ),
        )

    def _shifted(self, stretch: Stretch, before: float, after: float) -> Finding:
        reward = stretch.beside("reward_mean")
        fell = reward.during < reward.before - self.fell_stds * reward.before_std
        return shift_finding(
            self,
            stretch,
            "Mean completion length went {} tokens",
            (before, after),
            severity=Severity.WARNING if fell else Severity.INFO,
            beside=reward,
            remedies=_cures(stretch.first, paid=False),
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
        if reward.rose(1):
            return Severity.INFO
        lost = reward.fell(0.5) and stretch.usual < self.few_tokens
        return Severity.CRITICAL if lost else Severity.WARNING


def _cures(first: int, *, paid: bool) -> tuple[str, ...]:
    if paid:
        return ("the reward rose with it: check that it does not pay for brevity or form",)
    return ("check the end-of-text token, the stop tokens and the chat template", restore(first))
