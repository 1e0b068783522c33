"""REWARD_HACKING: the reward rises for the wrong reason."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Best,
    Judged,
    Signal,
    Stretch,
    finding,
    number,
    restore,
    stretch_from,
)


class RewardHacking(Detector):
    """The reward rises for the wrong reason: impossible values, cut answers, one component.

    What it detects
        A reward of an impossible size on single rows; or a reward at new heights while what it
        stands for gets worse: the answers are cut, a part of it is lost, or held-out data say so.

    Why it matters
        The policy optimises what is paid, not what is meant. The dashboards look better than ever
        while the model gets worse; only the completions show it.

    How it is computed
        Everything is compared with the run's own past; every finding is a warning. New heights are
        rewards above the highest median of `best_rows` rows so far by more than twice their
        scatter. They must last for most of five rows, and what was earned with the sign that makes
        them suspect is not learnt from. The episode goes on while the sign is there and the reward
        is above its level before. Of the three ways to rise, the first that applies is told.

    What to do
        Read the completions with the highest rewards. Bound each reward function to its range; pay
        nothing for a truncated answer; weigh the components; hold the policy closer to the
        reference.

    When it is wrong
        A length penalty or another component that trades off against the task may fall for good
        reasons. An evaluation on other tasks than those trained on may fall too. A total that
        rises because one component does, the others being level, is not reported.

    References
        Skalse et al., Defining and characterizing reward hacking (2022). Gao et al., Scaling laws
        for reward model overoptimization (2023). open-r1 issues on format rewards (2025).
    """

    id = "REWARD_HACKING"
    severity = Severity.WARNING
    needs = (("reward_mean",),)
    stage = "reward"
    caused_by = ("LENGTH_EXPLOSION", "TRUNCATION", "RESTART_DISCONTINUITY", "RANK_OUTLIER")

    outlier: float = knob(40, "times the size and the scatter of the reward", minimum=5)
    component_drop: float = knob(
        0.6, "part of its best level that a component lost", minimum=0.1, maximum=1
    )
    eval_drop: float = knob(
        0.25, "part of the best evaluation that is lost", minimum=0.05, maximum=1
    )

    known_rows = fixed(8, "rows of the past below which nothing is compared with it")
    best_rows = fixed(16, "rows whose median is a level that was reached")
    heights = fixed(2, "robust standard deviations above the best level that are new heights")
    least_std = fixed(0.02, "of the best level: no scatter is smaller")
    least_size = fixed(0.5, "no reward is smaller: below it, scales are not compared")
    outlier_stds = fixed(6, "robust standard deviations that an outlier is compared with")
    stays = fixed(0.5, "share of the next rows that are as far off: a new level, and no outlier")
    outlier_gap = fixed(25, "rows between two outliers of one finding")
    cut = fixed(0.8, "share of truncated completions with which no answer can be right")
    rarely_cut = fixed(0.5, "share of truncated completions below which most answers may be")
    earned = fixed(0.02, "of the total: a component below it was never worth anything")
    faded = fixed(4, "robust standard deviations that a component must have lost")
    evaluations = fixed(4, "evaluations that are needed")
    eval_stds = fixed(3, "standard deviations of the evaluations, that are lost at least")
    pause = fixed(10, "rows without the sign that do not end a rise; twice as many between two")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Outliers first, then one rise for the wrong reason, told in the clearest way."""
        reward = Signal.of(run, "reward_mean", minimum=0)
        yield from self._outlier(run)
        reward.require(self.known_rows + 1)
        rises = (self._truncated(reward), self._component(reward), self._evaluation(reward))
        yield from itertools.islice(itertools.chain(*rises), 1)

    @rule("outlier")
    def _outlier(self, run: RunContext) -> Iterator[Finding]:
        """The mean, highest or lowest reward is farther from the median of its past than `outlier`
        times that median (at least 0.5), and than `outlier` times six robust standard deviations.
        Outliers at most `outlier_gap` rows apart are one finding; rows that stay there are
        learning, or another scale.
        """
        for metric in ("reward_mean", "reward_max", "reward_min"):
            reward = Signal.logged(run, metric)
            least = self.outlier * self.least_size
            if reward is None or not len(reward) or np.ptp(reward.values) < least:
                continue
            past = reward.past(warmup=self.known_rows)
            size = np.fmax(np.abs(past.level), self.least_size)
            usual = np.maximum(self.outlier_stds * past.robust_std, size)
            far = Judged(reward, np.abs(past.rise) > self.outlier * usual, level=past.level)
            stretches = [item for item in far.runs(gap=self.outlier_gap) if self._back(far, item)]
            yield from (self._impossible(far, stretch) for stretch in stretches)
            if stretches:
                return

    def _back(self, far: Judged, stretch: Stretch) -> bool:
        """Whether most of the rows from its first on are back where the reward had been."""
        return not np.mean(far.bad[stretch.start :][: self.known_rows]) > self.stays

    @rule("truncated")
    def _truncated(self, reward: Signal) -> Iterator[Finding]:
        """New heights while at least 80 % of the completions are cut before their end, where the
        share had been below 50 %. The onset is walked back to where the share had doubled, and the
        reward begun to drift.
        """
        share = reward.alongside("truncation_rate")
        cut = share.values >= self.cut
        if not cut.any():
            return
        before = share.past(above=self.rarely_cut, warmup=self.known_rows).level
        best = self._best(reward, without=share.values >= self.rarely_cut)
        bad = self._at_new_heights(best) & cut & (before < self.rarely_cut)
        doubled = share.values > np.fmax(2 * before, self.rarely_cut / 2)
        for first in self._first(Judged(reward, bad, doubled)):
            now = stats.median(share.values[first.core])
            start = stats.drift_onset(best.z(self.least_std), first.start, reach=self.pause)
            stretch = self._while(cut, first.starting(start), best)
            yield self._rise(
                stretch,
                best,
                variant="truncated",
                reason=f"while {now:.0%} of the completions are cut before their end",
                sign=stretch.of(share).in_all(now, before[start], "median since"),
                cure="pay nothing for a truncated completion, and take length out of the reward",
            )

    @rule("component")
    def _component(self, reward: Signal) -> Iterator[Finding]:
        """New heights while one of several components, worth something before, has lost
        `component_drop` of its own best level. Its loss must be outside its scatter. The onset is
        walked back to where half of that was lost.
        """
        names = reward.run.names("reward_component/")
        for part in map(reward.alongside, names if len(names) > 1 else ()):
            low = part.values < (1 - self.component_drop) * stats.quantile(part.values, 1.0)
            if Judged(part, low).persistent():
                yield from self._lost(reward, part)

    def _lost(self, reward: Signal, part: Signal) -> Iterator[Finding]:
        top = part.best_level(self.best_rows, warmup=self.known_rows)
        total = np.maximum(np.abs(self._best(reward).level), self.least_size)
        fading = top.lost(self.component_drop / 2) & (top.z() < -self.faded)
        fading &= top.level > self.earned * total
        best = self._best(reward, without=fading)
        bad = self._at_new_heights(best) & top.lost(self.component_drop) & fading
        for first in self._first(Judged(reward, bad, fading)):
            low = part.values < (1 - self.component_drop) * top.level[first.sure]
            stretch = self._while(low, first, best)
            its, before = stretch.of(part), float(top.level[stretch.start])
            name = part.metric.removeprefix("reward_component/")
            fell = f"fell from {number(before)} to {number(its.usual)}"
            yield self._rise(
                stretch,
                best,
                variant="component",
                reason=f"while '{name}', a part of it, {fell}",
                sign=its.in_all(its.usual, before, "median since, against its best"),
                cure=f"raise the weight of '{name}', or cap what the others can pay",
            )

    @rule("evaluation")
    def _evaluation(self, reward: Signal) -> Iterator[Finding]:
        """The last two of four or more held-out evaluations have lost `eval_drop` of the best
        level, and three times what they scatter by, while the training reward is not below its
        own best. It begins after the last evaluation near the best level, where the two part.
        """
        best = self._best(reward)
        for metric in ("reward_mean", "accuracy", "score_mean", "pass_rate"):
            score = Signal.logged(reward.run, f"eval/{metric}")
            if score is None or len(score) < self.evaluations:
                continue
            level = self._smooth(score.values)
            top = float(level.max())
            noise = _scatter(score.values)
            lost = top - score.values > max(self.eval_drop * abs(top), self.eval_stds * noise)
            if not lost[-2:].all() or not _at_its_best(reward, best, score.steps[-2]):
                continue
            near = ~lost & (score.values >= top - noise)
            low = stretch_from(score, int(np.flatnonzero(near)[-1]))
            row = int(np.searchsorted(reward.steps, low.first, side="right"))
            row = min(row, len(reward) - 1)
            now = stats.median(score.values[-2:])
            yield self._rise(
                stretch_from(reward, row),
                best,
                variant="evaluation",
                reason=f"while {score.metric} fell from {number(top)} to {number(now)}",
                sign=low.in_all(now, top, "last two, against its best level (median of three)"),
                cure="keep the checkpoint of the best evaluation, and stop there",
            )

    def _smooth(self, scores: stats.FloatArray) -> stats.FloatArray:
        """Medians of three: a single lucky evaluation is no level."""
        padded = np.concatenate((scores[:1], scores, scores[-1:]))
        level: stats.FloatArray = stats.row_medians(
            np.lib.stride_tricks.sliding_window_view(padded, 3)
        )
        return level

    # --- new heights ------------------------------------------------------------------------------

    def _best(self, reward: Signal, without: stats.BoolArray | None = None) -> Best:
        return reward.best_level(self.best_rows, warmup=self.known_rows, without=without)

    def _at_new_heights(self, best: Best) -> stats.BoolArray:
        result: stats.BoolArray = best.z(self.least_std) > self.heights
        return result

    def _first(self, judged: Judged) -> tuple[Stretch, ...]:
        """The first stretch: what was a new height then is the level afterwards."""
        return judged.persistent(gap=2 * self.pause)[:1]

    def _while(self, sign: stats.BoolArray, stretch: Stretch, best: Best) -> Stretch:
        """The stretch as long as the sign is there and the reward above its level before."""
        high = best.values > best.level[stretch.start]
        for longer in Judged(stretch.signal, sign & high).runs(gap=self.pause):
            if longer.start <= stretch.end <= longer.end:
                start = min(stretch.start, longer.start)
                return dataclasses.replace(longer, start=start)
        return stretch

    # --- findings ---------------------------------------------------------------------------------

    def _impossible(self, far: Judged, stretch: Stretch) -> Finding:
        reward, level, rows = far.signal, stretch.onset_level, far.bad_rows(stretch)
        top = rows[np.argmax(np.abs(reward.values[rows]))]
        step, value = int(reward.steps[top]), float(reward.values[top])
        often = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        return finding(
            self,
            stretch,
            f"{reward.metric} took an impossible size on {often}{SINCE}: {number(value)} at step "
            f"{step:,}, against {number(level)} before.",
            variant="outlier",
            confidence=0.9,
            evidence=(
                stretch.at_onset(level, "first outlier"),
                Evidence(reward.metric, step, value, level, note="largest"),
                stretch.in_all(len(rows), None, "rows"),
            ),
            remedies=(
                "bound every reward function to its range before it is used",
                f"read the completions of step {stretch.first:,} with the highest reward",
                "rewards that are normalised inside a group hide it from the gradient, not from "
                "the other rollouts of that group",
            ),
        )

    def _rise(
        self, stretch: Stretch, best: Best, *, variant: str, reason: str, sign: Evidence, cure: str
    ) -> Finding:
        now, before = stretch.usual, float(best.level[stretch.start])
        return finding(
            self,
            stretch,
            f"From step {stretch.first:,} on the mean reward is at {number(now)}, against a best "
            f"level of {number(before)} before, {reason}.",
            variant=variant,
            evidence=(
                stretch.in_all(now, before, "median since, against before"),
                stretch.at_onset(None),
                sign,
            ),
            remedies=(
                "read the completions with the highest rewards: is that what was meant?",
                cure,
                f"{restore(stretch.first)}; a KL term slows such drift",
            ),
            metrics=("reward_mean", sign.metric),
        )


def _scatter(scores: stats.FloatArray) -> float:
    """Their standard deviation around a smooth course, and no less than a single task counts for.

    From differences of differences; the smallest difference between two scores is one task.
    """
    apart = np.diff(stats.distinct(scores))
    single = float(apart.min()) if len(apart) else 0.0
    return max(single, float(np.sqrt(np.mean(np.diff(scores, n=2) ** 2) / 6)))


def _at_its_best(reward: Signal, best: Best, step: np.int64) -> bool:
    since = reward.values[reward.steps >= step]
    return stats.median(since) >= float(best.level[-1] - best.robust_std[-1])
