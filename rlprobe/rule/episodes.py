"""Where a rule says that a signal is bad, and the episodes of that."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from rlprobe import stats
from rlprobe.detector import RunContext
from rlprobe.findings import Evidence, State
from rlprobe.rule.signals import Past, Signal
from rlprobe.values import BoolArray, FloatArray, IntArray

LOOK_BACK = 64  # rows before an episode that it is compared with
SPAN, SHARE = 5, 0.8  # persistent: most of five rows in a row


@dataclass(frozen=True, slots=True)
class Period:
    """Steps of a run over which something was wrong.

    Attributes:
        first: first bad step.
        seen: last step at which it was seen.
        recovered: whether the run went on without it.
    """

    run: RunContext
    first: int
    seen: int
    recovered: bool
    metrics: tuple[str, ...] = ()

    @classmethod
    def over(cls, stretches: Sequence[Stretch]) -> Period:
        """From the onset of the first of some stretches to the end of the last."""
        return cls(
            stretches[0].signal.run,
            min(stretch.first for stretch in stretches),
            max(stretch.seen for stretch in stretches),
            all(stretch.recovered for stretch in stretches),
            tuple(dict.fromkeys(stretch.signal.metric for stretch in stretches)),
        )

    @property
    def last(self) -> int:
        """Last step that belongs to it; the last of the run unless it recovered."""
        return self.seen if self.recovered else self.run.last_step

    @property
    def state(self) -> State:
        """Whether it goes on, has passed, or ended the run."""
        if self.recovered:
            return "recovered"
        return "ended_run" if self.run.ended else "ongoing"


@dataclass(frozen=True, slots=True)
class Moment:
    """A single step at which something happened, and what became of the run."""

    first: int
    state: State
    metrics: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The same step."""
        return self.first


@dataclass(frozen=True, slots=True)
class Stretch:
    """An episode of one signal: rows that are bad, and the rows that lead to them.

    Attributes:
        start, end: first and last row, both inclusive.
        recovered: whether the signal goes on after it.
        sure: first row that is surely bad; those before it lead there.
        level: what each row of the signal is judged by, in its own unit, if that is known.
    """

    signal: Signal
    start: int
    end: int
    recovered: bool
    sure: int
    level: FloatArray | None = None

    def __len__(self) -> int:
        return self.end - self.start + 1

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.start, self.end + 1)

    @property
    def core(self) -> slice:
        """Its rows without those that lead to it."""
        return slice(self.sure, self.end + 1)

    @property
    def first(self) -> int:
        """First bad step."""
        return int(self.signal.steps[self.start])

    @property
    def seen(self) -> int:
        """Step of its last row."""
        return int(self.signal.steps[self.end])

    @property
    def last(self) -> int:
        """Last step that belongs to it; the last of the run unless it recovered."""
        return self.period.last

    @property
    def state(self) -> State:
        """Whether it goes on, has passed, or ended the run."""
        return self.period.state

    @property
    def period(self) -> Period:
        """Its steps."""
        return Period(self.signal.run, self.first, self.seen, self.recovered, self.metrics)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metric it is an episode of."""
        return (self.signal.metric,)

    @property
    def values(self) -> FloatArray:
        """The signal's values on its rows."""
        return self.signal.values[self.rows]

    @property
    def onset(self) -> float:
        """The value of its first row."""
        return float(self.signal.values[self.start])

    @property
    def usual(self) -> float:
        """The median of its values."""
        return stats.median(self.values)

    @property
    def onset_level(self) -> float:
        """The level that its first row is judged by; NaN where none is known."""
        return math.nan if self.level is None else float(self.level[self.start])

    @property
    def expected(self) -> float:
        """The median of the levels that its values are judged by; NaN where none is known."""
        return math.nan if self.level is None else stats.median(self.level[self.rows])

    @property
    def top(self) -> int:
        """The row of its highest value."""
        return self.start + int(np.argmax(self.values))

    def before(self, rows: int | None = None) -> float:
        """The median of the values before it (of so many rows); NaN if there are none."""
        return stats.median(_ahead(self.signal.values, self.start, rows))

    def starting(self, row: int) -> Stretch:
        """The same with another first row."""
        return dataclasses.replace(self, start=row)

    def judged_by(self, level: FloatArray) -> Stretch:
        """The same, with the level that each row of the signal is judged by."""
        return dataclasses.replace(self, level=level)

    def of(self, signal: Signal) -> Stretch:
        """The same rows of another signal."""
        return dataclasses.replace(self, signal=signal, level=None)

    def extend_back(self, departed: BoolArray, *, slack: int = 0) -> Stretch:
        """From its onset: back over rows that had departed, and `slack` others at a time."""
        return self.starting(stats.extend_back(departed, self.start, slack=slack))

    def beside(
        self, metric: str, rows: int | None = LOOK_BACK, *, unsigned: bool = False
    ) -> Change:
        """What another metric did: its median during the stretch and over the rows before it.

        Args:
            rows: so many before it; None: all of them.
            unsigned: compare its absolute values.
        """
        values = self.signal.beside(metric)
        values = np.abs(values) if unsigned else values
        before = _ahead(values, self.start, rows)
        return Change(
            metric, stats.median(before), stats.median(values[self.rows]), stats.robust_std(before)
        )

    def since(self, metric: str, rows: int | None = LOOK_BACK, *, unsigned: bool = False) -> Change:
        """The same, where the other metric may go on after the signal's last value: to the end."""
        change, own = self.beside(metric, rows, unsigned=unsigned), self.signal.run.series(metric)
        if own is None:
            return change
        within = own.values[(own.steps >= self.first) & (own.steps <= self.last)]
        during = stats.median(np.abs(within) if unsigned else within)
        return dataclasses.replace(change, during=during)

    def extend_to_drift(self, past: Past, *, floor: float, down: bool = False) -> Stretch:
        """From where the drift that leads to it began (a one-sided cumulative sum).

        Args:
            floor: no standard deviation of the past counts as smaller.
            down: whether the signal drifts downwards.
        """
        off = past.scaled - past.center[self.start]
        sigma = max(float(past.robust_std[self.start]), floor)
        return self.starting(stats.drift_onset((-off if down else off) / sigma, self.start))

    def at_onset(self, baseline: float | None, note: str = "onset") -> Evidence:
        """Evidence: the first value against a baseline."""
        return self._evidence(self.first, self.onset, baseline, note)

    def at_top(self, baseline: float | None, note: str = "highest") -> Evidence:
        """Evidence: the highest value against a baseline."""
        step, value = int(self.signal.steps[self.top]), float(self.signal.values[self.top])
        return self._evidence(step, value, baseline, note)

    def in_all(self, value: float, baseline: float | None, note: str) -> Evidence:
        """Evidence: a number over the whole stretch."""
        return self._evidence(None, float(value), baseline, note)

    def _evidence(
        self, step: int | None, value: float, baseline: float | None, note: str
    ) -> Evidence:
        signal = self.signal
        return Evidence(signal.metric, step, value, known(baseline), signal.rank, note)


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before an episode and during it; NaN where it was not logged.

    Attributes:
        before_std: its robust standard deviation before.
    """

    metric: str
    before: float
    during: float
    before_std: float

    @property
    def known(self) -> bool:
        """Whether both sides are known."""
        return math.isfinite(self.before) and math.isfinite(self.during)

    @property
    def times(self) -> float:
        """How many times as large it became; NaN where that makes no sense."""
        return self.during / self.before if self.before > 0 else math.nan

    def rose(self, sigmas: float = 0.0) -> bool:
        """Whether it is higher than before, by more than so many standard deviations."""
        return self.during > self.before + (sigmas * self.before_std if sigmas else 0.0)

    def fell(self, share: float) -> bool:
        """Whether it is below this part of what it was."""
        return self.during < share * self.before

    def evidence(self, note: str = "median since, against before") -> Evidence | None:
        """Evidence, where both sides are known."""
        return (
            Evidence(self.metric, None, self.during, self.before, note=note) if self.known else None
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """What a rule says of a signal.

    Attributes:
        bad: rows that are surely bad.
        departed: rows that have left the usual range; an episode's onset is looked for in them.
        level: what each row is judged by, in the metric's unit.
    """

    signal: Signal
    bad: BoolArray
    departed: BoolArray | None = None
    level: FloatArray | None = None

    def persistent(
        self, span: int = SPAN, share: float = SHARE, *, gap: int | None = None, slack: int = 0
    ) -> tuple[Stretch, ...]:
        """Stretches in which of any `span` rows in a row at least `share` are bad.

        Args:
            gap: so many good rows do not part two stretches; default `span`.
            slack: so many rows of the usual range do not end the way back to the onset.
        """
        gap = span if gap is None else gap
        return self._stretches(stats.persistent(self.bad, width=span, share=share, gap=gap), slack)

    def runs(self, *, gap: int = 0, least: int = 1, slack: int = 0) -> tuple[Stretch, ...]:
        """Runs of bad rows, at least `least` of them; `gap` good rows do not part two."""
        return self._stretches(stats.episodes(self.bad, gap=gap, least=least), slack)

    def _stretches(self, episodes: Iterable[stats.Episode], slack: int) -> tuple[Stretch, ...]:
        stretches = (
            Stretch(self.signal, e.start, e.end, e.recovered, sure=e.start, level=self.level)
            for e in episodes
        )
        if self.departed is None:
            return tuple(stretches)
        return tuple(stretch.extend_back(self.departed, slack=slack) for stretch in stretches)

    def bad_rows(self, stretch: Stretch) -> IntArray:
        """The rows of a stretch that are surely bad."""
        rows: IntArray = np.flatnonzero(self.bad[stretch.rows]) + stretch.start
        return rows


def stretch_from(signal: Signal, start: int, end: int | None = None) -> Stretch:
    """The rows from `start` to `end`, or to the last, as an episode of a signal."""
    last = len(signal) - 1
    end = last if end is None else end
    return Stretch(signal, start, end, end < last, start)


def _ahead(values: FloatArray, row: int, rows: int | None) -> FloatArray:
    return values[:row] if rows is None else values[max(0, row - rows) : row]


def known(value: float | None) -> float | None:
    """A baseline, or None where it is not known."""
    return None if value is None or not math.isfinite(value) else float(value)


class _Timed(Protocol):
    """Something that lasts: from its first to its last step."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


T = TypeVar("T", bound=_Timed)


def together(items: Iterable[T], reach: int) -> Iterator[list[T]]:
    """Groups of items that overlap or follow each other within `reach` steps.

    Args:
        items: in order of their first steps.
    """
    group: list[T] = []
    end = 0
    for item in items:
        if group and item.first > end + reach:
            yield group
            group = []
        end = max(end, item.last) if group else item.last
        group.append(item)
    if group:
        yield group
