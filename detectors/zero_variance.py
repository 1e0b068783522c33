"""ZERO_VARIANCE: groups whose rewards are all equal, so that nothing is learnt from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    Signal,
    Stretch,
    early,
    equal,
    finding,
    flat_shares,
    groups,
    number,
    sampled_steps,
)
from rlprobe.values import BoolArray, FloatArray, Rollout, flat

_EXACT = ("zero_variance_group_fraction", "group_all_fail_fraction", "samples")


@dataclass(frozen=True, slots=True)
class _Shares:
    """The share of flat groups, one entry per row, and what the reward did.

    Attributes:
        signal: the metric that tells the share, as logged.
        reward: mean reward; NaN where none is logged.
        low, high: where it is in the low and in the high part of its range.
        best: the top of its range.
        dead: where a component of the reward that had been earned is 0.
    """

    signal: Signal
    flat: FloatArray
    reward: FloatArray
    low: BoolArray
    high: BoolArray
    best: float
    dead: BoolArray

    @property
    def exact(self) -> bool:
        """Whether the share is known as such, not told from a spread or a mean."""
        return self.signal.metric in _EXACT


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
        From the first that is logged: the share; groups that pass and that fail; the spread of the
        rewards; their extremes; recorded rollouts; a mean of exactly 0 of rewards that never are
        negative. Rewards are equal up to a millionth of them: rounding leaves 1e-8, not 0. The
        reward's range goes from its 5 % quantile, or 0 if that is lower, to its 95 % quantile. High
        is the part above `high`, unless the reward never changed or is at `nothing`; low is the
        part below `low`, and a reward at `nothing` where `nearly_all` groups are flat. A regime is
        reported where most of five rows in a row are in it; `gap` rows do not part two episodes.

    What to do
        Too hard: easier prompts, more rollouts per prompt, partial credit, and first of all test
        the verifier by hand. Solved: harder prompts, or stop. In both cases drop flat groups before
        the update (dynamic sampling).

    When it is wrong
        A run that has learnt its task shows 60 to 100 % flat groups: that is success and only info.
        A sparse start that passes is info. Where the spread of the whole batch is logged, flat
        groups with different rewards are not seen.

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

    low = fixed(0.3, "part of the reward's range below which it is low")
    high = fixed(0.7, "part of the reward's range above which it is high")
    nothing = fixed(0.05, "reward above the bottom of its range that is next to nothing")
    nearly_all = fixed(0.9, "share of flat groups that is nearly all")
    most = fixed(0.7, "share of flat groups at which a run is lost, if the task is too hard")
    lasting = fixed(10, "rows, unless it is all rows, from which an episode is more than a mishap")
    gap = fixed(10, "rows between two episodes that are one")
    earned = fixed(0.01, "value of a reward component that shows that it can be earned")
    read = fixed(200, "recorded steps that are read, evenly spread")
    part = fixed(0.4, "part of an episode's rows with such a component at 0 that gets a mention")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The regimes in turn; rows of episodes that are too hard belong to no other."""
        shares = next(_sources(run), None)
        if shares is None:
            return
        hard = self._too_hard(shares)
        free = np.ones(len(shares.flat), dtype=np.bool_)
        for stretch in hard:
            free[stretch.core] = False
        regimes = {
            "too_hard": hard,
            "mixed": self._mixed(shares, free),
            "solved": self._solved(shares, free),
        }
        for variant, stretches in regimes.items():
            for stretch in stretches:
                yield self._finding(shares, stretch, variant)
        if shares.signal.metric == "reward_mean" and not any(regimes.values()):
            raise Inconclusive("only the mean reward is logged: nothing is known of its spread")

    @rule("too_hard")
    def _too_hard(self, shares: _Shares) -> tuple[Stretch, ...]:
        """A share of `hard_share`, and the reward is low, or not high with a component at exactly 0
        that had been above `earned`; up to two first rows with `nearly_all` flat and no high reward
        belong to it. Critical if it does not pass, has a mean share of `most`, and takes all rows
        or `lasting` of them. Otherwise a warning; info if it begins with the run and passes.
        """
        unpaid = shares.low | (shares.dead & ~shares.high)
        bad = (shares.flat >= self.hard_share) & unpaid
        opening = early(2, len(bad)) & (shares.flat >= self.nearly_all) & ~shares.high
        return Judged(shares.signal, bad, departed=opening).persistent(gap=self.gap)

    @rule("mixed")
    def _mixed(self, shares: _Shares, free: BoolArray) -> list[Stretch]:
        """A share of `flat_share` without a high reward, which is news to the run: its median share
        was at most `usual_share` before, or all rows have `nearly_all` flat. Nothing is said after
        a task that was too hard, nor of less than `lasting` rows that pass and of which only the
        spread of the rewards is known. A warning.
        """
        bad = (shares.flat >= self.flat_share) & free & ~shares.high
        stretches = Judged(shares.signal, bad).persistent(gap=self.gap)
        return [
            stretch
            for stretch in stretches
            if free[: stretch.start].all() and self._news(shares, stretch)
        ]

    @rule("solved")
    def _solved(self, shares: _Shares, free: BoolArray) -> tuple[Stretch, ...]:
        """A share of `flat_share` with a high reward; only the first episode is reported. The task
        is learnt. Info.
        """
        bad = (shares.flat >= self.flat_share) & free & shares.high
        return Judged(shares.signal, bad).persistent(gap=self.gap)[:1]

    def _news(self, shares: _Shares, stretch: Stretch) -> bool:
        """Whether flat groups are new to the run, or all that it ever had."""
        if not shares.exact and stretch.recovered and len(stretch) < self.lasting:
            return False  # a spread of 0 on a few rows of a small batch happens
        if stretch.start == 0:
            return not stretch.recovered and bool((shares.flat >= self.nearly_all).all())
        return stats.median(shares.flat[: stretch.start]) <= self.usual_share

    def _severity(self, stretch: Stretch, share: float, variant: str) -> Severity:
        if variant == "solved" or (stretch.start == 0 and stretch.recovered):
            return Severity.INFO
        long = len(stretch) >= min(self.lasting, len(stretch.signal))
        lost = variant == "too_hard" and long and not stretch.recovered and share >= self.most
        return Severity.CRITICAL if lost else Severity.WARNING

    def _finding(self, shares: _Shares, stretch: Stretch, variant: str) -> Finding:
        share = float(np.mean(shares.flat[stretch.rows]))
        reward = stats.median(shares.reward[stretch.rows])
        limit = self.hard_share if variant == "too_hard" else self.flat_share
        dead = variant == "too_hard" and shares.dead[stretch.rows].mean() > self.part
        at = f" at a reward of {number(reward)}" if np.isfinite(reward) else ""
        return finding(
            self,
            stretch,
            f"{share:.0%} of the groups had rewards that are all equal{at}{SINCE}: "
            f"{_TASK_DEAD if dead else _MEANING[variant]}.",
            variant=variant,
            severity=self._severity(stretch, share, variant),
            confidence=0.9 if shares.exact and len(stretch) >= 5 else 0.7,
            evidence=(
                stretch.at_onset(limit if shares.exact else None),
                stretch.in_all(share, None, "mean share of flat groups"),
                Evidence(
                    "reward_mean", None, reward, shares.best, note="median against the run's best"
                )
                if np.isfinite(reward)
                else None,
            ),
            remedies=_REMEDIES[variant],
        )


_TASK_DEAD = "the task part of the reward is 0, nothing is learnt"
_MEANING = {
    "too_hard": "the reward is at its floor, nothing is learnt",
    "mixed": "they give no gradient",
    "solved": "the task is solved, little is left to learn",
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
}


# --- what the run shows ---------------------------------------------------------------------------


def _sources(run: RunContext) -> Iterator[_Shares]:
    """The shares of flat groups from each source that tells them, best first."""
    for signal, share in flat_shares(run):
        yield _shares(signal, share, signal.beside("reward_mean"))
    steps = sampled_steps(run.sample_steps(), ZeroVariance.read)
    sampled = np.array([_flat_and_reward(run.rollouts(step)) for step in steps]).reshape(-1, 2)
    known = np.isfinite(sampled[:, 0])
    if known.any():
        share, earned = sampled[known].T
        signal = Signal(run, "samples", np.array(steps, dtype=np.int64)[known], share)
        logged = run.series("reward_mean") is not None
        yield _shares(signal, share, signal.beside("reward_mean") if logged else earned)
    mean = Signal.logged(run, "reward_mean")
    if mean and not (mean.values < 0).any():  # then a mean of 0 is a batch of zeros
        yield _shares(mean, (mean.values == 0).astype(np.float64), mean.values)


def _flat_and_reward(rollouts: Iterable[Rollout]) -> tuple[float, float]:
    """Share of flat groups and mean reward of a step; NaN where there are none."""
    rewards = [[item.reward or 0.0 for item in group] for group in groups(rollouts).values()]
    equal_groups = [flat(group) for group in rewards if len(group) > 1]
    every = [reward for group in rewards for reward in group]
    return (
        float(np.mean(equal_groups)) if equal_groups else math.nan,
        float(np.mean(every)) if every else math.nan,
    )


def _shares(signal: Signal, share: FloatArray, reward: FloatArray) -> _Shares:
    reward, detector = stats.finite(reward), ZeroVariance
    bottom, top = min(0.0, stats.quantile(reward, 0.05)), stats.quantile(reward, 0.95)
    nothing = reward - bottom <= detector.nothing
    low = reward <= bottom + detector.low * (top - bottom)
    low |= nothing & (share >= detector.nearly_all)
    high = ~nothing & (reward > bottom + detector.high * (top - bottom))
    changed = equal(np.fmax.reduce(reward) - np.fmin.reduce(reward), top) == 0
    return _Shares(signal, share, reward, low, high & changed, top, _dead(signal))


def _dead(signal: Signal) -> BoolArray:
    """Where a reward component that had been earned before is exactly 0."""
    dead = np.zeros(len(signal), dtype=np.bool_)
    for name in signal.run.names("reward_component/"):
        values = signal.beside(name)
        dead |= (stats.rolling_max(values) > ZeroVariance.earned) & (values == 0)
    return dead
