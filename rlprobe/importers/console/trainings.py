"""Which training each row of an output belongs to: a script or a notebook may hold several.

Another training begins where the steps begin anew and one of these holds:

- the one before was ended by its summary (`train_runtime`, `TrainOutput(…)`);
- something else is measured (a GRPO after an SFT), each with a loss of its own;
- it is announced with other numbers (`***** Running training *****`, Unsloth's banner);
- another cell of a notebook begins it, and the one before had come to its end, or was to have
  another number of steps.

What goes on is the same training, whatever is said in between: steps that continue, a launch that
resumes from a checkpoint, one that begins anew after a crash or an interrupted first try. A short
one (a smoke test of two rows) that has come to its end is a training like any other.

Source: transformers `Trainer._inner_training_loop` (the banner and the summary),
`NotebookProgressCallback` (one table per call of `train`), unsloth `_utils.py` (its banner).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlprobe.importers.console import signs
from rlprobe.importers.console.ending import LastWords
from rlprobe.importers.console.launches import (
    Places,
    Training,
    agree,
    alike,
    are_trained,
    have_loss,
    kind_of,
    name_of,
    place_of,
)
from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.steps import ConsoleRow, ConsoleRows
from rlprobe.importers.importer import Reading
from rlprobe.values import Unread

_AHEAD = 6  # rows that are looked at before it is said whether they are of another training
_MOST_SHOWN = 20_000  # rows of a notebook that are remembered, to know them again
_MOST_EXAMPLES = 3

_PLACE = "Logging to"  # of Stable-Baselines3, at each call of `learn`


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


class Trainings:
    """Takes the rows of an output in their order, and what is said between them."""

    def __init__(self) -> None:
        self._all = [Training()]
        self._between, self._is_said = _Between(), False  # what was said since the last row
        self._words = LastWords()
        self._heard = True  # whether what is said is said by the cell of the training
        self._alarm: int | None = None  # the row behind which a failure was first spoken of
        self._failed: tuple[int, LastWords] | None = None  # what was said then, until a row follows
        self._waiting: list[ConsoleRow] = []
        self._apart: list[ConsoleRow] = []
        self._is_apart = self._is_again = False  # what the rows are that follow in this cell
        self._shown: dict[int, dict[str, float]] | None = None

    @property
    def _last(self) -> Training:
        return self._all[-1]

    def add(self, rows: Iterable[ConsoleRow]) -> None:
        """Take rows."""
        for row in rows:
            if self._shown is None or row.step is None or not self._is_shown_again(row, row.step):
                self._take(row)

    def may_add_rows(self, first: ConsoleRow) -> bool:
        """Whether rows like this one can be but more of the training: nothing was said of it."""
        waits = self._waiting or self._is_apart or self._is_again or self._is_said
        if waits or self.alarmed or self._failed is not None or self._shown is not None:
            return False
        launched = self._last.heard.launches
        return len(self._last) not in launched[-1:] and self._last.may_add_rows(first)

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take rows which are but more of the training."""
        self.move()
        self._last.add_rows(rows)

    def add_late(self, rows: Sequence[ConsoleRow]) -> None:
        """Take rows that were known only in the end: they begin nothing after others.

        What they tell under a name that the rows have is something else: a validation's, say.
        """
        begun = bool(len(self._last))
        for place, row in enumerate(rows):
            if begun and self._last.goes_back(place_of(row)):
                self._decide()
                self._add_to_last(rows[place:])
                return
            self.add([row])

    def _add_to_last(self, rows: Sequence[ConsoleRow]) -> None:
        """Give rows to the training; what it measures under the same names is left apart."""
        several = len(self._all) > 1
        names = frozenset[str]() if several else self._last.names
        others: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            keys = tuple(row.metrics)
            if keys not in others:
                known = set(keys) if several else names
                others[keys] = {key for key in keys if key in known or name_of(key) in known}
            other = others[keys]
            if not other:
                self._last.add_late(row)
                continue
            apart = {key: at for key, at in row.metrics.items() if key in other}
            self._apart.append(replace(row, metrics=apart))
            if len(apart) < len(keys):
                new = {key: at for key, at in row.metrics.items() if key not in other}
                self._last.add_late(replace(row, metrics=new))

    def _take(self, row: ConsoleRow) -> None:
        if self._waiting:
            self._waiting.append(row)
            if len(self._waiting) >= _AHEAD:
                self._decide()
        elif self._is_apart or self._is_again:
            self._apart += [row] if self._is_apart else []
        elif row.beside:
            self._last.add(row, {})
        else:
            places = place_of(row)
            begins = self._is_said and self._between.begins
            if len(self._last) and (begins or self._last.goes_back(places)):
                self._waiting = [row]
            else:
                launched = self._last.heard.launches
                if self._failed is not None or launched:
                    self._died(anew=len(self._last) in launched[-1:])
                self._keep(row, places)

    def _keep(self, row: ConsoleRow, places: Places) -> None:
        training = self._last
        if not self._is_said:
            training.add(row, places)
            return
        between = self._between
        training.numbers = training.numbers or between.numbers
        training.add(row, places, relaunched=between.failed or between.resumed or between.begins)
        self._draw()
        self._between, self._is_said = _Between(), False

    def _draw(self) -> None:
        """The bar above a table is that of the training that the table tells of."""
        bar, self._between.bar = self._between.bar, None
        if bar is not None:
            self._last.reached, self._last.total = bar.at, bar.of

    def _decide(self) -> None:
        """Whether the rows that wait are of another training, or of none."""
        rows, self._waiting = self._waiting, []
        measured = [row for row in rows if not row.beside]
        if measured:
            self._died(anew=True)
        if measured and self._shown is not None and self._last.begins_with(measured):
            self._is_again = True
            return
        if measured and _is_another(self._last, measured, self._between):
            self._all.append(Training())
            self._shown = None if self._shown is None else {}
        elif measured and self._between.cell and _is_none(self._last, measured):
            self._is_apart = True
            self._apart += rows
            return
        for row in rows:
            if row.beside:
                self._last.add(row, {})
            else:
                self._keep(row, place_of(row))

    def hear(self, line: str) -> None:
        """Take note of a line that tells of a training; the rows before it have been given."""
        self._decide()
        self._is_apart = self._is_again = False
        between, self._is_said = self._between, True
        if signs.FAILED.search(line):
            between.failed = True
            self._alarm = self._last.end if self._alarm is None else self._alarm
        if signs.SUMMARY.search(line):
            between.ended = True
        elif signs.RESUMED.search(line):
            between.resumed = True
        elif signs.HELD_OUT.search(line):
            between.held_out = True
        elif signs.BEGINS.search(line):
            between.held_out, between.numbers = False, {}
        elif not between.held_out:
            found = {match[1] or match[2]: match[3] for match in signs.NUMBERS.finditer(line)}
            between.numbers = between.numbers | found

    def mark(self, mark: Mark) -> None:
        """Take note of what a notebook tells; the rows before it have been given."""
        self._decide()
        self._is_apart = self._is_again = False
        self._shown = {} if self._shown is None else self._shown
        between, self._is_said = self._between, True
        if mark.of:
            between.bar = mark
        if mark.error and self._heard:
            between.failed = True
            self._alarm = self._last.end if self._alarm is None else self._alarm
            for line in mark.error:
                self.say((line,))
        if mark.cell:
            # What another cell says, and how it fails, is no end of this training.
            if self._alarm is not None and self._heard:
                self._last.tell(self._words.event(None, followed=True), self._alarm)
                self._alarm = None
            self.move()
            self._heard, between.cell = False, True

    @property
    def alarmed(self) -> bool:
        """Whether a failure was spoken of since the last row."""
        return self._alarm is not None

    def say(self, lines: Sequence[str]) -> None:
        """Any lines, in order: the last ones may tell how the training ended."""
        if self._heard:
            self._words.add(lines)

    def tell(self, message: Message) -> None:
        """A message of the framework; the rows before it have been given."""
        self._decide()
        self._last.heard.hear(message, self._last.end)

    def move(self) -> None:
        """The output goes on: what was said is no end of the whole."""
        if self._alarm is not None and self._alarm >= 0 and self._heard:
            self._failed = self._failed or (self._alarm, self._words)
            self._words = LastWords()
        self._alarm, self._heard = None, True
        self._words.clear()

    def _died(self, *, anew: bool) -> None:
        """Tell of a failure, where the training begins anew after it."""
        failed, self._failed = self._failed, None
        if not anew:
            return
        event = None if failed is None else failed[1].event(None, followed=True)
        if failed is not None and event is not None:
            self._last.tell(event, failed[0])
        else:
            self._last.tell(self._last.heard.ending(self._last.end), self._last.end)

    def readings(self, notes: Sequence[str]) -> list[Reading]:
        """One for each training, named by its number where there are several; [] without rows."""
        self._decide()
        if not len(self._last):
            return []
        last = self._last.end
        self._last.tell(self._words.event(None) or self._last.heard.ending(last), last)
        readings = [training.reading(notes) for training in self._all]
        for number, reading in enumerate(readings if len(readings) > 1 else (), start=1):
            reading.run = f"#{number}"
            said = f"training {number} of {len(readings)} in this file"
            reading.notes = [said, *reading.notes]
        if self._apart:
            readings[-1].unread = [*readings[-1].unread, self._left_out()]
        return readings

    def _left_out(self) -> Unread:
        rows = self._apart
        of = len(rows) + sum(map(len, self._all))
        examples = tuple(
            (number, _spelled(row)) for number, row in enumerate(rows[:_MOST_EXAMPLES], start=1)
        )
        return Unread("late row", len(rows), of, examples)

    def _is_shown_again(self, row: ConsoleRow, step: int) -> bool:
        """Whether a notebook shows a row once more: a table that was drawn again, or its data.

        What such a row tells besides belongs to the one that it repeats.
        """
        shown = self._shown or {}
        values = {name_of(key): value for key, value in row.metrics.items()}
        before = shown.get(step)
        if len(shown) > _MOST_SHOWN:
            shown.clear()
        self._shown = shown
        shown[step] = values if before is None else before | values
        if before is None or not agree(before, values):
            return False
        more = {key: value for key, value in row.metrics.items() if name_of(key) not in before}
        if more and not self._waiting:
            self._last.add(ConsoleRow(step, more, beside=True), {})
        self._draw()
        return True


def _is_another(training: Training, rows: Sequence[ConsoleRow], between: _Between) -> bool:
    """Whether rows that may begin a training do."""
    kinds = [kind_of(row) for row in rows]
    other = not any(alike(a, b) for a in training.kinds for b in kinds)
    anew = _begins_anew(training, rows)
    if other:
        announced = between.ended or (anew is not False and bool(between.numbers))
        return are_trained(rows) and (announced or bool(anew and have_loss(training.kinds)))
    if anew is False or between.resumed:
        return False
    if between.ended or (anew and _differ(training.numbers, between)):
        return True
    totals = {between.bar.of if between.bar else rows[0].bar and rows[0].bar.of, training.total}
    changed = None not in totals and len(totals) > 1
    finished = training.complete and not between.failed
    called = between.cell or (between.bar is not None and training.reached is not None)
    return called and bool(anew) and (changed or finished)


def _is_none(training: Training, rows: Sequence[ConsoleRow]) -> bool:
    """Whether another cell shows something else by step, and no training: its evaluations, say."""
    kinds = [kind_of(row) for row in rows]
    other = not any(alike(a, b) for a in training.kinds for b in kinds)
    return other and not have_loss(kinds) and training.goes_back(place_of(rows[0]))


def _begins_anew(training: Training, rows: Sequence[ConsoleRow]) -> bool | None:
    """Whether rows begin at the beginning; None where no counter tells."""
    places = [place_of(row) for row in rows]
    counter = next((c for c in places[0] if c in training.last), None)
    if counter is None:
        return None
    at, last = places[0][counter], training.last[counter]
    then = next((p[counter] for p in places[1:] if p.get(counter, at) > at), None)
    stride = last / 4 if then is None else then - at
    if at < last:
        return at <= max(training.first[counter], 2 * stride)
    return then is not None and at <= stride * 1.01


def _differ(numbers: Mapping[str, str], between: _Between) -> bool:
    """Whether another training was announced; a launch after a failure logs to another place."""
    keys = numbers.keys() & between.numbers.keys() - ({_PLACE} if between.failed else set())
    return any(numbers[key] != between.numbers[key] for key in keys)


def _spelled(row: ConsoleRow) -> str:
    told = ", ".join(f"{key} {value:g}" for key, value in row.metrics.items())
    return f"step {row.step}: {told}"
