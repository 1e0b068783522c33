"""LENGTH_EXPLOSION: completions run to the cap, or to many times their usual length."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, number, restore


class LengthExplosion(Detector):
    """Completions run to the cap, or to many times their usual length, and stay there.

    What it detects
        The mean completion length leaves its own level upwards for several rows: up to the length
        cap, or to a multiple of the level where no cap is known.

    Why it matters
        Completions that never stop earn their reward by accident if at all, cost the most to
        generate, and fill the inference cache. It is the usual face of a policy that has lost the
        end-of-text token, or of a reward that pays for length.

    How it is computed
        On a log scale, against the median of the run's past. Rows are long when they reach
        `cap_share` of the cap and are above `cap_growth` times the level, or above `growth` times
        the level anywhere. Most of five rows in a row must be long. The cap is taken from the
        settings, or from the largest length that is hit again and again. Slow growth moves the
        level with it; rows at the cap do not. The onset is walked back to where the lengths began
        to drift. An episode of a few rows that passes, or whose lengths are not near the cap, is
        info; it is critical at the cap to the end of the run, else a warning.

    What to do
        Read the longest completions: loops, missing end token, padding for reward? Mask or
        penalise truncated completions softly, check the stop tokens and the chat template, restore
        a checkpoint from before the onset.

    When it is wrong
        Reasoning that grows longer with rising reward is what many runs want: as long as it stays
        off the cap, only a sudden multiple is reported, and as a warning. A change of data or of
        the cap itself moves the length too.

    References
        Yu et al., DAPO (2025), on soft punishment of overlong answers. Liu et al., Understanding
        R1-Zero-like training (2025), on the length bias of the loss. TRL `grpo_trainer.py` and verl
        `metric_utils.py` for what their length keys mean.
    """

    id = "LENGTH_EXPLOSION"
    severity = Severity.CRITICAL
    needs = (("completion_length_mean",),)
    caused_by = (
        "REPETITION_LOOP",
        "KL_BLOWUP",
        "GRAD_PATHOLOGY",
        "ENTROPY_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "REWARD_HACKING",
        "POLICY_MISMATCH",
        "ZERO_VARIANCE",
    )

    cap_share: float = knob(
        0.85, "share of the cap that counts as at the cap", minimum=0.3, maximum=1
    )
    cap_growth: float = knob(1.4, "times the level, where the cap is reached", minimum=1)
    growth: float = knob(3, "times the level, anywhere", minimum=1.2)

    points = fixed(4, "logged lengths that are needed")
    learnt = fixed(1.8, "times the level up to which lengths move it")
    passing = fixed(15, "rows below which an episode may be info")
    near_cap = fixed(0.95, "share of the cap at which fewer rows are enough")
    least_std = fixed(0.1, "of the logarithm: no lengths are steadier")
    rows_before = fixed(256, "rows before an episode that its reward is compared with")
    cap_settings = fixed(
        ("max_completion_length", "max_new_tokens", "max_response_length", "response_length"),
        "settings that tell the cap",
    )
    hit = fixed(0.995, "share of the longest length that is a hit of an unknown cap")
    hits = fixed(3, "such hits, and one in twenty rows, tell the cap")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of long completions."""
        length = Signal.of(run, "completion_length_mean", minimum=self.points, above=0)
        cap = self._cap(run)
        at_cap = length.values >= self.cap_share * cap
        # rows at the cap would become the level that they are measured by
        past = length.past(log=1, above=math.log(self.learnt), warmup=1, without=at_cap)
        long = (at_cap & past.times(self.cap_growth)) | past.times(self.growth)
        for stretch in Judged(length, long).persistent():
            drifted = stretch.extend_to_drift(past, floor=self.least_std)
            yield self._finding(drifted, float(past.level[drifted.start]), cap)

    def _cap(self, run: RunContext) -> float:
        """The length cap: from the settings, or a largest length that is hit again and again."""
        for name in self.cap_settings:
            value = run.setting(name)
            if isinstance(value, int | float) and value > 0:
                return float(value)
        seen = run.series("completion_length_max") or run.series("completion_length_mean")
        if seen is None:
            return math.nan
        highest = stats.quantile(seen.values, 1)
        hits = int((seen.values >= self.hit * highest).sum())
        return highest if hits >= max(self.hits, len(seen) // 20) else math.nan

    def _finding(self, stretch: Stretch, level: float, cap: float) -> Finding:
        capped = stretch.usual >= self.cap_share * cap
        where = f", at the cap of {number(cap)}" if capped else ""
        highest = float(stretch.values.max())
        cut = stretch.beside("truncation_rate").during
        return finding(
            self,
            stretch,
            f"Mean completion length went from {number(level)} to {number(highest)} tokens{where},"
            f"{SINCE}.",
            severity=self._severity(stretch, cap, capped=capped),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.at_top(cap if capped else self.growth * level, "longest mean"),
                Evidence("truncation_rate", None, cut, note="median") if np.isfinite(cut) else None,
            ),
            remedies=(
                "read the longest completions: loops, no end token, or filler?",
                *_cures(paid=stretch.beside("reward_mean", self.rows_before).rose(1)),
                f"{restore(stretch.first)} once the cause is found",
            ),
        )

    def _severity(self, stretch: Stretch, cap: float, *, capped: bool) -> Severity:
        short = len(stretch) < self.passing
        if short and (stretch.recovered or stretch.usual < self.near_cap * cap):
            return Severity.INFO
        return Severity.CRITICAL if capped and not stretch.recovered else Severity.WARNING


def _cures(*, paid: bool) -> tuple[str, ...]:
    if paid:
        return (
            "the reward rose with the length: take length out of the reward, or cap what it pays",
        )
    return (
        "check stop tokens and chat template; penalise overlong completions softly "
        "(rlprobe.guards.length_penalty)",
        "mask truncated completions from the loss",
    )
