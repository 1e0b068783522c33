"""ADVANTAGE_NOISE: advantages are made of rounding errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    Period,
    Signal,
    Stretch,
    finding,
    groups,
    known,
    number,
    sampled_steps,
)
from rlprobe.values import BoolArray, FloatArray

_SIZES = ("advantage_abs_mean", "advantage_std", "advantage_max")
_SPREADS = ("reward_group_std_mean", "reward_std")


class _Noise(NamedTuple):
    """Rows on which noise was learnt from.

    Attributes:
        spread: of the rewards in the group or batch.
        size: of what came out of it: an advantage, or the gradient norm.
        samples: ids of the rollouts of each row, if they are known.
    """

    spread: Signal
    size: Signal
    samples: tuple[tuple[str, ...], ...] = ()


class _Outgrown(NamedTuple):
    """Rows on which advantages are larger than groups can give them.

    Attributes:
        size: of the largest advantage, of either sign.
        rows: those rows.
        limit: what the groups, or else the run's past, had allowed.
        group: rollouts of a group; None where that is not known.
    """

    size: Signal
    rows: BoolArray
    limit: float
    group: int | None


class AdvantageNoise(Detector):
    """Sizeable advantages, or a jump of the gradient, out of rewards that are all equal.

    What it detects
        Advantages of usual size, or a gradient norm far above its past, out of rewards that differ
        by rounding only; advantages larger than a group can give.

    Why it matters
        Dividing by a standard deviation of 1e-8 turns rounding into advantages of size one. The
        update is then random, at full strength, and its gradient can be the largest of the run.

    How it is computed
        A spread above 0 and up to `noise` times the reward is rounding; a reward below
        `least_reward` counts as that. An advantage above `size` is sizeable. Divided by the
        standard deviation of its group of G rollouts, none is above the root of G - 1. Of four
        rules, the first that sees anything is reported, critical on `many` steps or more, otherwise
        a warning; steps with up to `gap` others between them are one episode.

    What to do
        Drop groups whose rewards are all equal before the advantages are computed, or add a floor
        (1e-4) to the standard deviation. Round the rewards first.

    When it is wrong
        Advantages from a critic differ between completions of equal reward by right; there the
        spread is usually exactly 0, which is not reported. A KL term alone gives a gradient on
        flat groups too, but no jump. Advantages that are not divided (Dr. GRPO), or divided by the
        deviation of the batch, may be above the bound: there only the run's own past counts.

    References
        Liu et al., Understanding R1-Zero-like training (2025), on dividing by the standard
        deviation. TRL `grpo_trainer.py`, whose spread of equal rewards is about 1e-8, not 0.
    """

    id = "ADVANTAGE_NOISE"
    severity = Severity.CRITICAL
    needs = (
        ("samples",),
        *((spread, size) for spread in _SPREADS for size in _SIZES),
        *((spread, "grad_norm") for spread in _SPREADS),
        ("zero_variance_group_fraction", "grad_norm"),
        ("advantage_max",),
    )
    stage = "advantage"
    caused_by = ("ZERO_VARIANCE", "REWARD_COLLAPSE", "REWARD_HACKING", "FORMAT_GAMING")

    noise: float = knob(
        1e-6, "spread that is rounding, relative to the reward", minimum=0, maximum=0.01
    )
    size: float = knob(0.1, "advantage that is sizeable", minimum=0)
    share: float = knob(
        0.5, "share of the recorded groups whose spread is rounding", minimum=0, maximum=1
    )
    gradient_ratio: float = knob(8, "times the gradient norm's own past", minimum=2)

    least_reward = fixed(0.5, "reward that any is taken for when its rounding is judged")
    many = fixed(5, "noisy steps that are critical")
    gap = fixed(5, "rows between two noisy ones of an episode")
    read = fixed(200, "recorded steps that are read, evenly spread")
    warmup = fixed(8, "rows that are needed for a past of the gradient norm")
    sigmas = fixed(4, "robust standard deviations that the logarithm of a norm jumps at least")
    all_flat = fixed(0.999, "share of flat groups that is all of them")
    known_rows = fixed(8, "rows of advantages that are needed for a past of them")
    beyond = fixed(2, "times the largest advantage before, where the bound is known")
    far_beyond = fixed(3, "times the largest advantage before, where it is not")
    mostly_flat = fixed(0.5, "share of flat groups that proves the bound without a past")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Groups, then the bound, then logged spreads, then jumps of the gradient."""
        for entry in self.rules():
            noise = entry.judge(self, run)
            if isinstance(noise, _Outgrown):
                for stretch in Judged(noise.size, noise.rows).runs(gap=self.gap):
                    yield self._outgrown(noise, stretch)
                return
            if noise is not None:
                for start, end in stats.clusters(noise.size.steps, (self.gap + 1) * run.interval):
                    yield self._finding(noise, slice(start, end + 1), entry.variant)
                return

    @rule("samples")
    def _in_samples(self, run: RunContext) -> _Noise | None:
        """A spread that is rounding and a sizeable advantage in `share` of the recorded groups of a
        step. A healthy batch has a flat group now and then, whose noise the others drown.
        """
        noisy: list[tuple[int, float, float, tuple[str, ...]]] = []
        for step in sampled_steps(run.sample_steps(), self.read):
            by_group = groups(item for item in run.rollouts(step) if item.advantage is not None)
            of_step = []
            for group in by_group.values():
                rewards = [item.reward or 0.0 for item in group]
                spread = max(rewards) - min(rewards)
                size = max(abs(item.advantage or 0.0) for item in group)
                if self._rounding(spread, rewards[0]) and size > self.size:
                    of_step.append((step, spread, size, tuple(item.sample_id for item in group)))
            if len(of_step) >= self.share * len(by_group):
                noisy += of_step
        if not noisy:
            return None
        at, spreads, sizes, samples = zip(*noisy, strict=True)
        steps = np.array(at, dtype=np.int64)
        source = next((name for name in _SPREADS if run.series(name)), "samples")
        spread_of = Signal(run, source, steps, np.array(spreads))
        return _Noise(spread_of, Signal(run, "samples", steps, np.array(sizes)), samples)

    @rule("impossible")
    def _impossible(self, run: RunContext) -> _Outgrown | None:
        """Where G is known, an advantage above the root of G - 1 and the range of the rewards, and
        `beyond` times the largest before it, or with `mostly_flat` groups; otherwise `far_beyond`
        times that on two rows. With a critic, or where no group is flat, nothing is said.
        """
        size = _largest(run)
        if size is None:
            return None
        flat = size.beside("zero_variance_group_fraction")
        mostly = flat >= self.mostly_flat
        could = mostly if run.series("value_loss") is not None else ~(flat == 0)
        group = _group_size(run)
        bound = math.sqrt(group - 1) if group else 0.0
        possible = np.fmax(bound, size.beside("reward_max") - size.beside("reward_min"))
        before = _highest_before(size.values, self.beyond if group else self.far_beyond)
        has_past = np.arange(len(size)) >= self.known_rows
        times = self.beyond if group else self.far_beyond
        grown = has_past & (size.values > times * before)
        if group:
            grown |= mostly & ~has_past
        rows = could & grown & (size.values > possible)
        limit = bound or float(before[-1])
        enough = int(rows.sum()) >= (1 if group else 2)
        return _Outgrown(size, rows, limit, group) if enough else None

    @rule("metrics")
    def _in_metrics(self, run: RunContext) -> _Noise | None:
        """The same from the logged spread of the rewards and the logged size of the advantages."""
        for name in _SPREADS:
            spread = Signal.logged(run, name)
            if spread is None:
                continue
            rounding = self._rounding(spread.values, spread.beside("reward_mean"))
            for other in _SIZES if rounding.any() else ():
                size = np.abs(spread.beside(other))
                noisy = rounding & (size > self.size) & np.isfinite(size)
                if noisy.any():
                    rows = spread.where(noisy)
                    return _Noise(rows, Signal(run, other, rows.steps, size[noisy]))
        return None

    @rule("gradient")
    def _in_gradient(self, run: RunContext) -> _Noise | None:
        """A gradient norm of `gradient_ratio` times the median of its past, and `sigmas` above it,
        on a step whose groups are all flat; only in a log of every step, where the two belong
        together.
        """
        norm = Signal.logged(run, "grad_norm")
        if norm is None or run.interval > 1:
            return None
        spread, flat = self._flat(norm)
        if not flat.any():
            return None
        limit = math.log(self.gradient_ratio)
        past = norm.past(log=1e-30, above=limit, warmup=self.warmup, without=norm.values <= 0)
        noisy = flat & past.above(sigmas=self.sigmas, at_least=limit)
        return _Noise(spread.where(noisy), norm.where(noisy)) if noisy.any() else None

    def _flat(self, norm: Signal) -> tuple[Signal, BoolArray]:
        """The spread of the rewards at the steps of the gradient norm, and where it is rounding."""
        for name in _SPREADS:
            if norm.run.series(name):
                spread = Signal(norm.run, name, norm.steps, norm.beside(name))
                return spread, self._rounding(spread.values, norm.beside("reward_mean"))
        flat = norm.beside("zero_variance_group_fraction") >= self.all_flat
        return Signal(norm.run, "samples", norm.steps, np.where(flat, 0.0, np.nan)), flat

    def _outgrown(self, noise: _Outgrown, stretch: Stretch) -> Finding:
        count = int(noise.rows[stretch.rows].sum())
        flat = stretch.beside("zero_variance_group_fraction")
        allowed = (
            f"where groups of {noise.group} allow {number(noise.limit)}"
            if noise.group
            else f"after {number(noise.limit)} at most before"
        )
        share = f", with {flat.during:.0%} of the groups flat" if flat.during > 0 else ""
        return finding(
            self,
            stretch,
            f"On {count:,} steps{SINCE} the advantages reached {number(stretch.values.max())}, "
            f"{allowed}{share}.",
            variant="impossible",
            severity=Severity.CRITICAL if count >= self.many else Severity.WARNING,
            confidence=0.9 if noise.group and flat.during > 0 else 0.6,
            evidence=(
                _at_top(stretch, noise.limit),
                stretch.in_all(float(count), None, "steps"),
                stretch.in_all(float(noise.group), None, "rollouts of a group")
                if noise.group
                else None,
                Evidence(flat.metric, None, flat.during, known(flat.before), note="median since")
                if flat.during > 0
                else None,
            ),
            remedies=_REMEDIES,
        )

    def _rounding(self, spread: FloatArray | float, reward: FloatArray | float) -> BoolArray:
        size = np.maximum(self.least_reward, np.abs(np.nan_to_num(reward)))
        return np.asarray((spread > 0) & (spread <= self.noise * size))

    def _finding(self, noise: _Noise, rows: slice, variant: str | None) -> Finding:
        run, steps = noise.size.run, noise.size.steps
        top = rows.start + int(np.argmax(noise.size.values[rows]))
        step, last = int(steps[top]), int(steps[rows][-1])
        spread, size = float(noise.spread.values[top]), float(noise.size.values[top])
        count = len(stats.distinct(steps[rows]))
        what = "gradient norm" if variant == "gradient" else "advantage"
        metrics = (noise.size.metric, noise.spread.metric)
        source = "samples" if noise.samples else noise.spread.metric  # of one group, or logged
        return finding(
            self,
            Period(run, int(steps[rows][0]), last, last < run.last_step),
            f"On {count:,} steps{SINCE} the rewards differ by rounding only ({number(spread)}), "
            f"but the {what} reached {number(size)}.",
            variant=variant,
            severity=Severity.CRITICAL if count >= self.many else Severity.WARNING,
            confidence=0.6 if variant == "gradient" else 0.9,
            evidence=(
                Evidence(source, step, spread, note="spread of the rewards"),
                Evidence(noise.size.metric, step, size, note=f"largest {what}"),
                Evidence(source, None, float(count), note="steps"),
            ),
            remedies=_REMEDIES,
            metrics=[metric for metric in metrics if metric != "samples"],
            samples=noise.samples[top][:8] if noise.samples else (),
        )


_REMEDIES = (
    "give groups whose rewards are all equal an advantage of 0 (rlprobe.guards.group_advantages)",
    "add a floor (1e-4) to the standard deviation that advantages are divided by",
    "round the rewards to a few digits first",
)


def _largest(run: RunContext) -> Signal | None:
    """The size of the largest advantage, of either sign."""
    largest = Signal.logged(run, "advantage_max")
    if largest is None or not len(largest):
        return None
    return largest.with_values(np.fmax(np.abs(largest.values), -largest.beside("advantage_min")))


def _at_top(stretch: Stretch, limit: float) -> Evidence:
    """The largest advantage as it was logged, of either sign."""
    top = stretch.at_top(limit, "largest advantage")
    lowest = float(stretch.signal.beside("advantage_min")[stretch.top])
    if lowest != -top.value:
        return top
    return replace(top, metric="advantage_min", value=lowest, note="lowest advantage")


def _group_size(run: RunContext) -> int | None:
    """Rollouts of a group that advantages are divided by the deviation of; None if not known."""
    if run.setting("scale_rewards") in (False, "none", "batch"):
        return None
    if run.setting("loss_type") == "dr_grpo":
        return None
    size = run.setting("num_generations") or run.setting("group_size")
    return int(size) if isinstance(size, int | float) and size > 1 else None


def _highest_before(values: FloatArray, times: float) -> FloatArray:
    """The largest value before each row; still from the first row on that is so many times it."""
    before = np.concatenate(([np.inf], np.maximum.accumulate(values)[:-1]))
    late = np.arange(len(values)) >= AdvantageNoise.known_rows
    broken = np.flatnonzero(late & (values > times * before))
    if len(broken):
        before[broken[0] :] = before[broken[0]]
    return before
