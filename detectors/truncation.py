"""TRUNCATION: many completions are cut at the length cap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import SINCE, Judged, Past, Signal, Stretch, finding


class Truncation(Detector):
    """A large share of the completions is cut at the length cap, and it does not pass.

    What it detects
        The share of truncated completions stays high: from the first row to the last, after it had
        been lower, or again after it had come down.

    Why it matters
        A cut completion has no answer, so it earns nothing: groups in which all are cut give no
        gradient, and the others learn that short is good, whatever is right. It is often the root
        of zero variance and of a gradient of zero.

    How it is computed
        Rows with at least `rate` truncated completions are bad; most of five rows in a row must be.
        A run of fewer rows must be bad on all of them. The onset is walked back to where the share
        left the level of its own past. An episode of a few rows that passes or, in a run of
        `long_run` rows or more, whose share is not near 1 is info; where the share was high anyway,
        it must rise by `rise` more.

    What to do
        Raise the cap if completions are good but unfinished; otherwise look for loops and missing
        end tokens. Mask truncated completions from the loss, or punish overlong ones softly.

    When it is wrong
        Some frameworks compute the share from the longest completion of the batch instead of the
        cap. With very short caps, as in small tests, a steady share below `rate` is left alone.

    References
        Yu et al., DAPO (2025), on overlong filtering. TRL `grpo_trainer.py` (clipped ratio), verl
        `metric_utils.py` (length clip ratio), OpenRLHF (truncated rate).
    """

    id = "TRUNCATION"
    severity = Severity.WARNING
    needs = (("truncation_rate",),)
    stage = "rollout"
    caused_by = (
        "LENGTH_EXPLOSION",
        "REPETITION_LOOP",
        "KL_BLOWUP",
        "ENTROPY_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "REWARD_HACKING",
        "ZERO_VARIANCE",
    )

    rate: float = knob(
        0.5, "share of truncated completions that is too much", minimum=0.01, maximum=1
    )

    opening = fixed(5, "rows that tell how a run began")
    early = fixed(20, "rows of a run in which a high start may still pass")
    brief = fixed(3, "rows below which a start that passes is not worth a word")
    rise = fixed(0.25, "over a level that was high anyway")
    passing = fixed(15, "rows below which an episode that passes is worth knowing, no more")
    saturated = fixed(0.85, "share at which an episode of fewer rows is a warning")
    long_run = fixed(50, "rows of a run below which there is no time to wait and see")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of truncated rows."""
        cut = Signal.of(run, "truncation_rate", minimum=0)
        past = cut.past(above=0.25, warmup=3)
        departed = past.above(sigmas=2, floor=0.05)
        for stretch in Judged(cut, cut.values >= self.rate, departed).persistent():
            variant = next(rule.variant for rule in self.rules() if rule.judge(self, stretch))
            if self._worth_a_word(stretch, past, variant):
                yield self._finding(stretch, variant)

    @rule("start")
    def _start(self, stretch: Stretch) -> bool:
        """Begins with the run and passes, or still may in a run of fewer than `early` rows. That is
        normal. At most info, and nothing where it lasts `brief` rows or less.
        """
        opened_high = not stats.median(self._opening(stretch)) < self.rate / 2
        may_pass = stretch.recovered or 0 < stretch.start < len(stretch.signal) < self.early
        return stretch.start < 2 * self.opening and opened_high and may_pass

    @rule("chronic")
    def _chronic(self, stretch: Stretch) -> bool:
        """High from the first row on. The cap is too short for the task. A warning."""
        return stretch.start == 0

    @rule("relapsing")
    def _relapsing(self, stretch: Stretch) -> bool:
        """High again after it had come down from a start that was. A warning."""
        return bool((self._opening(stretch) >= self.rate).any())

    @rule("rising")
    def _rising(self, stretch: Stretch) -> bool:
        """High after it had been lower. Loops or a lost end token are likelier than a short cap. A
        warning.
        """
        return not self._relapsing(stretch)

    def _opening(self, stretch: Stretch) -> stats.FloatArray:
        """The first rows of the run, as far as they lie before the stretch."""
        return stretch.signal.values[: min(self.opening, stretch.start)]

    def _worth_a_word(self, stretch: Stretch, past: Past, variant: str | None) -> bool:
        if variant == "start":
            return len(stretch) > self.brief
        before = past.center[stretch.start]
        return bool(np.isnan(before) or stretch.usual >= before + self.rise)

    def _severity(self, stretch: Stretch, variant: str | None) -> Severity:
        short = len(stretch) < self.passing
        unsettled = stretch.usual < self.saturated and len(stretch.signal) >= self.long_run
        if variant == "start" or (short and (stretch.recovered or unsettled)):
            return Severity.INFO
        return Severity.WARNING

    def _finding(self, stretch: Stretch, variant: str | None) -> Finding:
        usual, before = stretch.usual, stretch.before()
        after = "" if np.isnan(before) else f", after {before:.0%} before"
        return finding(
            self,
            stretch,
            f"{usual:.0%} of the completions were cut at the length cap{SINCE} ({variant}){after}.",
            variant=variant,
            severity=self._severity(stretch, variant),
            confidence=0.9 if len(stretch) >= 5 else 0.6,
            evidence=(
                stretch.at_onset(self.rate),
                stretch.in_all(usual, before, "median of the episode against the median before it"),
            ),
            remedies=_remedies(stretch.signal.run.setting("max_completion_length"), variant),
        )


def _remedies(cap: object, variant: str | None) -> tuple[str, ...]:
    loops = "read truncated completions: loops or a missing end token need another cure than a cap"
    mask = "mask truncated completions from the loss, or punish overlong ones softly"
    more = f"raise max_completion_length (now {cap})" if cap else "raise the length cap"
    return (more, loops, mask) if variant == "chronic" else (loops, mask, more)
