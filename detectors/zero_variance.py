"""ZERO_VARIANCE: groups whose rewards are all equal, so that nothing is learnt from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    Rollout,
    RunContext,
    Severity,
    knob,
)

SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be flat
NOISE = 1e-6  # spread of equal rewards that rounding leaves, relative to their size
LOW, HIGH = 0.3, 0.7  # parts of the run's reward range that count as floor and ceiling
MOST_SAMPLED = 200  # steps whose rollouts are read, when nothing else tells
NEAR_NOTHING = 0.05  # a reward so close to its floor is nothing, whatever the range


@dataclass(frozen=True, slots=True)
class _View:
    """The share of flat groups, with what the reward did, one entry per row.

    Attributes:
        best: reward of the run's best rows; NaN where none is logged.
        source: metric that the share was read from.
        exact: whether the share was logged as such, not told from a spread.
    """

    steps: stats.IntArray
    share: stats.FloatArray
    reward: stats.FloatArray
    task_dead: stats.BoolArray
    best: float
    source: str
    exact: bool


class ZeroVariance(Detector):
    """Most groups have rewards that are all equal, so they give no gradient.

    What it detects
        A high share of groups without any difference in reward, in three regimes: `too_hard` (the
        reward is at its floor, or the task component of it is 0), `solved` (the reward is near the
        highest of the run), `mixed` (neither).

    Why it matters
        Advantages are differences inside a group. Where all rewards are equal the step costs a full
        rollout and teaches nothing; what is left of the gradient is noise and the KL term. When the
        task is too hard, every further GPU-hour is wasted.

    How it is computed
        From the logged share, or from the standard deviation of the rewards, where a spread below a
        millionth of the reward counts as equal: rounding leaves 1e-8, not 0; else from the
        recorded rollouts. A reward that is exactly 0 on a whole batch counts too. `too_hard` needs
        a share of `hard_share` with a low reward, `mixed` and `solved` a share of `flat_share`;
        most of five rows in a row must have it. Low and high are the bottom and top parts of the
        range that the run's reward covered.
        `mixed` is only reported if the share had been below `usual_share` before, or the run knew
        nothing else.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The regimes in turn: too hard, mixed, solved."""
        view = _view(run)
        if view is None:
            return
        low, high = _levels(view)
        hard = (view.share >= self.hard_share) & (low | (view.task_dead & ~high))
        flat = view.share >= self.flat_share
        claimed = np.zeros(len(view.steps), dtype=np.bool_)
        found: list[tuple[stats.Episode, str]] = []
        for episode in _sustained(hard):
            claimed[episode.rows] = True
            found.append((_from_the_start(view, episode, high), "too_hard"))
        found.extend(
            (episode, "mixed")
            for episode in _sustained(flat & ~claimed & ~high)
            if self._news(view, episode, claimed)
        )
        found.extend((episode, "solved") for episode in _sustained(flat & ~claimed & high)[:1])
        for episode, variant in found:
            yield self._finding(run, view, episode, variant)
        if not found and view.source == "reward_mean":
            raise Inconclusive("only the mean reward is logged: nothing is known of its spread")

    def _news(self, view: _View, episode: stats.Episode, claimed: stats.BoolArray) -> bool:
        """Whether flat groups are new to the run, or all that it ever had."""
        if claimed[: episode.start].any():
            return False
        before = view.share[: episode.start]
        if not view.exact and episode.recovered and len(episode) < 2 * SPAN:
            return False  # a spread of 0 on a few rows of a small batch happens
        if not len(before):
            return not episode.recovered and bool((view.share >= 0.9).all())
        return stats.median(before) <= self.usual_share

    def _finding(
        self, run: RunContext, view: _View, episode: stats.Episode, variant: str
    ) -> Finding:
        first, last = int(view.steps[episode.start]), int(view.steps[episode.end])
        share = float(np.nanmean(view.share[episode.rows]))
        reward = stats.median(view.reward[episode.rows])
        dead = variant == "too_hard" and bool(view.task_dead[episode.rows].mean() > LASTING / 2)
        meaning = _TASK_DEAD if dead else _MEANING[variant]
        at = f" at a reward of {stats.number(reward)}" if np.isfinite(reward) else ""
        evidence = [
            Evidence(
                view.source, first, _raw(run, view, first), self._limit(view, variant), note="onset"
            ),
            Evidence(view.source, None, share, note="mean share of flat groups"),
        ]
        if np.isfinite(reward):
            evidence.append(
                Evidence(
                    "reward_mean", None, reward, view.best, note="median against the run's best"
                )
            )
        return Finding(
            detector=self.id,
            variant=variant,
            severity=_severity(episode, share, variant, whole=len(episode) == len(view.steps)),
            confidence=0.9 if view.exact and len(episode) >= SPAN else 0.7,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"{share:.0%} of the groups had rewards that are all equal{at} from step "
                f"{first:,} on: {meaning}."
            ),
            evidence=tuple(evidence),
            remedies=_REMEDIES[variant],
            metrics=(view.source,),
        )

    def _limit(self, view: _View, variant: str) -> float | None:
        if not view.exact:
            return None
        return self.hard_share if variant == "too_hard" else self.flat_share


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


def _severity(episode: stats.Episode, share: float, variant: str, *, whole: bool) -> Severity:
    if variant == "solved" or (episode.start == 0 and episode.recovered):
        return Severity.INFO
    lasting = not episode.recovered and share >= 0.7 and (whole or len(episode) >= 2 * SPAN)
    return Severity.CRITICAL if variant == "too_hard" and lasting else Severity.WARNING


def _sustained(mask: stats.BoolArray) -> tuple[stats.Episode, ...]:
    share = LASTING if len(mask) >= SPAN else 1.0
    return stats.persistent(mask, width=SPAN, share=share, gap=2 * SPAN)


def _from_the_start(view: _View, episode: stats.Episode, high: stats.BoolArray) -> stats.Episode:
    """A first row or two that are as flat belong to it: there was no better level before."""
    before = view.share[: episode.start]
    if episode.start <= 2 and (before >= 0.9).all() and not high[: episode.start].any():
        return stats.Episode(0, episode.end, episode.recovered)
    return episode


# --- what the run shows ---------------------------------------------------------------------------


def _view(run: RunContext) -> _View | None:
    for read in (_logged_share, _pass_and_fail, _spread, _recorded, _nothing_earned):
        found = read(run)
        if found is not None:
            source, steps, share = found
            kept = np.isfinite(share)
            steps, share = steps[kept], share[kept]
            if len(steps):
                reward = _rewards(run, source, steps)
                exact = read in (_logged_share, _pass_and_fail, _recorded)
                best = stats.quantile(reward, 0.95)
                return _View(steps, share, reward, _task_dead(run, steps), best, source, exact)
    return None


_Share = tuple[str, "stats.IntArray", "stats.FloatArray"]


def _logged_share(run: RunContext) -> _Share | None:
    series = run.series("zero_variance_group_fraction")
    return None if series is None else (series.name, series.steps, series.values)


def _pass_and_fail(run: RunContext) -> _Share | None:
    passed, failed = run.series("group_all_pass_fraction"), run.series("group_all_fail_fraction")
    if passed is None or failed is None:
        return None
    share = stats.finite(passed.values) + stats.finite(stats.at_steps(failed, passed.steps))
    return "group_all_fail_fraction", passed.steps, share


def _spread(run: RunContext) -> _Share | None:
    for name in ("reward_group_std_mean", "reward_std"):
        series = run.series(name)
        if series is not None:
            reward = np.abs(stats.at_steps(run.series("reward_mean"), series.steps))
            limit = NOISE * np.maximum(1.0, np.nan_to_num(reward))
            flat = np.where(np.isfinite(series.values), series.values <= limit, np.nan)
            return name, series.steps, flat
    return _extremes(run)


def _extremes(run: RunContext) -> _Share | None:
    """The highest reward of the batch is also the lowest."""
    top = run.series("reward_max")
    if top is None:
        return None
    lowest = stats.finite(stats.at_steps(run.series("reward_min"), top.steps))
    width = stats.finite(top.values) - lowest
    limit = NOISE * np.maximum(1.0, np.abs(np.nan_to_num(lowest)))
    return top.name, top.steps, np.where(np.isnan(width), np.nan, width <= limit)


def _nothing_earned(run: RunContext) -> _Share | None:
    """A mean of exactly 0 of rewards that are never negative: every single one is 0."""
    series = run.series("reward_mean")
    if series is None or bool((series.values < 0).any()):
        return None
    flat = np.where(np.isfinite(series.values), series.values == 0, np.nan)
    return series.name, series.steps, flat


def _recorded(run: RunContext) -> _Share | None:
    """The share among the recorded rollouts, which always come in whole groups."""
    steps = run.sample_steps()
    steps = steps[:: max(1, len(steps) // MOST_SAMPLED)]
    shares = [_flat_share(run.rollouts(step)) for step in steps]
    if not shares:
        return None
    return "samples", np.array(steps, dtype=np.int64), np.array(shares, dtype=np.float64)


def _flat_share(rollouts: tuple[Rollout, ...]) -> float:
    groups: dict[str, list[float]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            groups.setdefault(rollout.group_id, []).append(rollout.reward)
    spreads = [
        max(rewards) - min(rewards) <= NOISE * max(1.0, abs(rewards[0]))
        for rewards in groups.values()
        if len(rewards) > 1
    ]
    return sum(spreads) / len(spreads) if spreads else float("nan")


def _rewards(run: RunContext, source: str, steps: stats.IntArray) -> stats.FloatArray:
    series = run.series("reward_mean")
    if series is not None or source != "samples":
        return stats.finite(stats.at_steps(series, steps))
    earned = [[rollout.reward for rollout in run.rollouts(int(step))] for step in steps]
    return np.array([_mean([reward for reward in step if reward is not None]) for step in earned])


def _mean(rewards: list[float]) -> float:
    return sum(rewards) / len(rewards) if rewards else float("nan")


def _task_dead(run: RunContext, steps: stats.IntArray) -> stats.BoolArray:
    """Where a reward component that had been earned before is exactly 0."""
    dead = np.zeros(len(steps), dtype=np.bool_)
    for name in run.names("reward_component/"):
        values = stats.at_steps(run.series(name), steps)
        earned = np.nan_to_num(stats.rolling_max(values)) > 0.01
        dead |= earned & (np.abs(values) <= 1e-9)
    return dead


def _levels(view: _View) -> tuple[stats.BoolArray, stats.BoolArray]:
    """Where the reward is near its floor, and where it is near the best of the run."""
    lowest = min(0.0, stats.quantile(view.reward, 0.05))
    width = view.best - lowest
    nothing = view.reward - lowest <= NEAR_NOTHING
    low = (nothing & (view.share >= 0.9)) | (view.reward <= lowest + LOW * width)
    high = ~nothing & (view.reward > lowest + HIGH * width)
    whole = stats.quantile(view.reward, 1.0) - stats.quantile(view.reward, 0.0)
    if whole <= NOISE * abs(width):  # a reward that never was lower says nothing about its ceiling
        high = np.zeros(len(high), dtype=np.bool_)
    return low, high


def _raw(run: RunContext, view: _View, step: int) -> float:
    at = np.array([step], dtype=np.int64)
    series = run.series(view.source)
    if series is None:
        return float(view.share[np.searchsorted(view.steps, step)])
    return float(stats.at_steps(series, at)[0])
