"""TRUNCATION: many completions are cut at the length cap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    Judged,
    Levels,
    Past,
    Signal,
    Stretch,
    finding,
    shifts,
    stretch_from,
)


class Truncation(Detector):
    """A large share of the completions is cut at the length cap, and it does not pass.

    What it detects
        The share of truncated completions stays high: from the first row to the last, after it had
        been lower, or again after it had come down; or it creeps up over the run, or rises in one
        row for good.

    Why it matters
        A cut completion has no answer, so it earns nothing: groups in which all are cut give no
        gradient, and the others learn that short is good, whatever is right. It is often the root
        of zero variance and of a gradient of zero.

    How it is computed
        Rows with at least `rate` truncated completions are bad; most of five rows in a row must be.
        A run of fewer rows must be bad on all of them. The onset is walked back to where the share
        left the level of its own past, or to where it began to creep up. An episode of a few rows
        that passes or, in a run of `long_run` rows or more, whose share is not near 1 is info;
        where the share was high anyway, it must rise by `rise` more. Where groups are small, the
        share jumps from row to row, and its mean tells. What creeps or shifts is told where no such
        episode lasts.

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
    mean_rows = fixed(10, "rows whose mean tells where the share jumps from row to row")
    blocks = fixed(8, "blocks of five rows or more that show a slow rise")
    left = fixed(0.05, "part of a slow rise below which it had not begun")
    noises = fixed(3, "times the scatter of the blocks, below which it had not begun")
    lead = fixed(0.1, "of the run, by which a slow rise must have begun before an episode")
    long_run = fixed(50, "rows of a run below which there is no time to wait and see")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of truncated rows; else a share that creeps up, or that shifts."""
        cut = Signal.of(run, "truncation_rate", minimum=0)
        if not len(cut):
            return
        lasting = self._lasting(cut)
        high = list(self._high(cut, None if lasting is None else lasting[0]))
        lower = [item for item in high if self._had_been_lower(cut, item)]
        if not lower and self._throughout(cut):
            yield self._finding(stretch_from(cut, 0), "chronic")
            return
        yield from high
        if lasting is not None and all(item.state == "recovered" for item in high):
            yield self._finding(*lasting)

    def _had_been_lower(self, cut: Signal, high: Finding) -> bool:
        """Whether a warning is of rows that followed others with a lower mean than `rate`."""
        before = cut.values[cut.steps < high.first_bad_step]
        few = len(before) < self.brief or high.severity is Severity.INFO
        return not few and float(np.mean(before)) < self.rate

    def _lasting(self, cut: Signal) -> tuple[Stretch, str] | None:
        """A share that shifted, or crept up, to the end of the run."""
        drift = self._slow(cut)
        shift = next(self._shift(cut), None)
        if shift is not None and not (drift is not None and self._led(drift, shift)):
            return shift, "shift"
        return None if drift is None else (drift, "slow")

    def _high(self, cut: Signal, lasting: Stretch | None) -> Iterator[Finding]:
        """Stretches of truncated rows; one that passes within a lasting rise is part of it."""
        for stretch, variant in self._stretches(cut):
            if lasting is None or stretch.end < lasting.start:
                yield self._finding(stretch, variant)
            elif not stretch.recovered:
                start = lasting.start if self._led(lasting, stretch) else stretch.start
                yield self._finding(stretch.starting(start), variant)

    def _stretches(self, cut: Signal) -> Iterator[tuple[Stretch, str | None]]:
        """Stretches of truncated rows, and what each of them is."""
        past = cut.past(above=0.25, warmup=3)
        departed = past.above(sigmas=2, floor=0.05)
        for stretch in Judged(cut, cut.values >= self.rate, departed).persistent():
            variant = self._variant(stretch)
            if self._worth_a_word(stretch, past, variant):
                yield stretch, variant

    def _variant(self, stretch: Stretch) -> str | None:
        kinds = (
            ("start", self._start),
            ("chronic", self._chronic),
            ("relapsing", self._relapsing),
            ("rising", self._rising),
        )
        return next(variant for variant, judge in kinds if judge(stretch))

    def _throughout(self, cut: Signal) -> bool:
        """Whether the mean of ten rows is high throughout, although single rows are not."""
        if len(cut) < 2 * self.mean_rows or float(np.mean(cut.values)) < self.rate:
            return False
        means = stats.rolling_mean(cut.values, self.mean_rows)[self.mean_rows - 1 :]
        return bool(means.min() >= self.rate / 2)

    def _led(self, drift: Stretch, stretch: Stretch) -> bool:
        """Whether a slow rise, by more than its blocks tell, led to an episode."""
        return drift.start + self.lead * len(drift.signal) < stretch.start

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
        """High from the first row on, or the mean of ten rows is. The cap is too short for the
        task. A warning.
        """
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

    @rule("slow")
    def _slow(self, cut: Signal) -> Stretch | None:
        """The share of the last tenth of the run is above that of the first by `rise`. The onset is
        where it left that for good. A warning.
        """
        levels = Levels.of(cut)
        begun, now = levels.beginning, levels.now
        if len(levels) < self.blocks or now < begun + self.rise:
            return None
        return levels.above(begun + max(self.left * (now - begun), self.noises * levels.noise))

    @rule("shift")
    def _shift(self, cut: Signal) -> Iterator[Stretch]:
        """The share rose in one row and stays, to half of `rate` or more, by far more than it had
        ever changed. A warning.
        """
        for shift in shifts(cut, least=self.rise / 2):
            if shift.up and shift.lasts and shift.after >= self.rate / 2:
                yield shift.stretch
                return

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
        if variant in ("slow", "shift"):
            return Severity.WARNING
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
