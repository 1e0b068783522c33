"""LENGTH_EXPLOSION: completions run to the cap, or to many times their usual length."""

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
    Series,
    Severity,
    knob,
)

MIN_POINTS = 4
SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be long
PASSING = 15  # an episode of fewer rows that passes or is not all at the cap is only info
SATURATED = 0.95  # share of the cap at which a few rows are enough
LEAST_SIGMA = 0.1  # of the logarithm
LOOK_BACK = 256  # rows before an episode that its reward is compared with
BELONGS = 1.8  # times the level up to which lengths are learnt from
CAP_SETTINGS = ("max_completion_length", "max_new_tokens", "max_response_length", "response_length")


@dataclass(frozen=True, slots=True)
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
        to drift. An episode of a few rows that passes is info.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch of long completions."""
        series = run.series("completion_length_mean")
        if series is None:
            return
        steps, values = stats.measured(series, above=0.0)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"mean length: {len(steps)} points, needs {MIN_POINTS}")
        scale = stats.logs(values, 1.0)
        cap = _cap(run, series)
        # rows at the cap are never learnt from: they would become the level they are measured by
        learnt = np.where(values < self.cap_share * cap, scale, np.nan) if cap > 0 else scale
        past = stats.past_baseline(learnt, above=float(np.log(BELONGS)), warmup=1)
        lengths = _Lengths(steps, values, np.exp(past.center), cap)
        for episode in stats.persistent(self._long(lengths), width=SPAN, share=LASTING, gap=SPAN):
            sigma = max(float(past.robust_std[episode.start]), LEAST_SIGMA)
            z = (scale - past.center[episode.start]) / sigma
            start = stats.drift_onset(z, episode.start)
            yield self._finding(run, lengths, stats.Episode(start, episode.end, episode.recovered))

    def _long(self, lengths: _Lengths) -> stats.BoolArray:
        at_cap = lengths.values >= self.cap_share * lengths.cap
        above = lengths.values > self.cap_growth * lengths.level
        return (at_cap & above) | (lengths.values > self.growth * lengths.level)

    def _finding(self, run: RunContext, lengths: _Lengths, episode: stats.Episode) -> Finding:
        values = lengths.values[episode.rows]
        top = episode.start + int(np.argmax(values))
        base = float(lengths.level[episode.start])
        first, last = int(lengths.steps[episode.start]), int(lengths.steps[episode.end])
        usual = stats.median(values)
        capped = usual >= self.cap_share * lengths.cap
        end = f", at the cap of {stats.number(lengths.cap)}" if capped else ""
        evidence = [
            Evidence("completion_length_mean", first, float(values[0]), base, note="onset"),
            Evidence(
                "completion_length_mean",
                int(lengths.steps[top]),
                float(lengths.values[top]),
                lengths.cap if capped else self.growth * base,
                note="longest mean",
            ),
        ]
        cut = stats.at_steps(run.series("truncation_rate"), lengths.steps[episode.rows])
        if np.isfinite(cut).any():
            evidence.append(Evidence("truncation_rate", None, stats.median(cut), note="median"))
        return Finding(
            detector=self.id,
            severity=_severity(episode, usual, lengths.cap, capped=capped),
            confidence=0.9 if len(episode) >= 2 * SPAN else 0.75,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"Mean completion length went from {stats.number(base)} to "
                f"{stats.number(lengths.values[top])} tokens{end}, from step {first:,} on."
            ),
            evidence=tuple(evidence),
            remedies=_remedies(run, lengths.steps, episode, first),
            metrics=("completion_length_mean",),
        )


def _severity(episode: stats.Episode, usual: float, cap: float, *, capped: bool) -> Severity:
    short = len(episode) < PASSING
    if short and (episode.recovered or usual < SATURATED * cap):
        return Severity.INFO
    return Severity.CRITICAL if capped and not episode.recovered else Severity.WARNING


def _cap(run: RunContext, series: Series) -> float:
    """The length cap: from the settings, or a largest length that is hit again and again."""
    for name in CAP_SETTINGS:
        value = run.setting(name)
        if isinstance(value, int | float) and value > 0:
            return float(value)
    longest = run.series("completion_length_max")
    seen = series.values if longest is None else longest.values
    highest = stats.quantile(seen, 1.0)
    hits = int((seen >= 0.995 * highest).sum())
    return highest if hits >= max(3, len(seen) // 20) else float("nan")


def _remedies(
    run: RunContext, steps: stats.IntArray, episode: stats.Episode, first: int
) -> tuple[str, ...]:
    restore = f"restore a checkpoint from before step {first:,} once the cause is found"
    read = "read the longest completions: loops, no end token, or filler?"
    reward = stats.at_steps(run.series("reward_mean"), steps)
    before = reward[max(0, episode.start - LOOK_BACK) : episode.start]
    during = reward[episode.rows]
    if stats.median(during) > stats.median(before) + stats.robust_std(before):
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
