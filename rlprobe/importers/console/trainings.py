"""Which training each row of an output belongs to: a script or a notebook may hold several.

Another training begins where the steps begin anew and one of these holds:

- the one before was ended by its summary (`train_runtime`, `TrainOutput(…)`);
- something else is measured (a GRPO after an SFT), and each has a loss of its own, or a sign of a
  beginning stands between;
- it is announced with other numbers (`***** Running training *****`, Unsloth's banner);
- another cell of a notebook begins it, and the one before had come to its end, or has another
  total.

What goes on is the same training, whatever is said in between: steps that continue, a launch that
resumes from a checkpoint, one that begins anew after a crash or an interrupted first try. A short
one (a smoke test) that has come to its end is a training like any other.

Source: transformers `Trainer._inner_training_loop` (the banner and the summary),
`NotebookProgressCallback` (one table per call of `train`), unsloth `_utils.py` (its banner).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlprobe import naming
from rlprobe.importers.console.ending import LastWords
from rlprobe.importers.console.heard import Heard
from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.steps import ConsoleRow, SettledSteps
from rlprobe.importers.importer import Reading, Told
from rlprobe.importers.rows import RowTable
from rlprobe.importers.steps import COUNTERS

_AHEAD = 6  # rows that are looked at before it is said whether they are of another training
_MOST_KINDS = 32  # sets of metrics that a training's rows are remembered by
_MOST_SHOWN = 20_000  # rows of a notebook that are remembered, to know them again
_EVALUATIONS = ("eval", "val", "test", "Validation")

# Words of which a line has one that tells of a training: few lines do.
_WORDS = (
    "train_runtime",
    "TrainOutput(",
    "Num e",
    "Num E",
    "Total ",
    "Running ",
    "Continuing ",
    "esum",
    "Traceback",
    "Error",
)
_SUMMARY = re.compile(r"""\btrain_runtime['"]?\s*[:=]|\bTrainOutput\(global_step=""")
_NUMBERS = re.compile(
    r"\b(Num examples|Num Epochs|Total optimization steps|Total steps)\s*=\s*([\d,]{1,20})"
)
_BEGINS = re.compile(r"Running training\b")
_HELD_OUT = re.compile(r"Running (?:[Ee]valuation|[Pp]rediction)")
_RESUMED = re.compile(
    r"Continuing training from checkpoint|\b[Rr]esum(?:ed|ing)(?: training)? from\b"
)
_FAILED = re.compile(r"Traceback \(most recent call last\)|Error[:(]")
_SIGN = re.compile(
    "|".join(
        pattern.pattern for pattern in (_SUMMARY, _NUMBERS, _HELD_OUT, _RESUMED, _FAILED, _BEGINS)
    )
)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a notebook tells besides its lines.

    Attributes:
        cell: whether another cell begins.
        error: how the cell failed, in the words of a terminal.
        at, of: where the progress bar stands above the table that follows.
    """

    cell: bool = False
    error: Sequence[str] = ()
    at: int = 0
    of: int = 0


@dataclass(slots=True)
class _Between:
    """What was said since the last row of a training."""

    ended: bool = False
    resumed: bool = False
    cell: bool = False
    failed: bool = False
    held_out: bool = False
    numbers: dict[str, str] = field(default_factory=dict)
    bar: Mark | None = None

    @property
    def begins(self) -> bool:
        """Whether it may be that another training begins."""
        return self.ended or self.cell or bool(self.numbers)


class _Training:
    """The rows of one training, and what it takes to tell another one from it."""

    def __init__(self, between: _Between) -> None:
        self.table, self.steps = RowTable(), SettledSteps()
        self.kinds: dict[frozenset[str], None] = {}
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.stride: dict[str, float] = {}
        self.numbers = between.numbers
        self.bar = between.bar
        self.total = between.bar.of if between.bar else None
        self.events: list[Told] = []  # how it ended, or seemed to
        self.heard = Heard()

    def __len__(self) -> int:
        return len(self.table)

    def add(self, row: ConsoleRow) -> None:
        """Take the next row."""
        self.table.add(0, row.metrics)
        self.steps.add(row)
        if row.beside:
            return
        for counter, at in _place(row).items():
            last = self.last.get(counter)
            if last is not None and at > last:
                self.stride[counter] = at - last
            self.first.setdefault(counter, at)
            self.last[counter] = at
        if row.bar is not None:
            self.total = row.bar.of
        if len(self.kinds) < _MOST_KINDS:
            self.kinds[_kind(row)] = None

    def goes_back(self, row: ConsoleRow) -> bool:
        """Whether a row stands before the last one."""
        return any(at < self.last.get(counter, at) for counter, at in _place(row).items())

    @property
    def complete(self) -> bool:
        """Whether its progress bar came to its end, as far as that is known."""
        return self.bar is None or self.bar.at >= self.bar.of

    def reading(self, notes: Sequence[str]) -> Reading:
        """What it is, once no more follows."""
        numbers, said = self.steps.settled()
        self.table.set_steps(np.array(numbers, dtype=np.int64))
        told, launches = [*self.heard.told(), *self.events], self.heard.launches
        return Reading(self.table, told=told, launches=launches, notes=[*said, *notes])


class Trainings:
    """Takes the rows of an output in their order, and what is said between them."""

    def __init__(self) -> None:
        self._between = _Between()
        self._all = [_Training(self._between)]
        self._words = LastWords()
        self._alarm: int | None = None  # rows there were when a failure was first spoken of
        self._failed: tuple[int, LastWords] | None = None  # what was said then, until a row follows
        self._heard = True
        self._waiting: list[ConsoleRow] = []
        self._apart: list[ConsoleRow] = []
        self._is_apart = False  # whether the rows that follow in this cell are none of a training
        self._shown: dict[int, dict[str, float]] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._all)) + len(self._waiting)

    @property
    def _last(self) -> _Training:
        return self._all[-1]

    def add(self, rows: Iterable[ConsoleRow]) -> None:
        """Take rows."""
        for row in rows:
            if self._shown is None or not self._is_shown_again(row):
                self._take(row)

    def _take(self, row: ConsoleRow) -> None:
        if self._waiting:
            self._waiting.append(row)
            if len(self._waiting) >= _AHEAD:
                self._decide()
        elif row.beside or not len(self._last):
            self._keep(row)
        elif self._between.begins or self._last.goes_back(row):
            self._waiting = [row]
        else:
            self._died(anew=len(self._last) in self._last.heard.launches[-1:])
            self._keep(row)

    def _keep(self, row: ConsoleRow) -> None:
        training, between = self._last, self._between
        if not row.beside:
            training.numbers = training.numbers or between.numbers
            training.bar = between.bar or training.bar
            training.total = between.bar.of if between.bar else training.total
            self._between = _Between()
        training.add(row)

    def _decide(self) -> None:
        """Whether the rows that wait are of another training."""
        rows, self._waiting = self._waiting, []
        if rows:
            self._died(anew=True)
        if rows and _is_another(self._last, rows, self._between):
            self._all.append(_Training(self._between))
            if self._shown is not None:
                self._shown = {}
        for row in rows:
            self._keep(row)

    def tells(self, line: str) -> bool:
        """Whether a line says something of a training, rather than of a step: then `hear` it."""
        return any(word in line for word in _WORDS) and _SIGN.search(line) is not None

    def hear(self, line: str) -> None:
        """Take note of such a line; the rows before it have been given."""
        self._decide()
        between = self._between
        if _FAILED.search(line):
            self._alarm = len(self._last) - 1 if self._alarm is None else self._alarm
        if _SUMMARY.search(line):
            between.ended = True
        elif _RESUMED.search(line):
            between.resumed = True
        elif _HELD_OUT.search(line):
            between.held_out = True
        elif _BEGINS.search(line):
            between.held_out, between.numbers = False, {}
        elif not between.held_out:
            between.numbers = between.numbers | dict(_NUMBERS.findall(line))

    def mark(self, mark: Mark) -> None:
        """Take note of what a notebook tells; the rows before it have been given."""
        self._shown = {} if self._shown is None else self._shown
        self._decide()
        between = self._between
        if mark.of:
            between.bar = mark
        if mark.error:
            between.failed = True
            self._alarm = len(self._last) - 1 if self._alarm is None else self._alarm
            for line in mark.error:
                self.say(line)
        if mark.cell:
            # What another cell says, and how it fails, is no end of this training.
            self.move()
            self._heard, between.cell = False, True

    def say(self, line: str) -> None:
        """Any line, in order: the last ones may tell how the training ended."""
        if self._heard:
            self._words.add(line)

    def tell(self, message: Message) -> None:
        """A message of the framework; the rows before it have been given."""
        self._decide()
        self._last.heard.hear(message, len(self._last) - 1)

    def move(self) -> None:
        """The output goes on: what was said is no end of the whole."""
        if self._alarm is not None and self._alarm >= 0:
            self._failed = self._failed or (self._alarm, self._words)
            self._words = LastWords()
        self._alarm, self._heard = None, True
        self._words.clear()

    def _died(self, *, anew: bool) -> None:
        """Tell of a failure, where the training begins anew after it."""
        if self._failed is not None and anew:
            row, words = self._failed
            event = words.event(None, followed=True)
            self._last.events += [] if event is None else [Told(row, event)]
        self._failed = None

    def readings(self, notes: Sequence[str]) -> list[Reading]:
        """One for each training, named by its number where there are several; [] without rows."""
        self._decide()
        if not len(self):
            return []
        last = len(self._last) - 1
        event = self._words.event(None) or self._last.heard.ending(last)
        if event is not None:
            self._last.events.append(Told(last, event))
        readings = [training.reading(notes) for training in self._all]
        if len(readings) > 1:
            for number, reading in enumerate(readings, start=1):
                reading.run = f"#{number}"
                said = f"training {number} of {len(readings)} in this file"
                reading.notes = [said, *reading.notes]
        return readings

    def _is_shown_again(self, row: ConsoleRow) -> bool:
        """Whether a notebook shows a row once more: a table that was drawn again, or its data."""
        shown = self._shown
        if shown is None or row.step is None:
            return False
        told = {_name(key): value for key, value in row.metrics.items()}
        before = shown.setdefault(row.step, told)
        if len(shown) > _MOST_SHOWN:
            shown.clear()
        shared = [(before[key], told[key]) for key in told.keys() & before.keys() - COUNTERS]
        again = before is not told and any(a for a, _ in shared)
        if again and all(_close(a, b) for a, b in shared) and told.keys() <= before.keys():
            return True
        shown[row.step] = before | told
        return False


def _is_another(training: _Training, rows: Sequence[ConsoleRow], between: _Between) -> bool:
    """Whether rows that may begin a training do."""
    rows = [row for row in rows if not row.beside]
    kinds = [_kind(row) for row in rows]
    other = not any(_alike(a, b) for a in training.kinds for b in kinds)
    anew = _begins_anew(training, rows)
    if anew is False:
        return other and between.ended and _losses(kinds)
    announced = between.ended or between.numbers or (anew and _losses(training.kinds))
    if other and ((announced and _losses(kinds)) or (anew and between.cell)):
        return True
    if between.resumed:
        return False
    if between.ended or (anew and _differ(training.numbers, between.numbers)):
        return True
    total = between.bar.of if between.bar else (rows[0].bar.of if rows[0].bar else None)
    changed = None not in (total, training.total) and total != training.total
    finished = training.complete and not between.failed
    return between.cell and bool(anew) and (changed or finished)


def _begins_anew(training: _Training, rows: Sequence[ConsoleRow]) -> bool | None:
    """Whether rows begin at the beginning; None where no counter tells."""
    places = [_place(row) for row in rows]
    counter = next((c for c in places[0] if c in training.last), None)
    if counter is None:
        return None
    at, last = places[0][counter], training.last[counter]
    then = next((p[counter] for p in places[1:] if p.get(counter, at) > at), None)
    stride = last / 4 if then is None else then - at
    if at < last:
        return at <= max(training.first[counter], 2 * stride)
    return then is not None and at <= stride * 1.01


def _place(row: ConsoleRow) -> dict[str, float]:
    """Where a row stands, by the counters that tell it; the best first."""
    places: dict[str, float] = {}
    if row.step is not None:
        places["step"] = row.step
    if "epoch" in row.metrics:
        places["epoch"] = row.metrics["epoch"]
    if row.bar is not None:
        places[f"of {row.bar.of}"] = row.bar.at
    return places


def _kind(row: ConsoleRow) -> frozenset[str]:
    """What a row measures, under canonical names."""
    keys = (key for key in row.metrics if not key.startswith(_EVALUATIONS))
    return frozenset(_name(key) for key in keys if key not in COUNTERS)


def _name(key: str) -> str:
    return naming.every()["generic"].canonical(key) or key


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether two kinds of rows share half of what the larger one measures."""
    return not a or not b or len(a & b) * 2 >= max(len(a), len(b))


def _losses(kinds: Iterable[frozenset[str]]) -> bool:
    return any("loss" in name.lower() for kind in kinds for name in kind)


def _differ(a: dict[str, str], b: dict[str, str]) -> bool:
    return any(a[key] != b[key] for key in a.keys() & b.keys())


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + 5e-5
