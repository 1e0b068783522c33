"""LENGTH_EXPLOSION: completions run to the cap, or to many times their usual length."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, number


class _Lengths:
    """Mean lengths with their level, one per row, and the cap (NaN when unknown)."""

    steps: stats.IntArray
    values: stats.FloatArray
    level: stats.FloatArray
    cap: float


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
        to drift. An episode of fewer than `passing` rows is info if it passes or is not all at the
        cap. It is critical if it is at the cap to the end.

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
    belongs = fixed(1.8, "times the level up to which lengths are learnt from")
    least_std = fixed(0.1, "of the logarithm: no lengths are steadier")
    passing = fixed(15, "rows below which an episode is info if it passes")
    saturated = fixed(0.95, "share of the cap at which so few rows are enough")
    cap_settings = fixed(
        ("max_completion_length", "max_new_tokens", "max_response_length", "response_length"),
        "settings that tell the cap",
    )

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of long completions."""
        length = Signal.of(run, "completion_length_mean", minimum=self.points, above=0)
        cap = self._cap(length)
        at_cap = length.values >= self.cap_share * cap
        # rows at the cap are never learnt from: they would become the level they are measured by
        past = length.past(log=1, above=math.log(self.belongs), warmup=1, without=at_cap)
        bad = (at_cap & past.times(self.cap_growth)) | past.times(self.growth)
        for stretch in Judged(length, bad).persistent():
            whole = stretch.extend_to_drift(past, floor=self.least_std)
            yield self._finding(whole, float(past.level[whole.start]), cap)

    def _cap(self, length: Signal) -> float:
        """The cap of lengths: a setting, or a largest length that is hit again and again."""
        run = length.run
        for name in self.cap_settings:
            value = run.setting(name)
            if isinstance(value, int | float) and value > 0:
                return float(value)
        longest = run.series("completion_length_max") or run.series("completion_length_mean")
        seen = length.values if longest is None else longest.values
        highest = stats.quantile(seen, 1.0)
        hits = int((seen >= 0.995 * highest).sum())
        return highest if hits >= max(3, len(seen) // 20) else math.nan

    def _finding(self, stretch: Stretch, level: float, cap: float) -> Finding:
        capped = stretch.usual >= self.cap_share * cap
        top = float(stretch.signal.values[stretch.top])
        end = f", at the cap of {number(cap)}" if capped else ""
        cut = stretch.beside("truncation_rate").during
        return finding(
            self,
            stretch,
            f"Mean completion length went from {number(level)} to {number(top)} tokens{end},"
            f"{SINCE}.",
            severity=self._severity(stretch, cap, capped=capped),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.at_top(cap if capped else self.growth * level, "longest mean"),
                None if math.isnan(cut) else Evidence("truncation_rate", None, cut, note="median"),
            ),
            remedies=_remedies(stretch),
        )

    def _severity(self, stretch: Stretch, cap: float, *, capped: bool) -> Severity:
        passes = stretch.recovered or stretch.usual < self.saturated * cap
        if len(stretch) < self.passing and passes:
            return Severity.INFO
        return Severity.CRITICAL if capped and not stretch.recovered else Severity.WARNING


def _remedies(stretch: Stretch) -> tuple[str, ...]:
    restore = f"restore a checkpoint from before step {stretch.first:,} once the cause is found"
    read = "read the longest completions: loops, no end token, or filler?"
    if stretch.beside("reward_mean", rows=256).rose(sigmas=1):
        return (
            read,
            "the reward rose with the length: take length out of the reward, or cap what it pays",
            restore,
        )
    return (
        read,
        "check stop tokens and chat template; penalise overlong completions softly "
        "(rlprobe.guards.length_penalty)",
        "mask truncated completions from the loss",
        restore,
    )
