"""LENGTH_EXPLOSION: completions run to the cap, or to many times their usual length."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import (
    SINCE,
    Judged,
    Learnt,
    Levels,
    Past,
    Signal,
    Stretch,
    after_plateau,
    drift_finding,
    finding,
    learnt_since,
    number,
    restore,
    rise_at_end,
    shift_finding,
    shifts,
)

# Logs whose lengths are steps in an environment: to stay longer is what the agent learns.
OF_EPISODES = frozenset({"monitor"})


class LengthExplosion(Detector):
    """Completions run to the cap, or to many times their usual length, and stay there.

    What it detects
        The mean completion length leaves its own level upwards for several rows, up to the length
        cap or to a multiple of the level; or it grows over the run to a multiple of what it began
        with, and nothing is learnt by it.

    Why it matters
        Completions that never stop earn their reward by accident if at all, cost the most to
        generate, and fill the inference cache. It is the usual face of a policy that has lost the
        end-of-text token, or of a reward that pays for length.

    How it is computed
        On a log scale, against the median of the run's past. Rows are long when they reach
        `cap_share` of the cap and are above `cap_growth` times the level, or above `growth` times
        the level anywhere. Most of five rows in a row must be long. The cap is taken from the
        settings, or from a largest length of single completions that is hit again and again; a run
        that was at its cap before is not judged by it. The onset is walked back to where the
        lengths began to drift, not across an earlier shift of their level. An episode of a few rows
        that passes, or whose lengths are not near the cap, is info; it is critical at the cap to
        the end of the run, else a warning. Slow growth, a shift and the last rows of a log are
        judged where no such episode is found.

    What to do
        Read the longest completions: loops, missing end token, padding for reward? Mask or
        penalise truncated completions softly, check the stop tokens and the chat template, restore
        a checkpoint from before the onset.

    When it is wrong
        Reasoning that grows longer while the evaluation or the task reward rises is what many runs
        want: as long as it stays off the cap, only a sudden multiple is reported, and as a warning.
        A change of data or of the cap itself moves the length too.

    References
        Yu et al., DAPO (2025), on soft punishment of overlong answers. Liu et al., Understanding
        R1-Zero-like training (2025), on the length bias of the loss. TRL `grpo_trainer.py` and verl
        `metric_utils.py` for what their length keys mean.
    """

    id = "LENGTH_EXPLOSION"
    severity = Severity.CRITICAL
    needs = (("completion_length_mean",),)
    stage = "rollout"
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
    blocks = fixed(8, "blocks of five rows or more that show slow growth")
    left = fixed(0.15, "part of slow growth, on a log scale, below which it had not begun")
    lead = fixed(0.1, "of the run, by which slow growth must have begun before an episode")
    shifted = fixed(1.5, "times the level before, that a shift is worth a word")
    fell_stds = fixed(3, "standard deviations that a reward fell by, that a shift is a warning")
    last_rows = fixed(3, "rows at the end of a log that rise on and on")
    twice = fixed(2, "times the level that they must have reached")
    cap_settings = fixed(
        ("max_completion_length", "max_new_tokens", "max_response_length", "response_length"),
        "settings that tell the cap",
    )
    hit = fixed(0.995, "share of the longest length that is a hit of an unknown cap")
    hits = fixed(3, "such hits, and one in twenty rows, tell the cap")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of long completions; else slow growth, a shift, or a rise at the end."""
        if run.framework in OF_EPISODES:
            return
        length = Signal.of(run, "completion_length_mean", minimum=self.points, above=0)
        drift, learnt = self._drift(length)
        sudden = list(self._long(length, drift))
        yield from sudden
        last = max((item.last_bad_step for item in sudden), default=-1)
        grown = drift is not None and drift.first > last
        if drift is not None and grown:
            yield self._grown(drift, Levels.of(length), learnt)
        if not sudden and not grown:
            yield from [*self._shift(length)] or self._rising(length)

    @rule(None)
    def _long(self, length: Signal, drift: Stretch | None) -> Iterator[Finding]:
        """Most of five rows in a row at the cap, or at a multiple of the level of the past."""
        cap = self._cap(length.run)
        at_cap = length.values >= self.cap_share * cap
        past = self._past(length, at_cap)
        long = (at_cap & past.times(self.cap_growth)) | past.times(self.growth)
        seldom = np.cumsum(at_cap) - at_cap < np.arange(len(length)) / 2
        free = 0  # rows before it belong to the episode before
        for stretch in Judged(length, long).persistent():
            start = max(free, self._onset(stretch, past))
            if drift is not None and not stretch.recovered and self._led(drift, start):
                start = max(free, drift.start)
            level = float(past.level[start])
            if np.isfinite(level) and seldom[stretch.sure]:
                yield self._finding(stretch.starting(start), level, cap)
                free = stretch.end + 1

    def _onset(self, stretch: Stretch, past: Past) -> int:
        """Where the lengths began to drift, not across a shift of their level before that."""
        drifted = stretch.extend_to_drift(past, floor=self.least_std)
        sigma = max(float(past.robust_std[stretch.sure]), self.least_std)
        if not np.isfinite(sigma):
            return stretch.sure
        return after_plateau(past.scaled, drifted.start, stretch.sure, sigma)

    def _past(self, length: Signal, at_cap: stats.BoolArray) -> Past:
        """What is learnt from: rows at the cap are, unless they had grown up to it."""
        usual = length.past(log=1, above=math.log(self.cap_growth), warmup=1)
        grown = at_cap & usual.times(self.cap_growth)
        return length.past(log=1, above=math.log(self.learnt), warmup=1, without=grown)

    def _led(self, drift: Stretch, start: int) -> bool:
        """Whether slow growth, by more than its blocks tell, led to an episode."""
        return drift.start + self.lead * len(drift.signal) < start

    @rule("slow")
    def _drift(self, length: Signal) -> tuple[Stretch | None, Learnt | None]:
        """The last tenth of the run is `growth` times as long as the first, while neither the
        evaluation nor the task's reward gained a good part of what it ever gained. A warning, and
        info where no reward is logged.
        """
        levels = Levels.of(length)
        begun, now = levels.beginning, levels.now
        if len(levels) < self.blocks or now < self.growth * begun:
            return None, None
        stretch = levels.above(begun * (now / begun) ** self.left)
        learnt = None if stretch is None else learnt_since(length.run, stretch.first)
        return (None, None) if learnt is not None and learnt.enough else (stretch, learnt)

    @rule("shift")
    def _shift(self, length: Signal) -> Iterator[Finding]:
        """The level rose by half or more from one row to the next and stays, by far more than it
        had ever changed. Info, and a warning where the reward fell with it.
        """
        for shift in shifts(length, log=1, least=math.log(self.shifted)):
            if shift.up and shift.lasts:
                yield self._shifted(shift.stretch, shift.before, shift.stretch.usual)
                return

    @rule("rising")
    def _rising(self, length: Signal) -> Iterator[Finding]:
        """The last three rows or more of a log each rise above all before them, to twice the level.
        Info: it may be the beginning of a run-away.
        """
        stretch = rise_at_end(length, self.last_rows)
        level = math.nan if stretch is None else stretch.before(self.passing)
        if stretch is not None and length.values[-1] > self.twice * level:
            yield finding(
                self,
                stretch,
                f"Mean completion length rose on each of the last {len(stretch)} rows, from "
                f"{number(level)} to {number(float(stretch.values[-1]))} tokens{SINCE}.",
                variant="rising",
                severity=Severity.INFO,
                confidence=0.6,
                evidence=(
                    stretch.at_onset(level),
                    stretch.at_top(level, "last row"),
                    stretch.in_all(len(stretch), None, "rows that rise"),
                ),
                remedies=("watch the next rows; read the longest completions", *_cures(paid=False)),
            )

    def _cap(self, run: RunContext) -> float:
        """The length cap: from the settings, or a longest completion that comes again and again.

        The largest mean is no cap: where all rows are alike, it is hit again and again too.
        """
        for name in self.cap_settings:
            value = run.setting(name)
            if isinstance(value, int | float) and value > 0:
                return float(value)
        seen = run.series("completion_length_max")
        if seen is None or not len(seen):
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
        if short and (stretch.recovered or not stretch.usual >= self.near_cap * cap):
            return Severity.INFO
        return Severity.CRITICAL if capped and not stretch.recovered else Severity.WARNING

    def _grown(self, stretch: Stretch, levels: Levels, learnt: Learnt | None) -> Finding:
        return drift_finding(
            self,
            stretch,
            "Mean completion length grew {} tokens",
            levels,
            learnt,
            remedies=(
                "read completions from before and after: better reasoning, or filler?",
                *_cures(paid=stretch.beside("reward_mean", self.rows_before).rose(1)),
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
            remedies=_cures(paid=False),
        )


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
