"""ZERO_VARIANCE: groups whose rewards are all equal, so that nothing is learnt from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    TELL_GROUPS,
    Judged,
    Reach,
    Signal,
    Stretch,
    dead_parts,
    early,
    equal,
    finding,
    flat_and_reward,
    from_drift,
    in_blocks,
    number,
    reached_top,
    told_of_few,
)
from rlprobe.values import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class _Shares:
    """The share of flat groups, one entry per row, and what the reward did.

    Attributes:
        signal: the metric that tells the share, as logged.
        reward: mean reward; NaN where none is logged.
        reach: how far it, or its part for the task, can go.
        low, high: where the reward is in the low and in the high part of what the run has shown.
        poor: where that is low, has not risen, and most groups are flat.
        best: the top of what the run has shown.
        dead: where a component of the reward that had been earned is 0.
    """

    signal: Signal
    flat: FloatArray
    reward: FloatArray
    reach: Reach
    low: BoolArray
    high: BoolArray
    poor: BoolArray
    best: float
    dead: BoolArray

    @property
    def exact(self) -> bool:
        """Whether the share is known as such, not told from a spread or a mean."""
        return self.signal.metric in TELL_GROUPS

    @property
    def unpaid(self) -> BoolArray:
        """Where the reward, or a part of it that had been earned, is at its floor."""
        return self.low | (self.dead & ~self.high)

    @property
    def beginning(self) -> float:
        """The share that the run began with."""
        rows = max(ZeroVariance.lasting, int(ZeroVariance.first * len(self.flat)))
        return stats.median(self.flat[:rows])

    @property
    def usual(self) -> float:
        """The highest share that is that of the beginning, up to noise."""
        noise = ZeroVariance.sigmas * stats.noise(self.flat)
        return self.beginning + max(ZeroVariance.least_band, noise)

    def last_usual(self, row: int) -> int | None:
        """The last row up to one at which the share was, on average, that of the beginning."""
        level = stats.rolling_mean(self.flat[: row + 1], ZeroVariance.width)
        rows = np.flatnonzero(level <= self.usual)
        return int(rows[-1]) if row and len(rows) else None

    def judged(self, bad: BoolArray) -> list[Stretch]:
        """Episodes of bad rows, from where the drift of the share that leads to them set in."""
        detector = ZeroVariance
        level = stats.rolling_mean(self.flat, detector.width)
        shown = Judged(self.signal.with_values(self.flat), bad, level > self.usual)
        stretches = shown.persistent(gap=detector.gap)
        slow = [s if s.sure - s.start >= detector.lasting else self._abrupt(s) for s in stretches]
        return [replace(s, signal=self.signal) for s in from_drift(slow, level)]

    def _abrupt(self, stretch: Stretch) -> Stretch:
        """From its first sure row, or the few just before it that are as flat as its rows."""
        start = stats.extend_back(self.flat >= stats.median(self.flat[stretch.core]), stretch.sure)
        near = stretch.sure - start <= ZeroVariance.leading
        return stretch.starting(start if near else stretch.sure)


class ZeroVariance(Detector):
    """Most groups have rewards that are all equal, so they give no gradient.

    What it detects
        A high share of flat groups: groups without any difference in reward. Whether the reward is
        low, high or neither tells three regimes apart.

    Why it matters
        Advantages are differences inside a group. Where all rewards are equal the step costs a full
        rollout and teaches nothing; what is left of the gradient is noise and the KL term. When the
        task is too hard, every further GPU-hour is wasted.

    How it is computed
        From the first that is logged: the share; groups that pass and that fail; groups dropped for
        being flat; the spread inside groups; recorded rollouts; the spread of the batch; its
        extremes; a mean of exactly 0 of rewards that never are negative. A share among the groups
        that are kept is turned into one among all. Rewards are equal up to a millionth of them. The
        reward's range goes from its 5 % quantile, or 0 if that is lower, to its 95 % quantile. High
        is the part above `high`, unless the reward never changed or is at `nothing`; low is the
        part below `low` of what had been reached, and a reward at `nothing` where `nearly_all`
        groups are flat. A regime is reported where most of five rows in a row are in it; `gap` rows
        do not part two episodes. It begins where the drift of the share that leads to it set in.

    What to do
        Too hard: easier prompts, more rollouts per prompt, partial credit, and first of all test
        the verifier by hand. Solved: harder prompts, or stop. In both cases drop flat groups before
        the update (dynamic sampling).

    When it is wrong
        A run that has learnt its task shows 60 to 100 % flat groups: that is success and only info.
        A sparse start that passes is info. Where the spread of the whole batch is logged, flat
        groups with different rewards are not seen. Where the highest reward is not logged and all
        are between 0 and 1, they are taken to reach 1.

    References
        Yu et al., DAPO (2025), on dynamic sampling. Shao et al., DeepSeekMath (2024), on group
        advantages. TRL `grpo_trainer.py`, whose key for the spread changed its meaning.
    """

    id = "ZERO_VARIANCE"
    severity = Severity.CRITICAL
    needs = (
        ("zero_variance_group_fraction",),
        ("group_all_pass_fraction", "group_all_fail_fraction"),
        ("reward_group_std_mean",),
        ("reward_std",),
        ("reward_min", "reward_max"),
        ("reward_mean",),
        ("samples",),
    )
    stage = "groups"
    caused_by = (
        "TRUNCATION",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "ENTROPY_COLLAPSE",
        "ENTROPY_EXPLOSION",
        "KL_BLOWUP",
        "REWARD_COLLAPSE",
        "REWARD_HACKING",
        "FORMAT_GAMING",
        "GRAD_PATHOLOGY",
    )

    hard_share: float = knob(
        0.5, "share of flat groups when the reward is low", minimum=0.05, maximum=1
    )
    flat_share: float = knob(0.75, "share of flat groups otherwise", minimum=0.05, maximum=1)
    usual_share: float = knob(0.4, "share up to which a run had learnt from its groups", maximum=1)

    gained = fixed(0.25, "part of what the reward could still win that makes flat groups success")
    risen = fixed(1.5, "times what the run began with, from which a low reward is on its way")
    lasting_poor = fixed(50, "rows from which a low reward with flat groups is a warning")
    poor_share = fixed(0.6, "mean share of flat groups at which a low reward counts")
    slow_share = fixed(0.5, "share of flat groups that a slow rise has got to")
    slow_rise = fixed(0.3, "share by which it has risen since the run began")
    width = fixed(8, "rows of which a slow rise is the mean")
    first = fixed(0.05, "part of the run that is its beginning")
    least_band = fixed(0.05, "share around that of the beginning that is no drift")
    sigmas = fixed(3, "standard deviations of the share around it that are none, likewise")
    low = fixed(0.3, "part of the reward's range below which it is low")
    high = fixed(0.7, "part of the reward's range above which it is high")
    nothing = fixed(0.05, "reward above the bottom of its range that is next to nothing")
    nearly_all = fixed(0.9, "share of flat groups that is nearly all")
    most = fixed(0.7, "share of flat groups at which a run is lost, if the task is too hard")
    lasting = fixed(10, "rows, unless it is all rows, from which an episode is more than a mishap")
    leading = fixed(2, "rows as flat as an episode, just before it, that belong to it")
    staying = fixed(0.9, "part of the flat rows with a high reward, if groups always were flat")
    gap = fixed(10, "rows between two episodes that are one")
    earned = fixed(0.01, "value of a reward component that shows that it can be earned")
    read = fixed(200, "recorded steps that are read, evenly spread")
    part = fixed(0.4, "part of an episode's rows with such a component at 0 that gets a mention")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The regimes in turn; a row belongs to the first that it is an episode of."""
        for told in flat_and_reward(run, self.read):
            findings = list(self._of(_shares(*in_blocks(*told))))
            yield from findings
            if findings or not told_of_few(told[0]):
                return

    def _of(self, shares: _Shares) -> Iterator[Finding]:
        free = np.ones(len(shares.flat), dtype=np.bool_)
        quiet = True
        for entry in self.rules():
            stretches = entry.judge(self, shares, free.copy())
            for stretch in stretches:
                quiet = False
                free[stretch.core] = False
                yield self._finding(shares, stretch, entry.variant or "")
        if shares.signal.metric == "reward_mean" and quiet:
            raise Inconclusive("only the mean reward is logged: nothing is known of its spread")

    @rule("too_hard")
    def _too_hard(self, shares: _Shares, _: BoolArray) -> list[Stretch]:
        """A share of `hard_share`, and the reward is low, or not high with a component at exactly 0
        that had been above `earned`, or below `low` of the highest there can be and not `risen`; up
        to two first rows with `nearly_all` flat belong to it. Critical if a floor does not pass,
        has a mean share of `most`, and takes all rows or `lasting` of them; otherwise a warning;
        info if it begins with the run (of recorded rollouts, within the first `lasting`) and
        passes, or is merely low for less than `lasting_poor`.
        """
        bad = (shares.flat >= self.hard_share) & (shares.unpaid | shares.poor)
        opening = early(2, len(bad)) & (shares.flat >= self.nearly_all) & ~shares.high
        stretches = [s for s in shares.judged(bad) if self._stays_poor(shares, s)]
        if stretches and opening[: stretches[0].start].all():
            stretches[0] = stretches[0].starting(0)
        return stretches

    @rule("solved")
    def _solved(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """A share of `flat_share` with a high reward that is near the highest there can be, on
        `staying` of the rows where groups were flat from the first row on; only the first episode
        is reported. The task is learnt. Info.
        """
        return [s for s in self._paid(shares, free) if reached_top(s)][:1]

    @rule("saturated")
    def _saturated(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """The same below the top, where the reward has `gained` meanwhile, or the groups were flat
        from the first row on; only the first episode is reported. Info.
        """
        return [s for s in self._paid(shares, free) if self._earned(shares, s)][:1]

    @rule("mixed")
    def _mixed(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """A share of `flat_share` without a high reward, or without a gain, which is news to the
        run: its median share was at most `usual_share` before, or all rows have `nearly_all` flat.
        Nothing is said after a task that was too hard, nor of less than `lasting` rows that pass
        and of which only the spread of the rewards is known. A warning.
        """
        bad = (shares.flat >= self.flat_share) & free
        paid = [s for s in self._paid(shares, free) if reached_top(s) or self._earned(shares, s)]
        for stretch in paid:
            bad[stretch.core] = False
        news = (s for s in shares.judged(bad) if self._news(shares, s))
        return [stretch for stretch in news if free[: stretch.sure].all()]

    @rule("rising")
    def _rising(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """A slow rise of the share, to `slow_share` and by `slow_rise` since the run began, on the
        mean of `width` rows and for `lasting` rows to the end, while the reward has not `gained`
        and is not near the highest there can be. A warning.
        """
        level = stats.rolling_mean(shares.flat, self.width)
        bad = free & (level >= max(self.slow_share, shares.beginning + self.slow_rise))
        return [
            stretch
            for stretch in shares.judged(bad)
            if shares.exact
            and stretch.end - stretch.sure >= self.lasting
            and not stretch.recovered
            and free.all()
            and not reached_top(stretch)
            and not self._earned(shares, stretch)
        ]

    def _paid(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """Episodes of flat groups with a high reward, and not now and then, by chance."""
        bad = (shares.flat >= self.flat_share) & free
        steady = bad.any() and float(shares.high[bad].mean()) >= self.staying
        paid = shares.judged(bad & shares.high)
        return [s for s in paid if steady or shares.last_usual(s.start) is not None]

    def _stays_poor(self, shares: _Shares, stretch: Stretch) -> bool:
        """Whether a reward is at a floor, or low for more than a while."""
        floor = shares.unpaid[stretch.core].mean() > self.most
        return floor or not stretch.recovered or len(stretch) >= self.lasting_poor

    def _earned(self, shares: _Shares, stretch: Stretch) -> bool:
        """Whether groups went flat while the reward rose, or had always been flat."""
        before = shares.last_usual(stretch.start)
        return before is None or shares.reach.gained(
            max(0, before - self.lasting_poor), stretch.end, self.gained
        )

    def _news(self, shares: _Shares, stretch: Stretch) -> bool:
        """Whether flat groups are new to the run, or all that it ever had."""
        if not shares.exact and stretch.recovered and len(stretch) < self.lasting:
            return False  # a spread of 0 on a few rows of a small batch happens
        if stretch.start == 0:
            return not stretch.recovered and bool((shares.flat >= self.nearly_all).all())
        return stats.median(shares.flat[: stretch.start]) <= self.usual_share

    def _severity(self, shares: _Shares, stretch: Stretch, share: float, variant: str) -> Severity:
        first = self.lasting if shares.signal.metric == "samples" else 0
        passes = stretch.start <= first and stretch.recovered
        if passes or variant in ("solved", "saturated"):
            return Severity.INFO
        if variant != "too_hard":
            return Severity.WARNING
        if shares.unpaid[stretch.core].mean() <= self.most:
            return Severity.WARNING if len(stretch) >= self.lasting_poor else Severity.INFO
        long = len(stretch) >= min(self.lasting, len(stretch.signal))
        lost = long and not stretch.recovered and share >= self.most
        return Severity.CRITICAL if lost else Severity.WARNING

    def _finding(self, shares: _Shares, stretch: Stretch, variant: str) -> Finding:
        share = float(np.mean(shares.flat[stretch.rows]))
        reward = stats.median(shares.reward[stretch.rows])
        limit = {"too_hard": self.hard_share, "rising": self.slow_share}.get(variant)
        at = f" at a reward of {number(reward)}" if np.isfinite(reward) else ""
        against = "median against the top of what the run has shown"
        paid = Evidence("reward_mean", None, reward, shares.best, note=against)
        slow = stretch.start and stretch.sure - stretch.start >= self.lasting
        before, now = shares.beginning, float(np.mean(shares.flat[stretch.core][-self.width :]))
        what = f"{share:.0%} of the groups had rewards that are all equal"
        if slow:
            what = f"The share of groups of equal rewards rose from {before:.0%} to {now:.0%}"
        return finding(
            self,
            stretch,
            f"{what}{at}{SINCE}: {self._meaning(shares, stretch, variant)}.",
            variant=variant,
            severity=self._severity(shares, stretch, share, variant),
            confidence=0.9 if shares.exact and len(stretch) >= 5 else 0.7,
            evidence=(
                stretch.at_onset((limit or self.flat_share) if shares.exact else None),
                stretch.in_all(now, before, "share of flat groups in the end, and in the beginning")
                if slow
                else stretch.in_all(share, None, "mean share of flat groups"),
                paid if np.isfinite(reward) else None,
            ),
            remedies=_REMEDIES["mixed" if variant == "rising" else variant],
        )

    def _meaning(self, shares: _Shares, stretch: Stretch, variant: str) -> str:
        if variant != "too_hard":
            return _MEANING[variant]
        if shares.dead[stretch.core].mean() > self.part:
            return "the task part of the reward is 0, nothing is learnt"
        floor = shares.unpaid[stretch.core].mean() > self.most
        return _MEANING["too_hard" if floor else "poor"]


_MEANING = {
    "too_hard": "the reward is at its floor, nothing is learnt",
    "poor": "most prompts are too hard to learn from, the reward is low and has not risen",
    "mixed": "they give no gradient",
    "rising": "the share has risen slowly, without a gain of the reward; they give no gradient",
    "solved": "the task is solved, little is left to learn",
    "saturated": "the reward is the best of this run, and little is left to learn from the groups",
}
_REMEDIES = {
    "too_hard": (
        "test the verifier by hand on a right answer: does it still pass?",
        "look at the completions: cut at the cap, empty, or in the wrong format?",
        "use easier prompts, more rollouts per prompt, or partial credit",
        "drop flat groups before the update (dynamic sampling)",
    ),
    "mixed": (
        "drop flat groups before the update (dynamic sampling)",
        "raise the number of rollouts per prompt or the sampling temperature",
        "check that the reward can tell completions apart",
    ),
    "solved": ("use harder prompts, or stop here", "drop flat groups before the update"),
    "saturated": ("drop flat groups before the update", "use other prompts, harder or easier ones"),
}


def _shares(signal: Signal, share: FloatArray, reward: FloatArray) -> _Shares:
    reward, detector = stats.finite(reward), ZeroVariance
    bottom, top = min(0.0, stats.quantile(reward, 0.05)), stats.quantile(reward, 0.95)
    nothing = reward - bottom <= detector.nothing
    best = stats.rolling_max(stats.rolling_mean(reward, detector.width))  # so far
    low = reward <= bottom + detector.low * (best - bottom)
    low |= nothing & (share >= detector.nearly_all)
    high = ~nothing & (reward > bottom + detector.high * (top - bottom))
    changed = equal(np.fmax.reduce(reward) - np.fmin.reduce(reward), top) == 0
    reach = Reach.of(signal, reward)
    poor = reach.low(detector.low) & ~reach.risen(detector.risen)
    poor &= stats.rolling_mean(share, detector.width) >= detector.poor_share
    dead, high = dead_parts(signal, detector.earned), high & changed
    return _Shares(signal, share, reward, reach, low, high, poor, top, dead)
