"""ENTROPY_COLLAPSE: the policy has become deterministic, and not because it has learnt the task."""

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
    RunContext,
    Severity,
    knob,
)

MIN_POINTS = 8
START_ROWS = 8  # rows that the start is taken from
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be low
LEFT = 0.6  # times the start: below it the entropy has left its usual range
LEAST_SIGMA = 0.05  # of the reward, relative to its size
BEST_ROWS = 16


@dataclass(frozen=True, slots=True)
class _View:
    """Entropy and what the reward did, one entry per row.

    Attributes:
        fell: where the reward is far below the best level it had reached.
        near_best: where it is close to that level, or above.
    """

    steps: stats.IntArray
    entropy: stats.FloatArray
    start: float
    reward: stats.FloatArray
    fell: stats.BoolArray
    near_best: stats.BoolArray


class EntropyCollapse(Detector):
    """The policy's entropy falls to a small part of its start, and no reward is gained by it.

    What it detects
        `reward_fell`: the entropy is low while the reward is far below the best level of the run.
        `deterministic`: next to nothing is left of the entropy, whatever the reward.

    Why it matters
        Without entropy all rollouts of a group are the same, so no group gives a gradient: what the
        policy cannot do by then it will not find any more.

    How it is computed
        Against the median of the run's first eight rows. Rows below `low` times the start count if
        the reward fell by half of what it had reached; rows below `share` times the start count in
        any case. Most of five rows in a row must be low. The onset is walked back to where the
        entropy left 60 % of its start. With a reward near the best of the run, little entropy is
        the sign of a task that is solved, and only info.

    What to do
        Restore a checkpoint from before the onset. Raise the entropy bonus, the upper clip range or
        the sampling temperature; lower the learning rate; look for one completion that always wins.

    When it is wrong
        Entropy falls in every healthy run, often to a tenth of its start, as the reward rises. The
        kind of entropy differs by framework (per token, per sequence, estimated from samples), so
        levels of two runs cannot be compared. A run that begins deterministic has no start to
        compare with.

    References
        Cui et al., The entropy mechanism of reinforcement learning for reasoning language models
        (2025). Yu et al., DAPO (2025), on the upper clip range.
    """

    id = "ENTROPY_COLLAPSE"
    severity = Severity.WARNING
    needs = (("entropy",),)
    caused_by = (
        "REWARD_HACKING",
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "DIVERGENCE",
        "CLIP_SATURATION",
        "POLICY_MISMATCH",
        "ENTROPY_EXPLOSION",
        "RESTART_DISCONTINUITY",
    )

    low: float = knob(0.2, "times the start, when the reward fell", minimum=0.001, maximum=0.9)
    share: float = knob(0.04, "times the start, in any case", minimum=0, maximum=0.9)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of low entropy."""
        series = run.series("entropy")
        if series is None:
            return
        steps, values = stats.measured(series)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"entropy: {len(steps)} points, needs {MIN_POINTS}")
        start = stats.median(values[:START_ROWS])
        if start <= 0:
            raise Inconclusive("entropy: 0 or below from the start, nothing to compare with")
        if not (values < max(self.low, self.share) * start).any():
            return
        view = _view(run, steps, values, start)
        fell = (values < self.low * start) & view.fell
        bad = fell | (values < self.share * start)
        for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=SPAN):
            onset = stats.extend_back(values < LEFT * start, episode.start, slack=1)
            whole = stats.Episode(onset, episode.end, episode.recovered)
            yield self._finding(run, view, whole, episode, fell)

    def _finding(
        self,
        run: RunContext,
        view: _View,
        whole: stats.Episode,
        core: stats.Episode,
        fell: stats.BoolArray,
    ) -> Finding:
        variant = "reward_fell" if fell[core.rows].mean() > 0.5 else "deterministic"
        solved = variant == "deterministic" and view.near_best[core.rows].mean() > 0.5
        first, last = int(view.steps[whole.start]), int(view.steps[whole.end])
        low = stats.median(view.entropy[core.rows])
        reward = stats.median(view.reward[core.rows])
        beside = f", with a reward of {stats.number(reward)}" if np.isfinite(reward) else ""
        return Finding(
            detector=self.id,
            variant=variant,
            severity=Severity.INFO if solved else Severity.WARNING,
            confidence=0.85 if variant == "reward_fell" else 0.7,
            first_bad_step=first,
            last_bad_step=last if whole.recovered else run.last_step,
            state=stats.outcome(whole, ended=run.ended),
            summary=(
                f"Entropy fell to {stats.number(low)}, {low / view.start:.2%} of its start of "
                f"{stats.number(view.start)}, from step {first:,} on{beside}."
            ),
            evidence=tuple(_evidence(view, whole, core, self.low if solved else self.share)),
            remedies=_remedies(first, solved=solved),
            metrics=("entropy",),
        )


def _view(run: RunContext, steps: stats.IntArray, values: stats.FloatArray, start: float) -> _View:
    reward = stats.finite(stats.at_steps(run.series("reward_mean"), steps))
    past = stats.past_baseline(reward, warmup=1, window=BEST_ROWS)
    best = stats.rolling_max(past.center)
    lowest = np.fmin(0.0, np.fmin.accumulate(reward)) if len(reward) else reward
    noise = np.maximum(past.robust_std, LEAST_SIGMA * np.abs(best))
    fell = reward < np.minimum(best - 2 * noise, (best + lowest) / 2)
    return _View(steps, values, start, reward, fell, reward >= best - 2 * noise)


def _evidence(
    view: _View, whole: stats.Episode, core: stats.Episode, share: float
) -> Iterator[Evidence]:
    first = int(view.steps[whole.start])
    yield Evidence("entropy", first, float(view.entropy[whole.start]), view.start, note="onset")
    low = stats.median(view.entropy[core.rows])
    yield Evidence("entropy", None, low, view.start, note="median since, against the start")
    yield Evidence("entropy", None, low / view.start, share, note="share of the start")
    reward = stats.median(view.reward[core.rows])
    if np.isfinite(reward):
        yield Evidence("reward_mean", None, reward, note="median since")


def _remedies(first: int, *, solved: bool) -> tuple[str, ...]:
    if solved:
        return ("use harder prompts, or stop here: the policy has settled",)
    return (
        f"restore a checkpoint from before step {first:,}",
        "raise the entropy bonus, the upper clip range or the sampling temperature",
        "read the completions: one text that always wins points to the reward function",
        "lower the learning rate",
    )
