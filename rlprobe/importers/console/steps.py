"""Steps for rows of console output that have none: from the progress bar, or by counting."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.values import BoolArray, FloatArray

BAR = re.compile(
    r"(?P<desc>[^\r\n|%]{0,40}?)\s*\d{1,3}%\|[^|]{0,200}\|\s*(?P<at>\d{1,15})/(?P<of>\d{1,15})\s*"
    r"\[[\d:]+<[\d:?]+,?\s*(?P<unit>[^\]]*)\]"
)
Row = dict[str, float]
_UNSTEPPED, _AS_BEFORE = -1, -2  # counted in the end; at the step of the row before
_TRAINING = re.compile(r"(?:train\w*|steps?|epoch.*|\W*)\s*:?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bar:
    """Where a progress bar stood."""

    at: int
    of: int


@dataclass(slots=True)
class ConsoleRow:
    """One row of metrics in console output.

    Attributes:
        step: None where the output has none for it.
        beside: whether it belongs to the step of the row before it (an evaluation).
        bar: where the progress bar of the training was seen last before the row.
        bar_at: where it stood as the row was printed: beside the row, or drawn again after it.
    """

    step: int | None
    metrics: Row
    beside: bool = False
    bar: Bar | None = None
    bar_at: Bar | None = None


@dataclass(frozen=True, slots=True)
class ConsoleRows:
    """Rows of the same names that follow each other, none of which goes back.

    Attributes:
        steps: one per row; None where the output has none for them.
        names: of the metrics.
        values: (rows x names).
        bars: where the progress bar was seen last before each, and behind the last of them.
        beside: names and values of rows beside these: one before each, and one behind the last.
        redrawn: where the progress bar was seen first behind each, up to the next.
    """

    steps: Sequence[int] | None
    names: tuple[str, ...]
    values: FloatArray
    bars: Sequence[Bar | None]
    beside: tuple[tuple[str, ...], FloatArray] | None = None
    redrawn: Sequence[Bar | None] = ()

    @property
    def size(self) -> int:
        """How many these are with the rows beside them."""
        return len(self) if self.beside is None else 2 * len(self) + 1

    def columns(self) -> dict[str, tuple[FloatArray, BoolArray | None]]:
        """Values and validity by name, with the rows beside."""
        if self.beside is None:
            return {name: (self.values[:, at], None) for at, name in enumerate(self.names)}
        own = np.arange(self.size) % 2 == 1
        columns: dict[str, tuple[FloatArray, BoolArray | None]] = {}
        for names, values, there in ((self.names, self.values, own), (*self.beside, ~own)):
            for at, name in enumerate(names):
                column = np.full(self.size, np.nan)
                column[there] = values[:, at]
                columns[name] = column, there
        return columns

    def __len__(self) -> int:
        return len(self.values)

    def row(self, place: int) -> ConsoleRow:
        """One of them."""
        place %= len(self)
        metrics = dict(zip(self.names, self.values[place].tolist(), strict=True))
        if self.steps is not None:
            return ConsoleRow(self.steps[place], metrics)
        return ConsoleRow(None, metrics, bar=self.bars[place])


class SettledSteps:
    """The step of every row of a log, known once the log has been read to its end."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._bars: list[Bar | None] = []  # one per row without a step

    def add(self, row: ConsoleRow) -> None:
        """Take the next row."""
        if row.step is not None:
            self._steps.append(row.step)
        elif row.beside:
            self._steps.append(_AS_BEFORE)
        else:
            self._steps.append(_UNSTEPPED)
            self._bars.append(row.bar)

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take the next rows."""
        if rows.steps is None:
            self._steps += [_UNSTEPPED] * len(rows)
            self._bars += rows.bars[:-1]
        elif rows.beside is None:
            self._steps += rows.steps
        else:
            for step in rows.steps:
                self._steps += (_AS_BEFORE, step)
            self._steps.append(_AS_BEFORE)

    def settled(self) -> tuple[list[int], list[str]]:
        """The steps, one per row, and in words where they come from."""
        if not self._bars:
            return _carried(self._steps), []
        counted, note = steps_from(self._bars)
        if any(step >= 0 for step in self._steps):
            counted = [_AS_BEFORE if bar is None else bar.at for bar in self._bars]
            note = "rows without a step: that of the progress bar, or of the row before"
        source = iter(counted)
        steps = [next(source) if step == _UNSTEPPED else step for step in self._steps]
        return _carried(steps), [note]


class LiveSteps:
    """The step of each row while the output is still being printed."""

    def __init__(self) -> None:
        self.last = 0
        self._interval = 1

    def place(self, row: ConsoleRow) -> int:
        """The row's own step; else that of the progress bar, or as far on as the last one was."""
        if row.step is not None:
            self.last = row.step
        elif not row.beside:
            self._place(row.bar_at)
        return self.last

    def place_rows(self, rows: ConsoleRows) -> list[int]:
        """The same for many rows, none of which goes back."""
        if rows.steps is not None:
            self.last = rows.steps[-1]
            return list(rows.steps)
        bars = rows.redrawn or [None] * len(rows)
        return [self._place(bar) for bar, _ in zip(bars, rows.values, strict=False)]

    def _place(self, bar: Bar | None) -> int:
        at = self.last + self._interval if bar is None else bar.at
        self._interval = max(at - self.last, 1)
        self.last = max(at, self.last + 1)
        return self.last


def bar_of(match: re.Match[str]) -> Bar | None:
    """The bar, if it may be that of the training and not of a download or an evaluation."""
    unit = match["unit"]
    desc = match["desc"].rpartition("]")[2]
    if not _TRAINING.fullmatch(desc) or "it" not in unit:
        return None
    return Bar(int(match["at"]), int(match["of"]))


def steps_from(bars: Sequence[Bar | None]) -> tuple[list[int], str]:
    """A step for each row, in order, and in words where it comes from."""
    total = _usual_total(bars)
    at = [bar.at if bar and bar.of == total else None for bar in bars]
    known = [step for step in at if step is not None]
    if len(known) * 2 >= len(bars) and _advances(known):
        return _filled(at), "steps not logged: taken from the progress bar"
    reached = max(known, default=0)
    if reached > len(bars) and reached % len(bars) == 0:
        every = reached // len(bars)
        return (
            [(index + 1) * every for index in range(len(bars))],
            f"steps not logged: one row every {every} steps of the progress bar",
        )
    return list(range(1, len(bars) + 1)), "steps not logged: numbered by row"


def _usual_total(bars: Sequence[Bar | None]) -> int:
    totals = Counter(bar.of for bar in bars if bar)
    return totals.most_common(1)[0][0] if totals else 0


def _advances(known: Sequence[int]) -> bool:
    """Whether nearly every row stands elsewhere than the one before: then the bar tells steps."""
    moved = sum(a != b for a, b in itertools.pairwise(known))
    return bool(known) and moved * 10 >= (len(known) - 1) * 9


def _filled(at: Sequence[int | None]) -> list[int]:
    known = [step for step in at if step is not None]
    gaps = sorted(b - a for a, b in itertools.pairwise(known) if b > a)
    every = gaps[len(gaps) // 2] if gaps else 1
    first = next(index for index, step in enumerate(at) if step is not None)
    steps: list[int] = []
    for index, step in enumerate(at):
        if step is not None:
            steps.append(step)
        elif index < first:
            steps.append(max(0, known[0] - every * (first - index)))
        else:
            steps.append(steps[-1] + every)
    return steps


def _carried(steps: list[int]) -> list[int]:
    carried, last = [], 0
    for step in steps:
        last = step if step >= 0 else last
        carried.append(last)
    return carried
