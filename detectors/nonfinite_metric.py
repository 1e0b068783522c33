"""NONFINITE_METRIC: a logged metric turned NaN or Inf, or its NaN is hidden behind a 0."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    concerns_gradients,
    finding,
    listed,
    number,
    skipped_updates,
    stretch_from,
    together,
)

GRADIENT = frozenset({"grad_norm", "grad_norm_critic", "nan_count", "inf_count"})
CORE = frozenset(
    {"loss", "policy_loss", "value_loss", "reward_mean", "entropy", "kl_mean", "param_norm"}
)
HELD_OUT = frozenset({"eval", "val", "valid", "validation", "test"})
# where NaN says that there was nothing to average, not that something broke
BENIGN = ("explained_variance", "terminated_length_", "loss_logged", "num_turns_", "tool_")
MINOR = ("eval/", "time/", "reward_component", "step_time", "tokens_", "samples_", "mfu", "memory_")
AXES = frozenset({"epoch", "lr", "tokens_seen"})
REFERENCE_KL = frozenset({"kl_mean", "kl_max"})
MEASURED_FROM_THE_START = frozenset({"loss", "policy_loss", "value_loss", "reward_mean"})
EVENT = "event:nan_detected"


@dataclass(frozen=True, slots=True)
class _Onset:
    """A metric, or what an event names, that is not finite from `first` to `last`.

    Attributes:
        absorbed: whether it passed, and nothing of it can have come into the weights.
        rank: whose it is, where that of the run is finite; None for the run as a whole.
    """

    source: str
    first: int
    last: int
    recovered: bool
    value: float
    count: int = 1
    event: bool = False
    absorbed: bool = False
    rank: int | None = None

    @property
    def metric(self) -> str:
        return EVENT if self.event else self.source

    @property
    def name(self) -> str:
        return f"{EVENT} ({self.source})" if self.event else self.source

    @property
    def severity(self) -> Severity:
        if self.source.startswith(MINOR):
            return Severity.INFO
        loss = _is_loss(self.source)
        core = self.event or loss or self.source in CORE
        if self.rank is not None and self.recovered:
            return Severity.WARNING if loss else Severity.INFO
        harmless = self.absorbed if loss else self.recovered
        return Severity.CRITICAL if core and not harmless else Severity.WARNING

    @property
    def evidence(self) -> Evidence:
        bad = f"first of {self.count:,} bad values"
        note = f"non-finite elements in {self.source}" if self.event else bad
        return Evidence(self.metric, self.first, self.value, rank=self.rank, note=note)


class NonfiniteMetric(Detector):
    """A logged metric turned NaN or Inf, or became exactly 0 because NaN is hidden.

    What it detects
        Loss, KL, reward, entropy, value loss or any other metric that is not finite after it had
        been, of the run or of one of its ranks; an Inf at any time; a `nan_detected` event that is
        not about gradients; and a loss of exactly 0 behind which the framework hides NaN. Gradients
        have their own page.

    Why it matters
        A NaN in the loss or in the policy's log-probabilities is in the weights one update later.
        A NaN reward silently removes rollouts from the averages.

    How it is computed
        One value is enough. Metrics that turn at the same time are one finding; gaps of up to
        `merge_rows` rows do not split it. A row on which all of four or more metrics are NaN is not
        measured. Loss, policy loss, value loss and reward are expected from the first row on,
        others once they have been finite. Of single ranks, losses and the metrics of the policy are
        looked at, and only after a finite value: a stage of a pipeline may have none. Metrics whose
        NaN says that there was nothing to average, such as the length of terminated completions,
        are left alone. It is critical if a metric of the policy, or what an event names, does not
        become finite again, and if a loss does, unless its gradient was finite or its update
        skipped; info for evaluations, times, throughput, memory and single reward functions, and
        for a rank without rollouts for a while; else a warning.

    What to do
        Restore a checkpoint from before the first bad step and look at that batch: empty
        completions, log of 0, a division by the length of nothing. Let the trainer log NaN as NaN.

    When it is wrong
        In GRPO a loss of 0 is normal, which is why the rule for hidden NaN needs a run without
        rewards. A preference loss with large margins glides to 0; only a jump is reported.

    References
        transformers `trainer.py`, its option that filters NaN and Inf from the logged loss. TRL
        `grpo_trainer.py`, which averages rewards over the finite ones.
    """

    id = "NONFINITE_METRIC"
    severity = Severity.CRITICAL
    facts_only = True
    caused_by = (
        "GRAD_PATHOLOGY",
        "KL_BLOWUP",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "VALUE_DIVERGENCE",
        "POLICY_MISMATCH",
        "ADVANTAGE_NOISE",
        "LOSS_SCALE_COLLAPSE",
        "RANK_OUTLIER",
    )

    merge_rows: int = knob(5, "good rows that do not end an episode", unit="rows")
    masked_from: float = knob(0.05, "last loss before a 0 that hides a NaN", unit="nats")

    padding = fixed(4, "metrics of a row that must all be NaN for it to be filled up, not measured")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Metrics that are not finite, events about them, and hidden NaN."""
        bad = tuple(_not_finite(run))  # reads every metric: once
        onsets = (*self._in_metrics(run, bad), *self._in_ranks(run, bad), *_in_events(run))
        yield from self._not_finite(run, onsets)
        if not any(onset.first == run.first_step for onset in onsets):
            yield from self._never_finite(run, bad)
        if all(onset.metric != "loss" for onset in onsets):
            yield from self._masked(run)

    @rule(None)
    def _not_finite(self, run: RunContext, onsets: Iterable[_Onset]) -> Iterator[Finding]:
        """A state: metrics are NaN or Inf, or events say so; those of one time are one finding."""
        in_order = sorted(onsets, key=lambda onset: (onset.first, onset.name))
        for group in together(in_order, self.merge_rows * run.interval):
            yield self._finding(run, group)

    @rule("never")
    def _never_finite(self, run: RunContext, bad: Sequence[Signal]) -> Iterator[Finding]:
        """A state: a metric is NaN on each row on which it was logged, while others are measured; a
        KL without a coefficient is not asked. Info.
        """
        never = [signal for signal in bad if np.isnan(signal.values).all()]
        named = [signal for signal in never if signal.metric not in MEASURED_FROM_THE_START]
        measured = {name for name in run.names() if name not in AXES}
        if not named or len(measured) <= len(never):
            return
        first = min(named, key=lambda signal: int(signal.steps[0]))
        names = tuple(signal.metric for signal in named)
        yield finding(
            self,
            Period(run, int(first.steps[0]), run.last_step, recovered=False, metrics=names),
            f"NaN on every row: {listed(names)}.",
            variant="never",
            severity=Severity.INFO,
            confidence=0.8,
            evidence=(
                Evidence(signal.metric, int(signal.steps[0]), math.nan, note=_every(signal))
                for signal in named[:12]
            ),
            remedies=(
                "look how it is averaged: an empty mask, a division by the length of nothing",
                "stop logging it if nothing is there to measure",
            ),
        )

    @rule("masked")
    def _masked(self, run: RunContext) -> Iterator[Finding]:
        """A change: the loss is exactly 0 to the end of the run after a last value of at least
        `masked_from`, where no reward is logged and no gradient is alive: the framework writes 0
        for a NaN. Critical.
        """
        loss = _as_logged(run, "loss")
        if loss is None or run.names("reward"):
            return
        alive = np.flatnonzero(loss.values != 0)
        if not len(alive) or alive[-1] == len(loss) - 1:
            return
        stretch = stretch_from(loss, int(alive[-1]) + 1)
        before = float(loss.values[stretch.start - 1])
        gradient = loss.beside("grad_norm")[stretch.rows]
        if abs(before) < self.masked_from or (np.isfinite(gradient) & (gradient > 0)).any():
            return
        yield self._hidden(stretch, before)

    def _in_metrics(self, run: RunContext, bad: Sequence[Signal]) -> Iterator[_Onset]:
        broken = [signal for signal in bad if _broke(signal)]
        filled_up = self._filled_up(run, broken)
        for signal in broken:
            off = ~np.isfinite(signal.values) & ~np.isin(signal.steps, filled_up)
            judged = Judged(signal, off)
            for stretch in judged.runs(gap=self.merge_rows):
                if stretch.start > 0 or _expected(signal):
                    yield self._onset(judged, stretch)

    def _in_ranks(self, run: RunContext, bad: Sequence[Signal]) -> Iterator[_Onset]:
        """Single ranks that turned, at steps where the metric of the run does not tell it."""
        of_run = {item.metric: item.steps[~np.isfinite(item.values)] for item in bad}
        for name in _of_ranks(run):
            for rank, own in run.rank_series(name).items():
                signal = Signal(run, name, own.steps, own.values, rank)
                judged = Judged(signal, ~np.isfinite(own.values))
                for stretch in judged.runs(gap=self.merge_rows):
                    turned = stretch.start > 0 or np.isinf(stretch.onset)
                    if turned and stretch.first not in of_run.get(name, ()):
                        yield self._onset(judged, stretch)

    def _onset(self, judged: Judged, stretch: Stretch) -> _Onset:
        rows, signal = judged.bad_rows(stretch), judged.signal
        absorbed = stretch.recovered and _absorbed(stretch, signal.steps[rows])
        return _Onset(
            signal.metric,
            stretch.first,
            stretch.seen,
            stretch.recovered,
            stretch.onset,
            len(rows),
            absorbed=absorbed,
            rank=signal.rank,
        )

    def _filled_up(self, run: RunContext, broken: Sequence[Signal]) -> stats.IntArray:
        """Steps at which every metric is NaN: rows that were filled up, not measured."""
        bad = [signal.steps[np.isnan(signal.values)] for signal in broken]
        steps = stats.distinct(np.concatenate([*bad, np.empty(0, dtype=np.int64)]))
        everything = np.ones(len(steps), dtype=np.bool_)
        logged = np.zeros(len(steps), dtype=np.int64)
        for name in run.names() if len(steps) else ():
            series = None if name in AXES else run.series(name)
            if series is not None:
                place = np.minimum(np.searchsorted(series.steps, steps), len(series) - 1)
                there = series.steps[place] == steps
                everything &= ~there | np.isnan(series.values[place])
                logged += there
        return steps[everything & (logged >= self.padding)]

    def _finding(self, run: RunContext, group: Sequence[_Onset]) -> Finding:
        worst = sorted(group, key=lambda onset: (-onset.severity, onset.first))
        metrics = {onset.name: onset.metric for onset in worst}
        seen = max(onset.last for onset in group)
        recovered = all(onset.recovered for onset in group)
        ranks = _hit(run, group)
        where = f" on rank{'s' if len(ranks) > 1 else ''} {listed(ranks, 8)}" if ranks else ""
        return finding(
            self,
            Period(run, group[0].first, seen, recovered, tuple(dict.fromkeys(metrics.values()))),
            f"Not finite{where}{SINCE}: {listed(tuple(metrics))}.",
            ranks=ranks,
            severity=worst[0].severity,
            confidence=1.0
            if worst[0].severity is Severity.CRITICAL
            else 0.95,  # it comes before its gradient
            evidence=(onset.evidence for onset in worst[:12]),
            remedies=_cures(metrics.values(), f"{group[0].first:,}", where),
        )

    def _hidden(self, stretch: Stretch, before: float) -> Finding:
        last = int(stretch.signal.steps[stretch.start - 1])
        return finding(
            self,
            stretch,
            f"The loss went from {number(before)} to exactly 0 at step {stretch.first:,} and stays "
            "there: the framework writes 0 for a NaN.",
            variant="masked",
            evidence=(
                stretch.at_onset(before, "exactly 0 against the last value"),
                Evidence("loss", last, before, self.masked_from, note="last value"),
            ),
            remedies=(
                f"restore the last checkpoint before step {stretch.first:,}",
                "set logging_nan_inf_filter=False so that NaN is logged as NaN",
                "clip gradients and lower the learning rate; fp16 needs a loss scaler",
            ),
        )


def _is_loss(metric: str) -> bool:
    """Whether it is a training loss, under whatever name: `loss`, `learner/total_loss`, …."""
    *folders, name = (set(re.findall("[a-z]+", part)) for part in metric.lower().split("/"))
    return "loss" in name and HELD_OUT.isdisjoint(name.union(*folders))


def _as_logged(run: RunContext, metric: str) -> Signal | None:
    """A metric with the values that are not finite."""
    series = run.series(metric)
    return None if series is None else Signal(run, metric, series.steps, series.values)


def _every(signal: Signal) -> str:
    return f"first of {len(signal):,} values, none finite"


def _broke(signal: Signal) -> bool:
    """Whether values that are not finite say that something broke."""
    return signal.metric in MEASURED_FROM_THE_START or not np.isnan(signal.values).all()


def _not_finite(run: RunContext) -> Iterator[Signal]:
    """Metrics with a value that is not finite, where that is no way to say "nothing"."""
    ignored = GRADIENT | AXES | (REFERENCE_KL if run.setting("beta") == 0 else frozenset())
    for name in run.names():
        signal = None if name in ignored or name.startswith(BENIGN) else _as_logged(run, name)
        if signal is not None and not np.isfinite(signal.values).all():
            yield signal


def _of_ranks(run: RunContext) -> list[str]:
    """The metrics that are looked at rank by rank."""
    own = REFERENCE_KL if run.setting("beta") == 0 else frozenset[str]()
    losses = filter(_is_loss, run.names())
    return [name for name in dict.fromkeys((*sorted(CORE), *losses)) if name not in own]


def _hit(run: RunContext, group: Sequence[_Onset]) -> tuple[int, ...]:
    """The ranks whose own values were not finite; none if it is all of them, or if none tell."""
    first, last = min(item.first for item in group), max(item.last for item in group)
    hit: set[int] = set()
    every: set[int] = set()
    for name in {item.source for item in group if not item.event}:
        by_rank = run.rank_series(name)
        every.update(by_rank)
        for rank, own in by_rank.items():
            here = (own.steps >= first) & (own.steps <= last)
            if not np.isfinite(own.values[here]).all():
                hit.add(rank)
    return tuple(sorted(hit)) if hit != every else ()


def _expected(signal: Signal) -> bool:
    """Whether a bad first row counts: NaN may stand for "not yet", Inf never does."""
    return signal.metric in MEASURED_FROM_THE_START or bool(np.isinf(signal.values[0]))


def _absorbed(stretch: Stretch, steps: stats.IntArray) -> bool:
    """Whether what passed left the weights alone: its gradient was finite, or its update skipped.

    A run whose first rows say NaN and then no more had nothing to tell yet.
    """
    if stretch.start == 0:
        return True
    gradient = stats.at_steps(stretch.signal.run.series("grad_norm"), steps)
    return bool((np.isfinite(gradient) | skipped_updates(stretch.signal.run, steps)).all())


def _in_events(run: RunContext) -> Iterator[_Onset]:
    """What events say of anything but gradients and weights."""
    for event in run.events("nan_detected"):
        if not concerns_gradients(event):
            step = run.last_step if event.step is None else event.step
            count = sum(float(event.data.get(name) or 0) for name in ("nan_count", "inf_count"))
            when = step, step, step < run.last_step
            yield _Onset(str(event.data["source"]), *when, count, event=True)


def _cures(metrics: Iterable[str], step: str, where: str) -> tuple[str, ...]:
    names = set(metrics)
    batch = f"look at the batch of step {step}{where}: empty completions, log of 0, division by 0"
    if any(name.startswith("reward") for name in names):
        return (
            "find the reward function that returns NaN, and make it fail loudly or return a number",
            batch,
        )
    if CORE.isdisjoint(names) and not any(map(_is_loss, names)):
        return (batch, "check how the metric is averaged when nothing is left to average")
    restore = f"restore the last checkpoint before step {step}"
    return (restore, batch, "clip gradients and lower the learning rate before going on")
