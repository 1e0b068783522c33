"""Lines of console output -> rows: what belongs together, what is said twice, at which step."""

from __future__ import annotations

import re

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.account import looks_like_metrics
from rlprobe.importers.console.bars import without_bars
from rlprobe.importers.console.blocks import Group
from rlprobe.importers.console.evaluated import evaluated
from rlprobe.importers.console.given import Given
from rlprobe.importers.console.messages import Message, every, messages
from rlprobe.importers.console.pairs import pairs_in, plain_pairs
from rlprobe.importers.console.prefixes import Line, bare, whole_of
from rlprobe.importers.console.repeats.meaning import Known, KnownLines, PartHead, RowHead
from rlprobe.importers.console.scalars import Scalars
from rlprobe.importers.console.steps import ConsoleRow, Row
from rlprobe.importers.console.table import Tables
from rlprobe.importers.console.wrapped import Wrapped
from rlprobe.importers.numbers import spelled
from rlprobe.importers.steps import step_number

_LONGEST_DICT = 65_536
_MOST_HELD = 200_000
_OPENS = re.compile(r"\{\s*(?:['\"]|$)")
_DEEPSPEED = re.compile(r"\bstep=(\d+), skipped=(\d+), lr=\[([-+.\deE]+)")
_EVALUATING = re.compile(r"\*{3,} ?Evaluating\b", re.IGNORECASE)
_BETTER = re.compile(r"\s?\((?:higher|lower) is better\)\s?")


class Reader(Given):
    """Reads console output line by line, and gives each row as soon as it is known to be whole.

    A row without a step waits for the one after it, which may say the same with more digits. Where
    no line is a row by itself, what stands under headings is given at the end.

    Args:
        most: rows that are held back at most, for the case that there are no better ones.
        step_key: the counter to take for the step, where there are several.
        width: of the widest of the first lines; 0 where no terminal broke the lines.

    Attributes:
        note: what was assumed of the rows that `finish` gave, in words.
    """

    def __init__(self, most: int = _MOST_HELD, step_key: str | None = None, width: int = 0) -> None:
        super().__init__(most, step_key)
        self.note = ""
        self.lines = 0  # of the log, so far
        self.wrapped = Wrapped(width)
        self.labelled = False  # whether lines begin with the number of their task
        self.step_key = step_key
        self.known = KnownLines(step_key)
        self.tables = Tables()
        self.open: list[str] = []
        self.open_size = 0
        self.messages = messages()
        self.said: list[tuple[int, Message]] = []  # in what was fed last, each behind how many rows
        self.scalars = Scalars()
        self.evaluating = 0  # lines in which an evaluation may still follow

    def feed(self, segment: str, number: int = 0) -> list[ConsoleRow]:
        """The rows that are whole with one more line, or what stands between carriage returns.

        Args:
            segment: the line.
            number: of the line in the log; one more than that of the last one if it is not told.
        """
        number = number or self.lines + 1
        waits = self.waits
        known = None if waits or "\x1b" in segment else self.known.meant(segment, number)
        if known is not None:
            self.wrapped.widen(len(segment))
        if known is None or not self.take(known):
            self.lines, self.said = number, []
            self.known.release(self.wrapped)
            self._read(segment)
            if known is not None:
                self.known.take_over(self.wrapped)
        return self.given()

    def take(self, known: Known) -> bool:
        """A line whose meaning is known; False if it is to be read with those before it."""
        whole = self.known.feed(known, self.wrapped)
        if whole is None:
            return False
        self.lines, self.said = known.number, []
        for line in whole:
            self._mean(line)
        return True

    def recover(self, segment: str, number: int, error: Exception) -> None:
        """A line that could not be read costs itself; `error`, a fault of ours, is said with it."""
        self.account.failed(number, segment, error)
        self.open, self.evaluating = [], 0
        try:
            self.drain()
        except Exception:  # it was one of those that wait
            self.known.drain()
            self.wrapped.forget()

    def settle(self) -> None:
        """Read the line that may lack its end, as it is whole."""
        known = self.known.drain()
        if known is not None:
            self._mean(known)

    def rest(self) -> list[ConsoleRow]:
        """The rows that are whole because another follows."""
        self._flush()
        return self.given()

    def _read(self, segment: str) -> None:
        fed = bare(segment, self.lines, labelled=self.labelled)
        self.labelled |= fed.labelled
        message = self.messages.see(segment, fed.rank)
        for line in self.wrapped.finish() if message else self.wrapped.feed(fed):
            self._take(line)
        if message is not None:
            self._tell(message, fed)

    def _take(self, line: Line) -> None:
        self.rank, self.number = line.rank, line.number
        if line.cut and looks_like_metrics(f"{line.text.rstrip()} 0"):  # its number was cut
            self.account.miss(line.number, line.text)
        if not (self.open and self._continue(line.text)):
            self._line(line.text)

    @property
    def progress(self) -> tuple[int, int, int]:
        """Changes with every row of metrics and every move of the progress bar."""
        return self.count, id(self.waiting), self.bar.at if self.bar else 0

    @property
    def idle(self) -> bool:
        """Whether no line is waited for: then one without a metric or a known word is nothing."""
        return self.measured > 0 and self.waits_for_none

    @property
    def waits_for_none(self) -> bool:
        """The same, however little is known yet of how this output tells its metrics."""
        return not (
            self.known.holds
            or self.blocks.open
            or self.wrapped.holds
            or self.open
            or self.evaluating
            or self.tables.open
        )

    @property
    def waits(self) -> bool:
        """Whether what a line means depends on what the last ones began."""
        return bool(self.open or self.evaluating or self.labelled) or self.tables.open

    def _mean(self, known: Known) -> None:
        """What a line says that means the same whatever came before it."""
        head = known.head
        self.bar_here = False
        self.rank, self.number = head.rank, known.number
        if head.barred:
            bar = known.take_bar()
            self._drawn(bar)
            self.bar = bar or self.bar
            self.bar_here = bar is not None
        if isinstance(head, RowHead):
            self._row(known.numbers)
        elif isinstance(head, PartHead):
            self._end_episodes()
            part = head.labelled(known.numbers)
            if not self.blocks.take(part, known.number, known.segment) and head.metrics:
                self.account.miss(self.number, bare(known.segment).text)
            self._settle()

    def drain(self) -> None:
        """Read the line that waits for its rest, as none comes."""
        self.known.release(self.wrapped)
        for line in self.wrapped.finish():
            self._take(line)

    def pause(self) -> list[ConsoleRow]:
        """The rows that are whole because something else begins: another training, a cell."""
        self.said = []
        self.drain()
        self._flush()
        return self.given()

    def finish(self) -> list[ConsoleRow]:
        """The rows that are whole because the output ends."""
        self.said = []
        self.drain()
        self._flush()
        self.blocks.finish()
        self._settle()
        if not self.measured:
            self.note = self._fall_back()
        elif self.asides and self.context is not None:
            self._give(ConsoleRow(self.context, self.asides.rest()))
        else:
            self._end_held()
        for step, row in sorted(self.asides.placed.items()):
            self._give(ConsoleRow(step, row))
        return self.given()

    def _end_held(self) -> None:
        """What was held back in case there is nothing better, where there was."""
        self.held.give_up("nowhere", *(("heading", "coarse") if self.unstepped else ("coarse",)))
        if not self.unstepped:
            for step, row in [*self.held.late(self.names), *self.held.regular.rows(self.steps)]:
                self._give(ConsoleRow(step, row))

    def _line(self, text: str) -> None:
        self.bar_here = False
        if "%|" in text:
            text = self._bars(text)
        if not text.strip():
            return
        if "{" in text:
            self._dicts(text)
            return
        if self._deepspeed(text):
            return
        row = console_line.row_in(text, self.step_key)
        if row and (console_line.measures(row) or self._is_like_last(row)):
            self._row(row)
            return
        scalars = self.scalars.feed(text)
        if scalars:
            for scalar in scalars:
                self.tags.update(scalar.keys() - {"step"})
                self._row(scalar)
            return
        if row and "step" in row:
            self._unknown(text, row)
        for table_row in self.tables.feed(text):
            if console_line.measures(table_row):
                self._row(table_row)
        if not (self.tables.taken or self._evaluation(text)):
            self._other(text)

    def _is_like_last(self, row: Row) -> bool:
        """Whether a row has the names of the last: one that is NaN has no unit to tell more."""
        names = {key.removeprefix("time/") for key in row}
        last = {key.removeprefix("time/") for key in self.last}
        return bool(last) and names == {"step", *last}

    def _unknown(self, text: str, row: Row) -> None:
        """A row that tells its step, all of unknown names."""
        step = console_line.step_of(row)
        others = {key: value for key, value in row.items() if key != "step"}
        signs = sum(map(text.count, ":=|"))
        if signs >= len(others) and not all(map(console_line.counts, others)):
            signed = not any(pair.blank for pair in pairs_in(text) if pair.key in others)
            self.held.regular.add(step, others, (), stepped=signed)
            if step is not None and not self.measured:
                self.blocks.headed(step)

    def _bars(self, text: str) -> str:
        """Take note of progress bars, and take them out of the text."""
        rest, drawn = without_bars(text)
        for item in drawn:
            self._drawn(item.bar)
            if item.metrics:
                self._explicit(item.step, item.metrics)
            self.bar = item.bar or self.bar
            self.bar_here |= item.bar is not None
        return rest

    def _continue(self, text: str) -> bool:
        """Add to a dict that an earlier line opened; False once it turns out to be none."""
        if _OPENS.search(text):
            self.open, self.open_size = [], 0
            return False
        self.open.append(text)
        self.open_size += len(text)
        if "}" not in text and self.open_size <= _LONGEST_DICT:
            return True
        lines, self.open, self.open_size = self.open, [], 0
        before = self.count, self.waiting
        self._dicts(whole_of(lines), whole=True)
        if before == (self.count, self.waiting):
            for line in lines[1:]:  # it was no row: then these are lines of their own
                self._line(line)
        return True

    def _dicts(self, text: str, *, whole: bool = False) -> None:
        end = text.rfind("}")
        if end < text.rfind("{") and not whole and _OPENS.search(text[text.rfind("{") :]):
            start = text.rfind("{")
            self.open, self.open_size = [text[start:]], len(text) - start
            before = console_line.step_before(text[: start + 1])
            if before is not None:
                start = before
                self.open = [text[start:]]
            step = console_line.step_in(text[:start])
            self.context = int(step[0]) if step else self.context
            text = text[:start]
        single = console_line.parse(text, self.step_key)
        if single is not None:
            self._row(single)
            return
        for part in console_line.dicts_in(text):
            row = console_line.dictionary(part, self.step_key)
            if row and console_line.measures(row):
                self._row(row)

    def _tell(self, message: Message, line: Line) -> None:
        """What a framework says beside its rows: its numbers are of the next row, or one alone."""
        self.rank = line.rank
        self._bars(line.text)
        self._flush()
        if message.known.rows == "bar" and self.bar is not None:
            self.asides.overflowed |= "update_skipped" in message.metrics
            self._explicit(self.bar.at, dict(message.metrics))
        elif message.known.rows == "step":
            for each in every(message, line.text):
                self.asides.add(each, rows=bool(self.measured))
        else:
            self.asides.add(message, rows=bool(self.measured))
        if message.known.kind or message.known.relaunch:
            self.said.append((self.count, message))

    def _deepspeed(self, text: str) -> bool:
        match = _DEEPSPEED.search(text) if "skipped=" in text else None
        if match:
            lr, step = spelled(match[3]), step_number(match[1])
            if lr is None or step is None:  # cut, or torn by another process
                self.account.miss(self.number, text)
            else:
                self._explicit(step, {"lr": lr, "skipped": float(match[2])})
        return match is not None

    def _other(self, text: str) -> None:
        """A line that is no row: a heading, a label under one, a step for the next dict."""
        self._end_episodes()
        self.held.lists.feed(text)
        context = console_line.context_in(text)
        self.context = self.context if context is None else context
        coarse = console_line.parse_coarse(text)
        if coarse is not None:
            step = int(coarse.pop("step"))
            self.blocks.ready.append(Group(coarse, step, "coarse"))
        elif not self.blocks.feed(text, self.number) and (
            self.tables.misfit or looks_like_metrics(text)
        ):
            self.account.miss(self.number, text)
        self._settle()

    def _evaluation(self, text: str) -> bool:
        """The line under `***** Evaluating …`, or about one task: numbers of held-out data."""
        row: Row = {}
        if self.evaluating and text.strip():
            self.evaluating -= 1
            row = {f"eval/{key}": v for key, v in plain_pairs(_BETTER.sub("", text))[0]}
        if "valuat" in text:
            row = row or evaluated(text)
            self.evaluating = 3 if _EVALUATING.search(text) else self.evaluating
        if row:
            self._flush()
            self._give(ConsoleRow(None, row, beside=True))
            self.evaluating = 0
        return bool(row)

    def _fall_back(self) -> str:
        """No row of metrics at all: blocks under headings, or the warnings alone."""
        warned, alone = self.asides.rest(), self.asides.alone
        if warned and self.context is not None:
            self._explicit(self.context, warned)
            return ""
        if alone and not (self.held.of("heading") or self.held.of("coarse")):
            for row in alone:
                self._implicit(row)
                self._flush()
            return "no rows of metrics: only numbers in messages of the framework"
        rows, note = self.held.rows()
        for step, row in rows:
            self._block_row(step, row)
        return note if rows else ""
