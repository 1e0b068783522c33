"""Everything known about one step: metrics against their own past, ranks, events, groups. Pure.

The past of a metric is what the attempt in view had seen when it logged the step: its own rows,
and the earlier attempts' rows that it did not overtake.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlprobe import order_statistics, schema
from rlprobe.errors import StepNotFoundError, UsageError
from rlprobe.findings import Pulse
from rlprobe.scan.pulse import pulse
from rlprobe.store.frame import Frame, takeovers
from rlprobe.store.run import Run
from rlprobe.values import BoolArray, Event, FloatArray, Rollout, Series, flat

WINDOW = 50  # logged values before the step that make up a metric's usual level
UNUSUAL = 4.0  # robust standard deviations from that level
STICKS_OUT = 8.0  # the same for one rank among the others; a thousand ranks are many chances
SIZEABLE = 0.1  # an advantage that moves the weights
VITAL = ("loss", "reward_mean", "kl_mean", "grad_norm", "entropy", "policy_loss", "value_loss")
_MIN_PAST = 5
_RECENT = 8
_MIN_RANKS = 4
_EVENTS = 6
_MAD_TO_SIGMA = 1.4826
_ROUNDING = 1e-6  # a mean advantage of 1e-8 moves by many times its scatter, and means nothing

Off = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True)
class MetricAtStep:
    """One metric at the step.

    Attributes:
        median: of the `past` values before the step; NaN without any.
        recent: the last values up to and including the step's.
        off: how far `value` is from `median`, as a ratio or a difference; NaN without a past.
        deviation: the same in robust standard deviations; infinite for a non-finite value.
    """

    name: str
    value: float
    median: float
    past: int
    recent: tuple[float, ...]
    off: float
    off_kind: Off
    deviation: float

    @property
    def unusual(self) -> bool:
        """Whether it is worth a look."""
        return self.deviation >= UNUSUAL

    @property
    def judged(self) -> bool:
        """Whether there is enough of a past, or it is off without one."""
        return self.past >= _MIN_PAST or self.unusual


@dataclass(frozen=True, slots=True)
class RankOff:
    """One rank that sticks out in one metric."""

    rank: int
    metric: str
    value: float
    median: float
    deviation: float


@dataclass(frozen=True, slots=True)
class RanksAtStep:
    """The ranks at the step.

    Attributes:
        metric, low, high: range of the first metric over the ranks; None without any.
        own: the metrics of the one rank that was asked for, against that rank's own past.
    """

    reporting: int
    metric: str | None = None
    low: float = math.nan
    high: float = math.nan
    outliers: tuple[RankOff, ...] = ()
    rank: int | None = None
    own: tuple[MetricAtStep, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupAtStep:
    """One group of rollouts.

    Attributes:
        rewards: distinct rewards with how often each occurred, ascending.
        low, high: range of the advantages; NaN where none were recorded.
        flat: all rewards equal, up to rounding; such a group should give no gradient.
        noise: flat, and yet with sizeable advantages.
    """

    group_id: str
    rollouts: tuple[Rollout, ...]
    rewards: tuple[tuple[float, int], ...]
    low: float
    high: float
    flat: bool
    noise: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of one attempt. `metrics` and `groups`: most telling first."""

    path: str
    step: int
    attempt: int
    attempts: tuple[int, ...]
    time: float
    tokens_seen: float | None
    window: int
    metrics: tuple[MetricAtStep, ...]
    events: tuple[Event, ...]
    ranks: RanksAtStep
    groups: tuple[GroupAtStep, ...]
    pulse: Pulse | None = None


def view(
    run: Run,
    step: int,
    *,
    attempt: int | None = None,
    window: int = WINDOW,
    rank: int | None = None,
) -> StepView:
    """What is known about a step; of the latest attempt that has it, unless one is named.

    Raises:
        StepNotFoundError: the run, or that attempt, has no such step.
        UsageError: that rank did not report at the step.
    """
    rollouts = run.rollouts(step)
    having = _attempts_with(run, step, rollouts)
    chosen = _choose(run, step, attempt, having)
    frame = run.steps
    rows = frame.step == step
    rows &= frame.attempt == chosen
    metrics = _metrics(frame, _seen_by(frame, chosen), step, window)
    tokens = next((item.value for item in metrics if item.name == "tokens_seen"), None)
    return StepView(
        path=run.info.path,
        step=step,
        attempt=chosen,
        attempts=having,
        time=float(frame.time[rows][-1]) if rows.any() else math.nan,
        tokens_seen=tokens,
        window=window,
        metrics=tuple(item for item in metrics if item.name != "tokens_seen"),
        events=_nearby(run, step),
        ranks=_ranks(run.ranks, step, chosen, rank, window),
        groups=_groups([rollout for rollout in rollouts if rollout.attempt == chosen]),
        pulse=pulse(run),
    )


def _attempts_with(run: Run, step: int, rollouts: Sequence[Rollout]) -> tuple[int, ...]:
    found = {int(number) for number in run.steps.attempt[run.steps.step == step]}
    found |= {int(number) for number in run.ranks.attempt[run.ranks.step == step]}
    return tuple(sorted(found | {rollout.attempt for rollout in rollouts}))


def _choose(run: Run, step: int, attempt: int | None, having: tuple[int, ...]) -> int:
    if not having:
        raise StepNotFoundError(
            f"Couldn't show step {step:,} of '{run.info.path}': it was not logged",
            hint=_nearest(run, step),
        )
    if attempt is None:
        return having[-1]
    if attempt not in having:
        raise StepNotFoundError(
            f"Couldn't show step {step:,} of attempt {attempt} of '{run.info.path}': "
            "that attempt did not log it",
            hint=f"Attempts that did: {', '.join(map(str, having))}.",
        )
    return attempt


def _nearest(run: Run, step: int) -> str:
    known = order_statistics.distinct(np.concatenate([run.steps.step, run.ranks.step]))
    if not len(known):
        return "No step was logged at all."
    place = int(np.searchsorted(known, step))
    near = [int(value) for value in known[max(0, place - 1) : place + 1]]
    words = " and ".join(f"{value:,}" for value in near)
    return f"Nearest logged: {words} (logged: {int(known[0]):,} to {int(known[-1]):,})."


def _seen_by(frame: Frame, attempt: int) -> BoolArray:
    past: BoolArray = frame.attempt <= attempt
    ends = takeovers(frame.step[past], frame.attempt[past])
    lineage = frame.in_lineage(ends)
    return past if lineage is None else past & lineage


def _metrics(frame: Frame, rows: BoolArray, step: int, window: int) -> tuple[MetricAtStep, ...]:
    upto = rows & (frame.step <= step)
    metrics = []
    for name in frame.names:
        series = frame.series(name, upto)
        if series is not None and series.steps[-1] == step:
            metrics.append(_measure(series, window))
    return tuple(sorted(metrics, key=lambda item: (-item.deviation, _weight(item), item.name)))


def _weight(item: MetricAtStep) -> int:
    """What is looked at first where nothing says that it is usual."""
    if item.judged:
        return 0
    return VITAL.index(item.name) if item.name in VITAL else len(VITAL)


def _measure(series: Series, window: int) -> MetricAtStep:
    value = float(series.values[-1])
    before = series.values[-1 - window : -1]
    past = before[np.isfinite(before)]
    median = order_statistics.median(past) if len(past) else math.nan
    log = _on_log_scale(series.name, value, median)
    return MetricAtStep(
        name=series.name,
        value=value,
        median=median,
        past=len(past),
        recent=tuple(series.values[-_RECENT:].tolist()),
        off=value / median if log else value - median,
        off_kind="ratio" if log else "difference",
        deviation=_deviation(series.name, value, past, log=log),
    )


def _on_log_scale(name: str, value: float, median: float) -> bool:
    entry = schema.metric(name)
    return entry is not None and entry.scale == "log" and value > 0 and median > 0


def _deviation(name: str, value: float, past: FloatArray, *, log: bool) -> float:
    if not math.isfinite(value):
        return math.inf
    if len(past) < _MIN_PAST:
        return 0.0
    if log and bool((past > 0).all()):
        return _robust(math.log10(value), np.log10(past), floor=0.01)
    entry = schema.metric(name)
    smallest = 0.01 if entry is not None and entry.scale == "fraction" else _ROUNDING
    return _robust(value, past, floor=max(smallest, 0.01 * abs(order_statistics.median(past))))


def _robust(value: float, others: FloatArray, floor: float) -> float:
    median = order_statistics.median(others)
    spread = _MAD_TO_SIGMA * order_statistics.median(np.abs(others - median))
    distance = abs(value - median)
    if distance == 0:
        return 0.0
    return min(distance / max(spread, floor, _ROUNDING), 1e9)


def _nearby(run: Run, step: int) -> tuple[Event, ...]:
    """The checkpoint before the step, and the events nearest to it; the same news only once."""
    told: dict[tuple[str, int, int], Event] = {}
    for event in run.events:
        if event.step is not None and event.kind != "run_started":
            told.setdefault((event.kind, event.step, event.attempt), event)
    events = list(told.values())
    near = sorted(events, key=lambda event: abs((event.step or 0) - step))[:_EVENTS]
    before = [event for event in events if event.kind == "checkpoint" and (event.step or 0) <= step]
    if before:
        latest = max(before, key=lambda event: event.step or 0)
        near += [latest] if latest not in near else []
    return tuple(sorted(near, key=lambda event: (event.step or 0, event.attempt)))


def _ranks(frame: Frame, step: int, attempt: int, rank: int | None, window: int) -> RanksAtStep:
    rows = (frame.step == step) & (frame.attempt == attempt)
    reporting = sorted({int(number) for number in frame.rank[rows]})
    if rank is not None and rank not in reporting:
        raise UsageError(
            f"Couldn't show rank {rank} at step {step:,}: it did not report there",
            hint=f"Reporting: {_spans(reporting)}." if reporting else "No rank did.",
        )
    if not reporting:
        return RanksAtStep(0)
    values = _values_at(frame, rows)
    name = "loss" if "loss" in values else min(values, default=None)
    low, high = (math.nan, math.nan) if name is None else _range(values[name][0])
    outliers = [item for metric, found in values.items() for item in _off_in(metric, *found)]
    own: tuple[MetricAtStep, ...] = ()
    if rank is not None:
        own = _metrics(frame, _seen_by(frame, attempt) & (frame.rank == rank), step, window)
    return RanksAtStep(
        reporting=len(reporting),
        metric=name,
        low=low,
        high=high,
        outliers=tuple(sorted(outliers, key=lambda item: (-item.deviation, item.rank))),
        rank=rank,
        own=own,
    )


def _spans(numbers: Sequence[int]) -> str:
    if len(numbers) <= 12:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} … {numbers[-1]} ({len(numbers)} ranks)"


def _values_at(frame: Frame, rows: BoolArray) -> dict[str, tuple[FloatArray, list[int]]]:
    """Each metric's values over the ranks, with the ranks they belong to."""
    values_by_metric = {}
    for name in frame.names:
        values, valid = frame.load(name)
        here = rows & valid
        if here.any():
            values_by_metric[name] = values[here], frame.rank[here].tolist()
    return values_by_metric


def _range(values: FloatArray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (math.nan, math.nan)


def _off_in(name: str, values: FloatArray, ranks: Sequence[int]) -> list[RankOff]:
    finite = values[np.isfinite(values)]
    median = order_statistics.median(finite) if len(finite) else math.nan
    outliers = []
    for rank, value in zip(ranks, values.tolist(), strict=True):
        deviation = _among(value, finite)
        if deviation >= STICKS_OUT:
            outliers.append(RankOff(rank, name, value, median, deviation))
    return outliers


def _among(value: float, finite: FloatArray) -> float:
    if not math.isfinite(value):
        return math.inf
    if len(finite) < _MIN_RANKS:
        return 0.0
    return _robust(value, finite, floor=0.01 * abs(order_statistics.median(finite)))


def _groups(rollouts: Sequence[Rollout]) -> tuple[GroupAtStep, ...]:
    by_id: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_id.setdefault(rollout.group_id, []).append(rollout)
    groups = [_group(group_id, members) for group_id, members in by_id.items()]
    return tuple(sorted(groups, key=_telling))


def _telling(group: GroupAtStep) -> tuple[bool, bool, float, str]:
    """Noise first, then groups that move the weights most."""
    sizes = [abs(value) for value in (group.low, group.high) if math.isfinite(value)]
    return not group.noise, group.flat, -max(sizes, default=0.0), group.group_id


def _group(group_id: str, members: Sequence[Rollout]) -> GroupAtStep:
    rewards = [rollout.reward for rollout in members if rollout.reward is not None]
    known = [rollout.advantage for rollout in members if rollout.advantage is not None]
    low, high = (min(known), max(known)) if known else (math.nan, math.nan)
    equal = len(rewards) > 1 and bool(flat(rewards))
    counted = Counter(float(f"{reward:.6g}") for reward in rewards)
    return GroupAtStep(
        group_id=group_id,
        rollouts=tuple(sorted(members, key=lambda rollout: -abs(rollout.advantage or 0.0))),
        rewards=tuple(sorted(counted.items())),
        low=low,
        high=high,
        flat=equal,
        noise=equal and any(abs(value) > SIZEABLE for value in known),
    )
