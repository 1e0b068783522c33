"""VALUE_DIVERGENCE: the critic predicts worse than a constant, or its loss leaves its range."""

from __future__ import annotations

from collections.abc import Iterator

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
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be bad
KNEW = 0.1  # explained variance that shows that the critic had learnt
NEGATIVE = -0.05  # below it, the critic is worse than a constant
LEAST_SIGMA = 0.15  # of the logarithm
LOOK_BACK = 64


class ValueDivergence(Detector):
    """The critic predicts worse than a constant for long, or its loss leaves its range.

    What it detects
        `explained_variance`: below zero for many rows, after it had been above, or from the first
        row to the last. `value_loss`: far above its own past for several rows.

    Why it matters
        Advantages are returns minus the critic's guess. A critic that is worse than a constant
        adds noise to every advantage, and a large value loss moves the layers that it shares with
        the policy.

    How it is computed
        Explained variance: most of `rows` rows in a row below zero, after a past with a median
        above 0.1; or on nearly all of at least five times as many rows. NaN is passed over: it
        stands for returns without variance. Value loss: on a log scale, above `ratio` times the
        median of its past, which stands still meanwhile, on most of five rows in a row; the onset
        is walked back to where it left its scatter. It is info if the reward rose with it.

    What to do
        Lower the critic's learning rate, clip the value loss, normalise returns, warm the critic
        up before the policy moves. Look at the reward: a change of its scale is a new task for the
        critic.

    When it is wrong
        A critic's first rows are a cold start. When the rewards change their scale, or lengths do,
        the loss of a healthy critic moves too, and comes back.

    References
        Schulman et al., High-dimensional continuous control using generalized advantage estimation
        (2016). Yuan et al., VC-PPO (2025), on value warm-up. trlX issue on a value loss that
        jumped with the loss scale.
    """

    id = "VALUE_DIVERGENCE"
    severity = Severity.WARNING
    needs = (("explained_variance",), ("value_loss",))
    caused_by = (
        "REWARD_HACKING",
        "REWARD_COLLAPSE",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "NONFINITE_METRIC",
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "LOSS_SCALE_COLLAPSE",
        "RESTART_DISCONTINUITY",
    )

    rows: int = knob(10, "rows with a negative explained variance", unit="rows", minimum=2)
    ratio: float = knob(5, "times the value loss's own past", minimum=1.5)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The explained variance, then the value loss."""
        short = []
        for name, judge in (("explained_variance", self._variance), ("value_loss", self._loss)):
            series = run.series(name)
            if series is None:
                continue
            steps, values = stats.measured(series)
            yield from judge(run, steps, values)
            if len(steps) < MIN_POINTS:
                short.append(f"{name}: {len(steps)} points, needs {MIN_POINTS}")
        if short:
            raise Inconclusive("; ".join(short))

    def _variance(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        width = self.rows
        if len(values) < width:
            return
        past = stats.past_baseline(values, below=KNEW, warmup=MIN_POINTS)
        knew = stats.rolling_max(past.center) > KNEW
        below = values < NEGATIVE
        for episode in stats.persistent(below & knew, width=width, share=LASTING, gap=width):
            start = stats.extend_back(below & knew, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            best = float(stats.rolling_max(past.center)[start])
            yield _blind(run, steps, values, whole, best)
        if not knew.any() and len(values) >= 5 * width and below.mean() > 1 - KNEW:
            yield _blind(run, steps, values, stats.Episode(0, len(values) - 1, recovered=False), 0)

    def _loss(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        if len(values) < MIN_POINTS:
            return
        scale = stats.logs(values, 1e-12)
        limit = float(np.log(self.ratio))
        past = stats.past_baseline(scale, above=limit / 2, warmup=MIN_POINTS // 2)
        sigma = np.maximum(past.robust_std, LEAST_SIGMA)
        rise = scale - past.center
        bad = rise > np.maximum(limit, 4 * sigma)
        for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=SPAN):
            start = stats.extend_back(rise > 3 * sigma, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            yield _loud(run, steps, values, whole, float(np.exp(past.center[start])))


def _blind(
    run: RunContext,
    steps: stats.IntArray,
    values: stats.FloatArray,
    episode: stats.Episode,
    best: float,
) -> Finding:
    first, last = int(steps[episode.start]), int(steps[episode.end])
    usual = stats.median(values[episode.rows])
    history = f"after it had reached {stats.number(best)}" if best > 0 else "from the first row on"
    return Finding(
        detector="VALUE_DIVERGENCE",
        variant="explained_variance",
        severity=Severity.WARNING,
        confidence=0.8 if best > 0 else 0.65,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"The critic is worse than a constant from step {first:,} on: explained variance "
            f"{stats.number(usual)}, {history}."
        ),
        evidence=(
            Evidence("explained_variance", first, float(values[episode.start]), 0.0, note="onset"),
            Evidence("explained_variance", None, usual, float(best), note="median since"),
        ),
        remedies=(
            "normalise the returns, and clip the value loss",
            "lower the critic's learning rate, or warm it up before the policy moves",
            "check that the critic sees the same tokens and masks as the policy",
        ),
        metrics=("explained_variance",),
    )


def _loud(
    run: RunContext,
    steps: stats.IntArray,
    values: stats.FloatArray,
    episode: stats.Episode,
    base: float,
) -> Finding:
    first, last = int(steps[episode.start]), int(steps[episode.end])
    usual = stats.median(values[episode.rows])
    before = stats.median(values[max(0, episode.start - LOOK_BACK) : episode.start])
    earned = _reward_rose(run, steps, episode)
    return Finding(
        detector="VALUE_DIVERGENCE",
        variant="value_loss",
        severity=Severity.INFO if earned else Severity.WARNING,
        confidence=0.8,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=(
            f"The value loss rose from {stats.number(base)} to {stats.number(usual)} from step "
            f"{first:,} on{', as the reward rose' if earned else ''}."
        ),
        evidence=(
            Evidence("value_loss", first, float(values[episode.start]), base, note="onset"),
            Evidence("value_loss", None, usual, before, note="median since, against before"),
        ),
        remedies=(
            "look at the reward at that step: a new scale, an outlier, longer episodes?",
            "clip the value loss, and normalise the returns",
            "lower the critic's learning rate",
        ),
        metrics=("value_loss",),
    )


def _reward_rose(run: RunContext, steps: stats.IntArray, episode: stats.Episode) -> bool:
    """Larger returns are harder to guess: the critic then has more to learn, not less sense."""
    reward = stats.at_steps(run.series("reward_mean"), steps)
    before = reward[max(0, episode.start - LOOK_BACK) : episode.start]
    return stats.median(reward[episode.rows]) > stats.median(before) + 2 * stats.robust_std(before)
