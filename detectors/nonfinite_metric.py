"""NONFINITE_METRIC: a logged metric turned NaN or Inf, or its NaN is hidden behind a 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Event, Evidence, Finding, RunContext, Series, Severity, knob

GRADIENT = frozenset({"grad_norm", "grad_norm_critic", "nan_count", "inf_count"})
GRADIENT_SOURCES = ("", "gradient", "grad", "weight", "weights", "parameter", "parameters")
CORE = frozenset(
    {"loss", "policy_loss", "value_loss", "reward_mean", "entropy", "kl_mean", "param_norm"}
)
# where NaN says that there was nothing to average, not that something broke
BENIGN = ("explained_variance", "terminated_length_", "loss_logged", "num_turns_", "tool_")
MINOR = ("eval/", "time/", "reward_component", "step_time", "tokens_", "samples_", "mfu", "memory_")
AXES = ("epoch", "lr", "tokens_seen")
REFERENCE_KL = ("kl_mean", "kl_max")
MEASURED_FROM_THE_START = frozenset({"loss", "policy_loss", "value_loss", "reward_mean"})


@dataclass(frozen=True, slots=True)
class _Onset:
    """One metric that is not finite from `first` to `last`."""

    metric: str
    first: int
    last: int
    value: float
    recovered: bool
    count: int


class NonfiniteMetric(Detector):
    """A logged metric turned NaN or Inf, or became exactly 0 because NaN is hidden.

    What it detects
        Loss, KL, reward, entropy, value loss or any other metric that is not finite after it had
        been; an Inf at any time; a `nan_detected` event that is not about gradients; and a loss
        that falls to exactly 0 and stays there because the framework hides NaN. Gradients have
        their own page.

    Why it matters
        A NaN in the loss or in the policy's log-probabilities is in the weights one update later.
        A NaN reward silently removes rollouts from the averages.

    How it is computed
        One value is enough. Metrics that turn at the same time are one finding; gaps of up to
        `merge_rows` rows do not split it. NaN on all rows is not measured (a KL without a reference
        model); so is a row on which everything is NaN. Loss, policy loss, value loss and reward
        are expected from the first row on. A hidden NaN is a loss of exactly 0 to the end of the
        run after a last value of at least `masked_from`, without any reward logged and without a
        gradient that is alive.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Metrics that are not finite, events about them, and hidden NaN."""
        events = [event for event in run.events("nan_detected") if _elsewhere(event)]
        onsets = [*self._onsets(run), *_told(run, events)]
        for group in _together(onsets, self.merge_rows * run.interval):
            yield _finding(run, group)
        if not any(onset.metric == "loss" for onset in onsets):
            yield from self._masked(run)

    def _onsets(self, run: RunContext) -> Iterator[_Onset]:
        broken = [series for name in _candidates(run) if (series := _broken(run, name))]
        padding = _padding(run, broken)
        for series in broken:
            bad = ~np.isfinite(series.values) & ~np.isin(series.steps, padding)
            for episode in stats.episodes(bad, gap=self.merge_rows):
                if episode.start == 0 and not _expected(series):
                    continue
                yield _onset(series, bad, episode)

    def _masked(self, run: RunContext) -> Iterator[Finding]:
        loss = run.series("loss")
        if loss is None or run.names("reward"):
            return
        zero = loss.values == 0
        alive = np.flatnonzero(~zero)
        if not len(alive) or alive[-1] == len(zero) - 1:
            return
        start = int(alive[-1]) + 1
        if abs(float(loss.values[start - 1])) < self.masked_from or _gradient_alive(
            run, loss, start
        ):
            return
        yield _hidden(run, loss, start, self.masked_from)


def _elsewhere(event: Event) -> bool:
    return str(event.data.get("source") or "").lower() not in GRADIENT_SOURCES


def _candidates(run: RunContext) -> Iterator[str]:
    untied = run.setting("beta") == 0
    for name in run.names():
        if name in GRADIENT or name in AXES or name.startswith(BENIGN):
            continue
        if not (untied and name in REFERENCE_KL):
            yield name


def _broken(run: RunContext, name: str) -> Series | None:
    """The series, if it has a value that is not finite and was ever measured."""
    series = run.series(name)
    if series is None:
        return None
    finite = np.isfinite(series.values)
    if finite.all():
        return None
    measured = bool(finite.any() or np.isinf(series.values).any())
    return series if measured or name in MEASURED_FROM_THE_START else None


def _expected(series: Series) -> bool:
    """Whether a bad first row counts: NaN may stand for "not yet", Inf never does."""
    return series.name in MEASURED_FROM_THE_START or bool(np.isinf(series.values[0]))


def _padding(run: RunContext, broken: Sequence[Series]) -> stats.IntArray:
    """Steps at which every metric is NaN: rows that were filled up, not measured."""
    bad = [series.steps[np.isnan(series.values)] for series in broken]
    steps = np.unique(np.concatenate([*bad, np.empty(0, dtype=np.int64)]))
    if not len(steps):
        return steps
    everything = np.ones(len(steps), dtype=np.bool_)
    logged = np.zeros(len(steps), dtype=np.int64)
    for name in run.names():
        series = None if name in AXES else run.series(name)
        if series is None:
            continue
        place = np.minimum(np.searchsorted(series.steps, steps), len(series) - 1)
        there = series.steps[place] == steps
        everything &= ~there | np.isnan(series.values[place])
        logged += there
    return steps[everything & (logged >= 4)]


def _onset(series: Series, bad: stats.BoolArray, episode: stats.Episode) -> _Onset:
    return _Onset(
        series.name,
        int(series.steps[episode.start]),
        int(series.steps[episode.end]),
        float(series.values[episode.start]),
        episode.recovered,
        int(bad[episode.rows].sum()),
    )


def _told(run: RunContext, events: Sequence[Event]) -> Iterator[_Onset]:
    for event in events:
        step = run.last_step if event.step is None else event.step
        count = float(event.data.get("nan_count") or 0) + float(event.data.get("inf_count") or 0)
        source = str(event.data["source"])
        yield _Onset(f"event:nan_detected ({source})", step, step, count, step < run.last_step, 1)


def _together(onsets: list[_Onset], reach: int) -> Iterator[list[_Onset]]:
    """Onsets that overlap or follow each other within reach, in order of time."""
    group: list[_Onset] = []
    end = 0
    for onset in sorted(onsets, key=lambda onset: (onset.first, onset.metric)):
        if group and onset.first > end + reach:
            yield group
            group = []
        end = max(end, onset.last) if group else onset.last
        group.append(onset)
    if group:
        yield group


def _severity(onset: _Onset) -> Severity:
    source = onset.metric.removeprefix("event:nan_detected (").removesuffix(")")
    if source.startswith(MINOR):
        return Severity.INFO
    core = source in CORE or source != onset.metric
    return Severity.CRITICAL if core and not onset.recovered else Severity.WARNING


def _finding(run: RunContext, group: list[_Onset]) -> Finding:
    worst = sorted(group, key=lambda onset: (-_severity(onset), onset.first))
    names = tuple(dict.fromkeys(onset.metric for onset in worst))
    first, last = min(onset.first for onset in group), max(onset.last for onset in group)
    recovered = all(onset.recovered for onset in group)
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return Finding(
        detector="NONFINITE_METRIC",
        severity=_severity(worst[0]),
        confidence=0.95,
        first_bad_step=first,
        last_bad_step=last if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=f"Not finite from step {first:,} on: {listed}.",
        evidence=tuple(
            Evidence(
                onset.metric.split(" ")[0],
                onset.first,
                onset.value,
                note=f"first of {onset.count:,} bad values"
                if " " not in onset.metric
                else f"non-finite elements in {onset.metric.split('(')[1].rstrip(')')}",
            )
            for onset in worst[:12]
        ),
        remedies=_remedies(names, first),
        metrics=tuple(name.split(" ")[0] for name in names),
    )


def _remedies(names: tuple[str, ...], step: int) -> tuple[str, ...]:
    batch = f"look at the batch of step {step:,}: empty completions, log of 0, division by 0"
    restore = f"restore the last checkpoint before step {step:,}"
    if any(name.startswith("reward") for name in names):
        return (
            "find the reward function that returns NaN, and make it fail loudly or return a number",
            batch,
        )
    if CORE.isdisjoint(names):
        return (batch, "check how the metric is averaged when nothing is left to average")
    return (restore, batch, "clip gradients and lower the learning rate before going on")


# --- NaN behind a zero ----------------------------------------------------------------------------


def _gradient_alive(run: RunContext, loss: Series, start: int) -> bool:
    norm = stats.at_steps(run.series("grad_norm"), loss.steps[start:])
    return bool((np.isfinite(norm) & (norm > 0)).any())


def _hidden(run: RunContext, loss: Series, start: int, limit: float) -> Finding:
    first = int(loss.steps[start])
    before = float(loss.values[start - 1])
    return Finding(
        detector="NONFINITE_METRIC",
        variant="masked",
        severity=Severity.CRITICAL,
        confidence=0.8,
        first_bad_step=first,
        last_bad_step=run.last_step,
        state="ended_run" if run.ended else "ongoing",
        summary=(
            f"The loss went from {stats.number(before)} to exactly 0 at step {first:,} and stays "
            "there: the framework writes 0 for a NaN."
        ),
        evidence=(
            Evidence("loss", first, 0.0, before, note="exactly 0 against the last value"),
            Evidence("loss", int(loss.steps[start - 1]), before, limit, note="last value"),
        ),
        remedies=(
            f"restore the last checkpoint before step {first:,}",
            "set logging_nan_inf_filter=False so that NaN is logged as NaN",
            "clip gradients and lower the learning rate; fp16 needs a loss scaler",
        ),
        metrics=("loss",),
    )
