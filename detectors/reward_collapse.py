"""REWARD_COLLAPSE: the reward falls away and stays down."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Finding, Severity
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Change,
    Judged,
    Shift,
    Signal,
    Stretch,
    early,
    finding,
    leaps,
    number,
    restore,
    shifts,
    stretch_from,
    told_change,
)

SCATTERS = ("reward_std", "reward_group_std_mean")


class RewardCollapse(Detector):
    """The reward falls far below the best level that the run had reached, and stays down.

    What it detects
        The mean reward loses a large part of what it had gained, for several rows; a reward
        function that had been earned gives nothing any more; or rewards are buried in noise.

    Why it matters
        The policy is unlearning, or the reward function has broken: a verifier that fails gives 0
        without a word. Every step after it makes the policy worse or costs for nothing.

    How it is computed
        The best level is the highest median of sixteen rows so far, so that a lucky batch is not
        the measure. Rows are bad that lost more than `drop` of the range from the lowest level (at
        most 0, and at most twice a best level below 0) to the best, lie outside `sigmas` of the
        scatter, and are lower than the dips that the run had before; most of five in a row must be.
        With less than eight rows before it, next to nothing of the reward may be left. A scatter of
        the rewards that becomes `noisier` times what it was without a new scale buries them, too.
        The onset is walked back to where the reward had clearly left the best level. It is critical
        if it does not recover and a tenth of the range or less is left; info if it passes within
        ten rows, unless it came as a leap such as the run had never made. Most rows of an episode
        must be nearer to its level than to the best one, and most of those before it must not. A
        shift is told where no such fall lasts. A fall after a component died is its consequence,
        and not told again.

    What to do
        Look at what broke first: gradient, KL, entropy and length before the onset. Test the
        verifier by hand on a right answer. Restore a checkpoint from before the onset.

    When it is wrong
        A curriculum that moves to harder prompts lowers the reward and nothing is broken. Rewards
        that scatter as widely as their level, as with small batches, are not judged by one dip.
        The implicit rewards of preference losses may fall while their margin grows; they are not
        read.

    References
        Gao et al., Scaling laws for reward model overoptimization (2023). prime-rl and Search-R1
        issues on collapse after about 150 steps (2025).
    """

    id = "REWARD_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (("reward_mean",),)
    stage = "reward"
    caused_by = (
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "KL_BLOWUP",
        "POLICY_MISMATCH",
        "ENTROPY_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "TRUNCATION",
        "REPETITION_LOOP",
        "REWARD_HACKING",
        "CLIP_SATURATION",
        "VALUE_DIVERGENCE",
        "DIVERGENCE",
        "LOSS_SPIKE",
        "ADVANTAGE_NOISE",
        "ZERO_VARIANCE",
        "RESTART_DISCONTINUITY",
        "RANK_OUTLIER",
    )

    drop: float = knob(0.5, "part of the range that is lost", minimum=0.1, maximum=1)
    sigmas: float = knob(3, "robust standard deviations of the past", minimum=1)
    dead_rows: int = knob(
        10, "rows at exactly 0 that make a component dead", unit="rows", minimum=3
    )

    points = fixed(6, "rewards that are needed")
    best_rows = fixed(16, "rows whose median is a level that was reached")
    early_rows = fixed(8, "rows of a run after which its scatter is known")
    climbed = fixed(4, "rows above, before a fall early in a run, that show what was learnt")
    early_share = fixed(0.05, "of the range that may be left before")
    usual_stds = fixed(3, "robust standard deviations: a dip within them is one of the usual")
    departed_stds = fixed(3, "robust standard deviations below the best level: the fall began")
    departed_share = fixed(0.25, "of the range below the best level: the fall began")
    least_std = fixed(0.05, "of the best level: no scatter is smaller where a fall began")
    passing = fixed(10, "rows below which an episode that passes is worth knowing, no more")
    nothing_left = fixed(0.1, "of the range: nothing worth the name is left")
    stays = fixed(0.8, "of the rows of an episode, that are near its level where it stays there")
    low_during = fixed(0.7, "of the rows of an episode that are nearer to its level than the best")
    low_before = fixed(0.5, "of the rows before it that are not; with few rows before it, all")
    chance = fixed(0.05, "times that so many low rows in a row would come in the run by chance")
    lucky = fixed(5, "rows whose median is no level that was reached, once there are more")
    bottom = fixed(0.05, "quantile of the rewards before a shift that is their lowest level")
    least_lost = fixed(0.1, "of the range, that a shift must cost to be worth a word")
    noisier = fixed(3, "times the scatter before, with which the mean must grow")
    zero = fixed(1e-9, "a reward, or a range of rewards, that counts as 0")
    lived_rows = fixed(64, "rows before a fall, or before a component died, that show what was")
    alive = fixed(0.7, "share of them on which it was earned")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Components that died, then stretches of low reward before that."""
        reward = Signal.of(run, "reward_mean", minimum=0)
        dead = list(self._component(run))
        yield from dead
        yield from self._noise(run)
        reward.require(self.points)
        until = min((item.first_bad_step for item in dead), default=math.inf)
        low = list(self._mean(reward, until))
        yield from low
        if not dead and all(item.state == "recovered" for item in low):
            yield from self._shift(reward)

    @rule("component")
    def _component(self, run: RunContext) -> Iterator[Finding]:
        """A reward function that had been earned on eight rows, and on most of the sixty-four
        before, is exactly 0 for `dead_rows` rows up to the end. Critical.
        """
        for name in run.names("reward_component/"):
            part = Signal.logged(run, name)
            if part is not None:
                yield from self._if_dead(part)

    @rule("noise")
    def _noise(self, run: RunContext) -> Iterator[Finding]:
        """The rewards scatter `noisier` times as much from one row on and for good, and their mean
        did not grow with it, as it does with a new scale. A warning; info where an event of the run
        tells of a change at that row.
        """
        for scatter in (Signal.logged(run, metric, above=0) for metric in SCATTERS):
            for shift in shifts(scatter) if scatter else ():
                mean = shift.stretch.beside("reward_mean", self.lived_rows)
                times = shift.after / shift.before
                scaled = mean.before < shift.before / 2 or mean.times > times / 2
                if times >= self.noisier and shift.lasts and mean.known and not scaled:
                    yield self._noisy(shift, mean)
                    return

    @rule(None)
    def _mean(self, reward: Signal, until: float) -> Iterator[Finding]:
        """The mean reward is far below its best level, for a share of its range and by scatter."""
        best, lowest, std = self._levels(reward)
        lost, extent = best - reward.values, best - lowest
        low = (lost > self.drop * extent) & (lost > self.sigmas * std) & (extent > self.zero)
        if low.any():
            dips = reward.with_values(lost).past(warmup=self.early_rows, window=WHOLE, without=low)
            gone = lost >= (1 - self.early_share) * extent
            low &= ~early(self.early_rows, len(reward)) | gone
            low &= ~dips.within(self.usual_stds)
        scatter = self.departed_stds * np.maximum(std, self.least_std * np.abs(best))
        departed = lost > np.maximum(scatter, self.departed_share * extent)
        for stretch in Judged(reward, low, departed).persistent():
            level, bottom = float(best[stretch.start]), float(lowest[stretch.start])
            if reward.steps[stretch.sure] < until and self._fell(stretch, level):
                yield self._low(stretch, level, bottom)

    def _fell(self, stretch: Stretch, best: float) -> bool:
        """Whether its rows, and not those before it, are nearer to its level than to the best.

        As many low rows in a row must be more than chance brings, by the share of low rows before.
        """
        middle = (best + stretch.usual) / 2
        before = stretch.signal.values[max(0, stretch.start - self.lived_rows) : stretch.start]
        if len(before) < self.early_rows:
            before = self._climbed(before, middle)
        low = int(np.sum(stretch.values < middle))
        low_before = float(np.mean(before <= middle)) if len(before) else 1.0
        most = 1 - self.low_before if len(before) >= self.early_rows else 0.0
        by_chance = len(stretch.signal) * low_before**low
        lasts = low >= self.low_during * len(stretch)
        return lasts and low_before <= most and by_chance < self.chance

    def _climbed(self, before: stats.FloatArray, middle: float) -> stats.FloatArray:
        """The few rows before a fall, from where the reward had been learnt, if that was on some.

        The first rows of a run are low because nothing is learnt yet: they are no dips.
        """
        above = np.flatnonzero(before > middle)
        return before[above[0] :] if len(above) >= self.climbed else before

    @rule("shift")
    def _shift(self, reward: Signal) -> Iterator[Finding]:
        """The level fell in one row and stays, by far more than it had ever changed. A warning
        where a quarter of the range from the lowest level (at most 0) is gone, else info.
        """
        for shift in shifts(reward):
            earlier = reward.values[: shift.row]
            bottom = min(0.0, stats.quantile(earlier, self.bottom))
            lost = (shift.before - shift.after) / max(shift.before - bottom, self.zero)
            if not shift.up and shift.lasts and lost >= self.least_lost:
                yield self._shifted(shift.stretch, shift.before, shift.stretch.usual, lost)
                return

    def _levels(
        self, reward: Signal
    ) -> tuple[stats.FloatArray, stats.FloatArray, stats.FloatArray]:
        """The best level, the lowest (at most 0, or twice a best one below 0), and the scatter."""
        noise = stats.noise(reward.values)
        band = max(4 * noise, self.least_std * stats.median(np.abs(reward.values)))
        level = reward.past(below=band, warmup=1, window=self.best_rows).level
        std = reward.past(below=band, warmup=self.early_rows).robust_std
        # a long fall widens the scatter of the past; the scatter from row to row stays what it was
        std = np.clip(np.where(np.isnan(std), noise, std), noise / 2, 1.25 * noise)
        # a median of a few rows may be a lucky batch: it is no level once there are more
        first = early(self.lucky, len(level))
        best = stats.rolling_max(np.where(first, np.nan, level))
        best = np.where(first, stats.rolling_max(level), best)
        # of rewards below 0 none is the least there can be: to lose all is to fall as far again
        return best, np.minimum(best - np.abs(best), np.fmin.accumulate(level)), std

    def _if_dead(self, part: Signal) -> Iterator[Finding]:
        earned = np.flatnonzero(np.abs(part.values) > self.zero)
        if len(earned) < self.early_rows:
            return
        stretch = stretch_from(part, int(earned[-1]) + 1)
        before = part.values[max(0, stretch.start - self.lived_rows) : stretch.start]
        alive = np.mean(np.abs(before) > self.zero)
        if len(stretch) >= self.dead_rows and alive >= self.alive:
            yield self._dead(stretch, stats.median(before))

    def _low(self, stretch: Stretch, best: float, lowest: float) -> Finding:
        now, rows = stretch.usual, len(stretch)
        low = int(np.sum(stretch.values < (best + now) / 2))
        stayed = f"stayed there for {rows:,} rows"
        if low < self.stays * rows:
            stayed = f"was nearer to that on {low:,} of {rows:,} rows"
        return finding(
            self,
            stretch,
            f"The mean reward fell from {number(best)} to {number(now)}{SINCE} and {stayed}.",
            severity=self._severity(stretch, remaining=(now - lowest) / (best - lowest)),
            confidence=0.9 if len(stretch) >= 10 else 0.75,
            evidence=(
                stretch.at_onset(best),
                stretch.in_all(now, best, "median since, against the best"),
                stretch.in_all(rows, None, "rows"),
                stretch.in_all(low, None, "rows nearer to that level than to the best"),
            ),
            remedies=_cures(stretch),
        )

    def _shifted(self, stretch: Stretch, before: float, after: float, lost: float) -> Finding:
        return finding(
            self,
            stretch,
            f"The mean reward went from {number(before)} to {number(after)} in one row and stayed "
            f"there,{SINCE}.",
            variant="shift",
            severity=Severity.WARNING if lost >= self.departed_share else Severity.INFO,
            confidence=0.7,
            evidence=(
                stretch.at_onset(before),
                stretch.in_all(after, before, "median since, against the rows before"),
            ),
            remedies=("what changed at this step: data, sampling, a setting?", *_cures(stretch)),
        )

    def _noisy(self, shift: Shift, mean: Change) -> Finding:
        stretch = shift.stretch
        event = told_change(stretch.signal.run, stretch.first)
        return finding(
            self,
            stretch,
            f"{stretch.signal.metric} went from {number(shift.before)} to {number(shift.after)} in "
            f"one row{SINCE}, and the mean reward did not grow with it: it went from "
            f"{number(mean.before)} to {number(mean.during)}{f' ({event})' if event else ''}.",
            variant="noise",
            severity=Severity.INFO if event else Severity.WARNING,
            confidence=0.8,
            evidence=(
                stretch.at_onset(shift.before),
                stretch.in_all(shift.after, shift.before, "level of the rows on either side"),
                mean.evidence(),
            ),
            remedies=(
                "score one completion twice: does the reward function give the same?",
                "look at the smallest and the largest rewards of a group: what earned them?",
                restore(stretch.first),
            ),
        )

    def _severity(self, stretch: Stretch, remaining: float) -> Severity:
        if stretch.recovered and len(stretch) < self.passing:
            leapt = bool(np.isin(stretch.start, leaps(stretch.signal)))
            return Severity.WARNING if leapt else Severity.INFO
        if stretch.recovered:
            return Severity.WARNING
        return Severity.CRITICAL if remaining <= self.nothing_left else Severity.WARNING

    def _dead(self, stretch: Stretch, usual: float) -> Finding:
        name = stretch.signal.metric.removeprefix("reward_component/")
        return finding(
            self,
            stretch,
            f"The reward function '{name}' gives exactly 0{SINCE}, for {len(stretch):,} rows; "
            f"before, its median was {number(usual)}.",
            variant="component",
            confidence=0.9,
            evidence=(
                stretch.at_onset(usual, "exactly 0 against the median before"),
                stretch.in_all(len(stretch), None, "rows at exactly 0"),
            ),
            remedies=(
                f"test '{name}' by hand on a right answer: has the verifier, its service or the "
                "data changed?",
                f"{restore(stretch.first)} once it works again",
            ),
        )


def _cures(stretch: Stretch) -> tuple[str, ...]:
    verifier = "test the reward function by hand on a right answer: does it still pass?"
    calm = "lower the learning rate, or raise the KL coefficient"
    back = restore(stretch.first)
    if stretch.signal.beside("truncation_rate")[stretch.start] >= 0.5:
        return ("look at truncated completions first: they have no answer", back, verifier, calm)
    return (verifier, back, calm)
