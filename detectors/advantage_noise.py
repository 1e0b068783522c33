"""ADVANTAGE_NOISE: advantages are made of rounding errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Rollout,
    RunContext,
    Severity,
    knob,
)

SIZES = ("advantage_abs_mean", "advantage_std", "advantage_max")
SPREADS = ("reward_group_std_mean", "reward_std")
ALL_FLAT = 0.999
MOST_SAMPLED = 200  # steps whose rollouts are read
MOST_NAMED = 8
GAP_ROWS = 5
EARLY = 8
ABSOLUTE = 0.5  # nothing is divided by a smaller reward when its rounding is judged


@dataclass(frozen=True, slots=True)
class _Noise:
    """A step on which noise was learnt from.

    Attributes:
        spread: of the rewards in the group or batch.
        size: of what came out of it: an advantage, or the gradient norm.
    """

    step: int
    spread: float
    size: float
    samples: tuple[str, ...] = ()


class AdvantageNoise(Detector):
    """Sizeable advantages, or a jump of the gradient, out of rewards that are all equal.

    What it detects
        `samples`: recorded groups whose rewards differ by rounding only, with advantages of usual
        size. `metrics`: the same from the logged spread and size. `gradient`: a gradient norm far
        above its past on a step on which all groups are flat.

    Why it matters
        Dividing by a standard deviation of 1e-8 turns rounding into advantages of size one. The
        update is then random, at full strength, and its gradient can be the largest of the run.

    How it is computed
        A spread above 0 but below `noise` times the reward is rounding. With an advantage above
        `size` it counts, and it is a finding on steps where it is `share` of the recorded groups: a
        healthy batch has a flat group now and then, whose noise the others drown. Where only the
        gradient is logged, its norm must be `gradient_ratio` times the median of its past on a row
        whose groups are all flat.

    What to do
        Drop groups whose rewards are all equal before the advantages are computed, or add a floor
        (1e-4) to the standard deviation. Round the rewards first.

    When it is wrong
        Advantages from a critic differ between completions of equal reward by right; there the
        spread is usually exactly 0, which is not reported. A KL term alone gives a gradient on
        flat groups too, but no jump.

    References
        Liu et al., Understanding R1-Zero-like training (2025), on dividing by the standard
        deviation. TRL `grpo_trainer.py`, whose spread of equal rewards is about 1e-8, not 0.
    """

    id = "ADVANTAGE_NOISE"
    severity = Severity.CRITICAL
    needs = (
        ("samples",),
        *((spread, size) for spread in SPREADS for size in SIZES),
        *((spread, "grad_norm") for spread in SPREADS),
        ("zero_variance_group_fraction", "grad_norm"),
    )
    caused_by = ("ZERO_VARIANCE", "REWARD_COLLAPSE", "REWARD_HACKING", "FORMAT_GAMING")

    noise: float = knob(
        1e-6, "spread that is rounding, relative to the reward", minimum=0, maximum=0.01
    )
    size: float = knob(0.1, "advantage that is sizeable", minimum=0)
    share: float = knob(
        0.5, "share of the recorded groups whose spread is rounding", minimum=0, maximum=1
    )
    gradient_ratio: float = knob(8, "times the gradient norm's own past", minimum=2)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Groups, then logged spreads, then jumps of the gradient."""
        for variant, found in (
            ("samples", self._in_samples(run)),
            ("metrics", self._in_metrics(run)),
            ("gradient", self._in_gradient(run)),
        ):
            if found:
                yield from _findings(run, found, variant)
                return

    def _in_samples(self, run: RunContext) -> list[_Noise]:
        steps = run.sample_steps()
        found: list[_Noise] = []
        for step in steps[:: max(1, len(steps) // MOST_SAMPLED)]:
            groups = _groups_of(run.rollouts(step))
            noisy = list(self._noisy(step, groups))
            if noisy and len(noisy) >= self.share * len(groups):
                found += noisy
        return found

    def _noisy(self, step: int, groups: list[list[Rollout]]) -> Iterator[_Noise]:
        for group in groups:
            rewards = [rollout.reward or 0.0 for rollout in group]
            spread = max(rewards) - min(rewards)
            size = max(abs(rollout.advantage or 0.0) for rollout in group)
            limit = self.noise * max(ABSOLUTE, abs(rewards[0]))
            if 0 < spread <= limit and size > self.size:
                names = tuple(rollout.sample_id for rollout in group)[:MOST_NAMED]
                yield _Noise(step, spread, size, names)

    def _in_metrics(self, run: RunContext) -> list[_Noise]:
        for name in SPREADS:
            series = run.series(name)
            if series is None:
                continue
            rounding = self._rounding(run, series.steps, series.values)
            for other in SIZES if rounding.any() else ():
                size = np.abs(stats.finite(stats.at_steps(run.series(other), series.steps)))
                bad = np.flatnonzero(rounding & (size > self.size))
                if len(bad):
                    return _noises(series.steps, series.values, size, bad)
        return []

    def _rounding(
        self, run: RunContext, steps: stats.IntArray, spread: stats.FloatArray
    ) -> stats.BoolArray:
        reward = np.abs(np.nan_to_num(stats.at_steps(run.series("reward_mean"), steps)))
        result: stats.BoolArray = (spread > 0) & (
            spread <= self.noise * np.maximum(ABSOLUTE, reward)
        )
        return result

    def _in_gradient(self, run: RunContext) -> list[_Noise]:
        norms = run.series("grad_norm")
        if norms is None or run.interval > 1:  # the norm would be that of another step
            return []
        flat, spread = self._flat(run, norms.steps)
        if not flat.any():
            return []
        scale = stats.logs(np.where(norms.values > 0, norms.values, np.nan), 1e-30)
        limit = float(np.log(self.gradient_ratio))
        past = stats.past_baseline(scale, above=limit, warmup=EARLY)
        jumps = scale - past.center > np.maximum(limit, 4 * past.robust_std)
        return _noises(norms.steps, spread, norms.values, np.flatnonzero(flat & jumps))

    def _flat(
        self, run: RunContext, steps: stats.IntArray
    ) -> tuple[stats.BoolArray, stats.FloatArray]:
        """Where all groups are flat, and the spread of the rewards."""
        for name in SPREADS:
            series = run.series(name)
            if series is not None:
                spread = stats.at_steps(series, steps)
                return self._rounding(run, steps, spread), spread
        share = stats.at_steps(run.series("zero_variance_group_fraction"), steps)
        return share >= ALL_FLAT, np.where(share >= ALL_FLAT, 0.0, np.nan)


def _groups_of(rollouts: tuple[Rollout, ...]) -> list[list[Rollout]]:
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        if rollout.reward is not None and rollout.advantage is not None:
            groups.setdefault(rollout.group_id, []).append(rollout)
    return list(groups.values())


def _noises(
    steps: stats.IntArray, spread: stats.FloatArray, size: stats.FloatArray, rows: stats.IntArray
) -> list[_Noise]:
    return [_Noise(int(steps[row]), float(spread[row]), float(size[row])) for row in rows]


def _findings(run: RunContext, found: list[_Noise], variant: str) -> Iterator[Finding]:
    steps = np.array([noise.step for noise in found], dtype=np.int64)
    for start, end in stats.clusters(steps, (GAP_ROWS + 1) * run.interval):
        yield _finding(run, found[start : end + 1], variant)


def _finding(run: RunContext, group: list[_Noise], variant: str) -> Finding:
    first, last = group[0].step, group[-1].step
    top = max(group, key=lambda noise: noise.size)
    recovered = last < run.last_step
    what = "gradient norm" if variant == "gradient" else "advantage"
    metric = "grad_norm" if variant == "gradient" else "samples" if variant == "samples" else ""
    spread = next((name for name in SPREADS if run.series(name) is not None), "samples")
    many = len({noise.step for noise in group})
    return Finding(
        detector="ADVANTAGE_NOISE",
        variant=variant,
        severity=Severity.CRITICAL if many >= GAP_ROWS else Severity.WARNING,
        confidence=0.6 if variant == "gradient" else 0.9,
        first_bad_step=first,
        last_bad_step=last if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=(
            f"On {many:,} steps from step {first:,} on the rewards differ by rounding only "
            f"({stats.number(top.spread)}), but the {what} reached {stats.number(top.size)}."
        ),
        evidence=(
            Evidence(spread, top.step, top.spread, note="spread of the rewards"),
            Evidence(metric or _size_of(run), top.step, top.size, note=f"largest {what}"),
            Evidence(spread, None, float(many), note="steps"),
        ),
        remedies=(
            "give groups whose rewards are all equal an advantage of 0 "
            "(rlprobe.guards.group_advantages)",
            "add a floor (1e-4) to the standard deviation that advantages are divided by",
            "round the rewards to a few digits first",
        ),
        metrics=tuple(name for name in (metric or _size_of(run), spread) if name != "samples"),
        samples=top.samples,
    )


def _size_of(run: RunContext) -> str:
    return next((name for name in SIZES if run.series(name) is not None), SIZES[0])
