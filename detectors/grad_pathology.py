"""GRAD_PATHOLOGY: gradients that are NaN or Inf, or that spike again and again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    Past,
    Period,
    Signal,
    Stretch,
    concerns_gradients,
    finding,
    listed,
    number,
    stretch_from,
)
from rlprobe.values import BoolArray, Event, IntArray, Series

_COUNTS = ("nan_count", "inf_count")
_WATCHED = ("grad_norm", "grad_norm_critic", *_COUNTS)
_SKIPPING = ("verl",)  # frameworks that skip a non-finite update


class _Watched(NamedTuple):
    """A metric of the gradient, of the run or of one rank, and the steps at which it is bad."""

    series: Series
    rank: int | None
    bad: IntArray


class GradPathology(Detector):
    """Gradients turn NaN or Inf, or spike far above the run's own level again and again.

    What it detects
        A NaN or Inf in the gradient or in the weights, and steps whose gradient norm is far above
        the run's own past.

    Why it matters
        One non-finite update writes NaN into every weight it touches, and nothing after it is
        worth the GPU time. Repeated spikes move the optimizer's second moment and undo what was
        learnt, even where clipping bounds the single step.

    How it is computed
        Non-finite values are facts: one is enough, at any step, on any rank. A spike is a norm
        above `spike_ratio` times the median of its own past, which excludes earlier spikes, and
        above its usual scatter by `sigmas` robust standard deviations, all on a log scale. For the
        first `opening` rows, whose past is short, the level is their lower quartile.

    What to do
        Restore the last checkpoint before the first bad step. Clip the gradient norm, lower the
        learning rate, and look at the batch of that step: a group whose rewards are equal up to
        rounding gives huge advantages when they are divided by their standard deviation.

    When it is wrong
        Absolute levels mean nothing here and are not used: healthy norms run from 0.03 to
        100,000. A change of loss scale, batch size or data that moves the level for good tenfold
        in one step looks like spikes. Frameworks that skip a non-finite update lose that batch
        only; there it is a warning.

    References
        Pascanu et al., On the difficulty of training recurrent neural networks (2013), on clipping.
        Chowdhery et al., PaLM (2022), on rewinding past loss spikes. transformers `trainer.py`,
        which logs the norm before clipping; verl `engine/fsdp`, which skips non-finite updates.
    """

    id = "GRAD_PATHOLOGY"
    severity = Severity.CRITICAL
    needs = (("grad_norm",), ("nan_count",), ("inf_count",), ("event:nan_detected",))
    caused_by = (
        "ZERO_VARIANCE",
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "VALUE_DIVERGENCE",
        "LOSS_SCALE_COLLAPSE",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    spike_ratio: float = knob(10, "times the run's own level that make a spike", minimum=1.5)
    min_spikes: int = knob(3, "spikes that make a cluster", unit="steps", minimum=2)
    spike_window: int = knob(20, "rows between two spikes of a cluster", unit="rows", minimum=1)

    points = fixed(8, "norms above 0 that are needed")
    opening = fixed(16, "rows that are needed for a past")
    sigmas = fixed(4, "robust standard deviations of the logarithm above the level")
    least_std = fixed(0.1, "of the logarithm: no norms are steadier")
    many = fixed(10, "spikes of a cluster that are critical")
    several = fixed(5, "spikes of a cluster that are critical if the log ends with them")
    gap = fixed(5, "good rows that do not part two non-finite ones, nor spikes from them")
    skipped = fixed(3, "non-finite updates in a row that can have been skipped without harm")
    flat_share = fixed(0.5, "share of flat groups that makes them the first suspect of a spike")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Non-finite gradients, then spikes of the gradient norm."""
        facts = tuple(self._nonfinite(run))
        yield from facts
        norm = Signal.logged(run, "grad_norm", above=0)
        if norm is not None:
            if len(norm) < self.points:
                raise Inconclusive(
                    f"spikes: {len(norm)} non-zero gradient norms, needs {self.points}"
                )
            yield from self._spikes(norm, facts)

    @rule("nonfinite")
    def _nonfinite(self, run: RunContext) -> Iterator[Finding]:
        """A NaN or Inf element, a norm that is not finite, or a `nan_detected` event about
        gradients or weights, unless a dynamic loss scaler lowered its scale there and skipped the
        update; `gap` good rows do not part an episode. Critical. A warning where at most `skipped`
        steps of gradients are bad and finite values follow, or the framework skips such updates.
        """
        watched = tuple(_watched(run))
        events = [event for event in run.events("nan_detected") if concerns_gradients(event)]
        bad = _bad_steps(run, watched, events)
        for start, end in stats.clusters(bad, (self.gap + 1) * run.interval):
            yield self._fact(run, bad[start : end + 1], watched, events)

    @rule("spikes")
    def _spikes(self, norm: Signal, facts: Sequence[Finding]) -> Iterator[Finding]:
        """`min_spikes` spikes with at most `spike_window` rows between neighbours: a warning,
        critical if they are `many`, or `several` and the last that is logged. Fewer are info.
        Nothing is said of spikes that open the run, a cold start, nor of a cluster within `gap`
        rows of a non-finite gradient, to which it belongs.
        """
        past = self._past(norm)
        spiking = past.above(
            sigmas=self.sigmas, at_least=math.log(self.spike_ratio), floor=self.least_std
        )
        for opening in stats.episodes(spiking, gap=1)[:1]:
            if opening.start == 0:
                spiking[opening.rows] = False
        clusters = Judged(norm, spiking).runs(gap=self.spike_window, least=self.min_spikes)
        reach = self.gap * norm.run.interval
        for cluster in clusters:
            if not any(
                fact.first_bad_step - reach <= cluster.seen <= fact.last_bad_step + reach
                for fact in facts
            ):
                count = int(spiking[cluster.rows].sum())
                yield self._cluster(cluster, count, float(past.level[cluster.start]))
            spiking[cluster.rows] = False
        if spiking.any():
            yield self._isolated(norm, past, np.flatnonzero(spiking))

    def _past(self, norm: Signal) -> Past:
        """The norm's past; the low part of the first rows, which have none worth the name."""
        first = stats.logs(norm.values[: self.opening], 1e-30)
        low, limit = stats.quantile(first, 0.25), math.log(self.spike_ratio)
        high = np.zeros(len(norm), dtype=np.bool_)
        high[: self.opening] = first > low + limit
        past = norm.past(log=1e-30, above=limit, warmup=self.opening, without=high)
        center = np.where(np.isnan(past.center), low, past.center)
        return dataclasses.replace(past, center=center, robust_std=np.nan_to_num(past.robust_std))

    def _cluster(self, cluster: Stretch, count: int, level: float) -> Finding:
        top = float(cluster.signal.values[cluster.top])
        ends = count >= self.several and not cluster.recovered
        return finding(
            self,
            cluster,
            f"{count} gradient-norm spikes from step {cluster.first:,} to {cluster.seen:,}, up to "
            f"{number(top)} against a level of {number(level)} ({number(top / level)} times).",
            variant="spikes",
            severity=Severity.CRITICAL if count >= self.many or ends else Severity.WARNING,
            confidence=0.9 if count >= 5 else 0.75,
            evidence=(
                cluster.at_onset(level, "first spike"),
                cluster.at_top(level, "highest spike"),
                cluster.in_all(count, None, "number of spikes"),
            ),
            remedies=(
                "drop groups whose rewards are all equal, or add a floor to the standard deviation "
                "that advantages are divided by"
                if cluster.signal.beside("zero_variance_group_fraction")[cluster.start]
                >= self.flat_share
                else "",
                "clip the gradient norm near the run's usual level",
                "lower the learning rate, or warm it up for longer",
                "look at the batches of the spiking steps: the same data at a fixed distance "
                "points there",
                "restore the last checkpoint before the first spike if the reward fell after it",
            ),
        )

    def _isolated(self, norm: Signal, past: Past, rows: IntArray) -> Finding:
        spikes = stretch_from(norm, int(rows[0]), int(rows[-1]))
        top = int(rows[np.argmax(past.rise[rows])])
        step, value, level = int(norm.steps[top]), float(norm.values[top]), float(past.level[top])
        count = "One isolated spike" if len(rows) == 1 else f"{len(rows)} isolated spikes"
        came_back = "; the norm came back each time" if spikes.recovered else ""
        return finding(
            self,
            spikes,
            f"{count} of the gradient norm, {number(value)} at step {step:,} against a level of "
            f"{number(level)}{came_back}.",
            variant="spikes",
            severity=Severity.INFO,
            confidence=0.6,
            evidence=(
                Evidence("grad_norm", step, value, level, note="highest spike"),
                spikes.in_all(len(rows), None, "number of spikes"),
            ),
            remedies=("nothing, as long as clipping is on and the spikes stay rare",),
        )

    def _fact(
        self,
        run: RunContext,
        steps: IntArray,
        watched: Sequence[_Watched],
        every_event: Sequence[Event],
    ) -> Finding:
        first, last = int(steps[0]), int(steps[-1])
        events = [event for event in every_event if first <= _step(run, event) <= last]
        poisoned = any(_source(event).startswith(("weight", "param")) for event in events)
        recovered = not poisoned and _finite_after(watched, last)
        harmless = not poisoned and len(steps) <= self.skipped
        skipped = harmless and (recovered or run.framework in _SKIPPING)
        ranks = _ranks(watched, first, last, events)
        evidence = tuple(_proof(watched, first, events))
        return finding(
            self,
            Period(run, first, last, recovered),
            _sentence(len(steps), ranks, events, poisoned=poisoned),
            variant="nonfinite",
            severity=Severity.WARNING if skipped else Severity.CRITICAL,
            confidence=0.99,
            evidence=evidence,
            remedies=_cures(run, first, poisoned=poisoned, skipped=skipped),
            metrics=tuple(dict.fromkeys(item.metric for item in evidence)),
            ranks=ranks,
        )


# --- non-finite -----------------------------------------------------------------------------------


def _watched(run: RunContext) -> Iterator[_Watched]:
    """Each metric of the run, then of its ranks."""
    for name in _WATCHED:
        series = run.series(name)
        if series is not None:
            yield _Watched(series, None, _bad_rows(series))
        for rank, own in run.rank_series(name).items():
            yield _Watched(own, rank, _bad_rows(own))


def _bad_rows(series: Series) -> IntArray:
    counts = series.name in _COUNTS
    return series.steps[~(series.values <= 0) if counts else ~np.isfinite(series.values)]


def _bad_steps(run: RunContext, watched: Sequence[_Watched], events: Sequence[Event]) -> IntArray:
    steps = np.concatenate([item.bad for item in watched] + [np.empty(0, dtype=np.int64)])
    steps = steps[~_scaler_skipped(run, steps)]
    return np.union1d(steps, np.array([_step(run, event) for event in events], dtype=np.int64))


def _scaler_skipped(run: RunContext, steps: IntArray) -> BoolArray:
    """Where a dynamic loss scaler caught the overflow: it skipped the update and backed off."""
    scale = run.series("loss_scale")
    if scale is None or not len(steps):
        return np.zeros(len(steps), dtype=np.bool_)
    place = np.searchsorted(scale.steps, steps)
    before = scale.values[np.maximum(place - 1, 0)]
    after = scale.values[np.minimum(place + 1, len(scale) - 1)]
    here = scale.values[np.minimum(place, len(scale) - 1)]
    skipped = stats.at_steps(run.series("update_skipped"), steps) > 0
    return (here < before) | (after < here) | (skipped & (here > 1))


def _step(run: RunContext, event: Event) -> int:
    return run.last_step if event.step is None else event.step


def _source(event: Event) -> str:
    return str(event.data.get("source") or "")


def _finite_after(watched: Sequence[_Watched], step: int) -> bool:
    """Whether a good value was logged after this step."""
    for series, _, _ in watched:
        later = series.values[series.steps > step]
        if len(later):
            return bool(np.isfinite(later).any())
    return False


def _ranks(
    watched: Sequence[_Watched], first: int, last: int, events: Sequence[Event]
) -> tuple[int, ...]:
    """Ranks that are hit; none if it is all of them."""
    every = {item.rank for item in watched if item.rank is not None}
    hit = {event.rank for event in events if event.rank > 0}
    hit |= {
        item.rank
        for item in watched
        if item.rank is not None and ((item.bad >= first) & (item.bad <= last)).any()
    }
    return tuple(sorted(hit)) if hit != every else ()


def _proof(watched: Sequence[_Watched], step: int, events: Sequence[Event]) -> Iterator[Evidence]:
    for series, rank, bad in watched:
        if step in bad:
            value = float(series.values[np.searchsorted(series.steps, step)])
            note = "first bad value" if rank is None else "first bad value of the rank"
            yield Evidence(series.name, step, value, rank=rank, note=note)
    for event in events[:5]:
        count = float(event.data.get("nan_count") or 0) + float(event.data.get("inf_count") or 0)
        names = f" of {_names(event)}" if _names(event) else ""
        note = f"non-finite elements, {_source(event) or 'gradient'}{names}"
        yield Evidence("event:nan_detected", event.step, count, rank=event.rank, note=note)


def _names(event: Event) -> str:
    return listed(event.data.get("names") or (), 3)


def _sentence(
    count: int, ranks: tuple[int, ...], events: Sequence[Event], *, poisoned: bool
) -> str:
    what = "Weights hold NaN or Inf" if poisoned else "The gradient is NaN or Inf"
    names = next((f" in {_names(event)}" for event in events if _names(event)), "")
    where = f" on rank {', '.join(map(str, ranks))}" if ranks else ""
    often = f", on {count:,} logged steps" if count > 1 else ""
    return f"{what}{names}{where}{SINCE}{often}."


def _cures(run: RunContext, step: int, *, poisoned: bool, skipped: bool) -> tuple[str, ...]:
    if skipped:
        return (
            "look at the batch of that step: its update was lost",
            "clip gradients and lower the learning rate if it comes again",
        )
    restore = f"restore the last checkpoint before step {step:,}"
    return (
        f"{restore}; the weights are poisoned, going on cannot heal them"
        if poisoned
        else f"stop, and {restore}",
        "train in bf16, or enable the loss scaler" if run.setting("fp16") else "",
        "clip the gradient norm and lower the learning rate before going on",
        "replay the batch of that step and look for empty completions or log(0)",
    )
