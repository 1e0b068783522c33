"""One training in an output: its rows, launch by launch, and what is known again of it."""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rlprobe import naming
from rlprobe.importers.console.heard import Heard
from rlprobe.importers.console.steps import ConsoleRow, ConsoleRows, SettledSteps
from rlprobe.importers.importer import Reading, Told
from rlprobe.importers.rows import RowTable
from rlprobe.importers.steps import COUNTERS
from rlprobe.values import Event

Kind = frozenset[str]
Places = dict[str, float]  # of a row: where by each counter it stands

_MOST_KINDS = 32  # sets of metrics that a training's rows are remembered by
_MOST_LAUNCHES = 50
_MOST_HEAD = 8  # first rows that are remembered as they are
_PLACED = frozenset({"step", "epoch"})
_RATES = frozenset({"lr", "grad_norm"})
_EVALUATIONS = ("eval", "val", "test", "Validation")


class Training:
    """The rows of one training, in their order.

    Attributes:
        kinds: what its rows measure, and where by their epoch rows of each kind came to.
        first, last: where by each counter it began, and how far it came.
        total: steps that it is to have, by its progress bar.
        reached: steps that it has had, by the bar that a notebook draws.
        end: the number of its last row in the order of the log; -1 before the first.
        numbers: what was announced of it before its first row.
        heard: messages of the framework between its rows.
    """

    def __init__(self) -> None:
        self.kinds: dict[Kind, float | None] = {}
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.total: int | None = None
        self.reached: int | None = None
        self.numbers: dict[str, str] = {}
        self._head: list[dict[str, float]] = []
        self.end = -1
        self._table = RowTable()
        self._launches = [_Launch()]
        self.heard = Heard()
        self._endings: list[Told] = []  # how it ended, or seemed to

    def __len__(self) -> int:
        return len(self._table)

    def add(self, row: ConsoleRow, places: Places, *, relaunched: bool = False) -> None:
        """Take the next row; one without a step whose epoch went back is of another launch."""
        if not row.beside:
            self._know(row, places, relaunched=relaunched)
        self.end = len(self)
        self.add_late(row)

    def add_late(self, row: ConsoleRow) -> None:
        """Take a row of an earlier step, which was known to be one only in the end."""
        self._launches[-1].add(row)
        self._table.add(0, row.metrics)

    def may_add_rows(self, first: ConsoleRow) -> bool:
        """Whether rows like this one are nothing new: all that is kept of some was seen."""
        known = kind_of(first) in self.kinds and len(self._head) == _MOST_HEAD
        places = place_of(first)
        return known and places.keys() <= self.first.keys() and not self.goes_back(places)

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take the next rows, which are nothing new."""
        last = rows.row(-1)
        self.kinds[kind_of(last)] = last.metrics.get("epoch")
        self.last |= place_of(last)
        if last.bar is not None:
            self.total = last.bar.of
        self._launches[-1].add_rows(rows)
        self._table.add_columns(np.zeros(rows.size, dtype=np.int64), rows.columns())
        self.end = len(self) - 1

    def _know(self, row: ConsoleRow, places: Places, *, relaunched: bool) -> None:
        kind, epoch = kind_of(row), row.metrics.get("epoch")
        before = self.kinds.get(kind)
        if row.step is None and epoch is not None and before is not None and epoch < before:
            usual = self._launches[-1].stride
            fell = relaunched or before - epoch > 1.5 * usual
            if fell and len(self._launches) < _MOST_LAUNCHES:
                self._launches.append(_Launch(self._launches[-1], epoch))
        if kind in self.kinds or len(self.kinds) < _MOST_KINDS:
            self.kinds[kind] = epoch
        if len(self._head) < _MOST_HEAD:
            self._head.append({name_of(key): value for key, value in row.metrics.items()})
        for counter in places.keys() - self.first.keys():
            self.first[counter] = places[counter]
        self.last |= places
        if row.bar is not None:
            self.total = row.bar.of

    def goes_back(self, places: Places) -> bool:
        """Whether a row of these places stands before the last one."""
        return any(at < self.last.get(counter, at) for counter, at in places.items())

    def begins_with(self, rows: Sequence[ConsoleRow]) -> bool:
        """Whether these rows say again, with their steps, what its first ones said without."""
        if "step" in self.first or rows[0].step is None:
            return False
        told = [{name_of(key): value for key, value in row.metrics.items()} for row in rows]
        pairs = list(zip(self._head, told, strict=False))
        return len(told) <= len(self._head) and all(agree(*pair) for pair in pairs)

    def tell(self, event: Event | None, row: int) -> None:
        """An event behind the row of this number."""
        if event is not None and row >= 0:
            self._endings.append(Told(row, event))

    @property
    def names(self) -> Kind:
        """All that its rows measure."""
        return frozenset[str]().union(*self.kinds)

    @property
    def complete(self) -> bool:
        """Whether it came to the end of its progress bar, as far as that is known."""
        return self.reached is None or self.total is None or self.reached >= self.total

    def reading(self, notes: Sequence[str]) -> Reading:
        """What it is, once no more follows."""
        settled = [launch.settled() for launch in self._launches]
        steps = [step for numbers, _ in settled for step in numbers]
        self._table.set_steps(np.array(steps, dtype=np.int64))
        said = [*notes, *self.heard.notes()]
        every = dict.fromkeys([*(note for _, sources in settled for note in sources), *said])
        told = [*self.heard.told(), *self._endings]
        return Reading(self._table, told=told, launches=self.heard.launches, notes=list(every))


class _Launch:
    """The steps of the rows that one launch printed, where rows have no step of their own."""

    def __init__(self, before: _Launch | None = None, epoch: float = 0.0) -> None:
        self.stride = 0.0  # of epochs, between the last two rows that have one
        self._steps = SettledSteps()
        self._epochs = array("d")
        self._rows = array("q")  # of each epoch, which row has it
        self._size = 0
        self._before, self._epoch = before, epoch
        self._numbers: list[int] = []

    def add(self, row: ConsoleRow) -> None:
        """Take the next row."""
        epoch = row.metrics.get("epoch")
        if row.step is None and not row.beside and epoch is not None:
            if self._epochs and epoch > self._epochs[-1]:
                self.stride = epoch - self._epochs[-1]
            if not self._epochs or epoch >= self._epochs[-1]:
                self._epochs.append(epoch)
                self._rows.append(self._size)
        self._steps.add(row)
        self._size += 1

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take the next rows."""
        if rows.steps is None and "epoch" in rows.names:
            epochs = rows.values[:, rows.names.index("epoch")]
            before = np.append(self._epochs[-1:], epochs)
            moves = np.diff(before)
            if (moves > 0).any():
                self.stride = float(moves[moves > 0][-1])
            self._epochs.extend(epochs)
            self._rows.extend(range(self._size, self._size + len(rows)))
        self._steps.add_rows(rows)
        self._size += rows.size

    def settled(self) -> tuple[list[int], list[str]]:
        """The steps, and in words where they come from.

        A launch that went on from a checkpoint is counted on from the row that the one before had
        at that epoch.
        """
        numbers, notes = self._steps.settled()
        if self._before is not None and numbers and numbers[0] == 1:
            skipped = self._before.step_before(self._epoch)
            numbers = [number + skipped for number in numbers]
        self._numbers = numbers
        return numbers, notes

    def step_before(self, epoch: float) -> int:
        """The step of the last row before an epoch; 0 where there is none."""
        index = bisect_left(self._epochs, epoch) - 1
        return self._numbers[self._rows[index]] if index >= 0 else 0


def place_of(row: ConsoleRow) -> Places:
    """Where a row stands, by the counters that tell it; the best first."""
    places: Places = {}
    if row.step is not None:
        places["step"] = row.step
    if "epoch" in row.metrics:
        places["epoch"] = row.metrics["epoch"]
    if row.bar is not None:
        places[f"of {row.bar.of}"] = row.bar.at
    return places


def kind_of(row: ConsoleRow) -> Kind:
    """What a row measures of the training, under canonical names."""
    return _kind(tuple(row.metrics))


@functools.lru_cache(maxsize=4096)
def _kind(keys: tuple[str, ...]) -> Kind:
    measured = (key for key in keys if not key.startswith(_EVALUATIONS))
    return frozenset(name_of(key) for key in measured if key not in COUNTERS)


@functools.lru_cache(maxsize=4096)
def name_of(key: str) -> str:
    """The canonical name of a key, or the key."""
    return naming.every()["generic"].canonical(key) or key


def alike(a: Kind, b: Kind) -> bool:
    """Whether rows of two kinds share half of what the larger one measures."""
    return not a or not b or len(a & b) * 2 >= max(len(a), len(b))


def have_loss(kinds: Iterable[Kind]) -> bool:
    """Whether some row has a loss, as those of a training do."""
    return any("loss" in name.lower() for kind in kinds for name in kind)


def are_trained(rows: Iterable[ConsoleRow]) -> bool:
    """Whether rows are of a training, and no result that is printed beside it."""
    return any(
        have_loss([kind_of(row)]) and (_PLACED.intersection(place_of(row)) or _RATES & kind_of(row))
        for row in rows
    )


def agree(before: Mapping[str, float], told: Mapping[str, float]) -> bool:
    """Whether two rows say the same, as far as both were printed; zeros agree with any others."""
    shared = [(before[key], told[key]) for key in told.keys() & before.keys() - COUNTERS]
    return any(a for a, _ in shared) and all(_close(a, b) for a, b in shared)


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + 5e-5
