"""What a line means whatever came before it: a row, a part of a block, or mere text.

A reader that waits for nothing does with such a line what it does with its meaning, and that is
known by the line's shape. Everything else is read with the lines around it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rlprobe.importers.console import labels
from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.account import looks_like_metrics
from rlprobe.importers.console.bars import without_bars
from rlprobe.importers.console.blocks import heading_in
from rlprobe.importers.console.labels import Kind, Labelled
from rlprobe.importers.console.lists import Lists
from rlprobe.importers.console.messages import messages
from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.console.repeats.shapes import Meaning, Shape, Shapes
from rlprobe.importers.console.signs import tells
from rlprobe.importers.console.steps import Bar
from rlprobe.importers.console.table import Tables
from rlprobe.importers.console.wrapped import SHORTEST, Wrapped, is_framed, may_be_broken

Row = dict[str, float]
# Headings of evaluations: what follows them counts too.
_WITH_OTHERS = ("skipped=", "valuat")
_SILENT = frozenset({"text", "rule", "inner rule"})
_MOST_PAIRS = 10_000  # of shapes of lines that follow each other
_SURE = 3  # times that it was seen that one does not go on in the other
_VALUED = re.compile(r"\d|nan|inf", re.IGNORECASE)
_AT, _OF = ("bar", "at"), ("bar", "of")


@dataclass(frozen=True, slots=True)
class Head:
    """What is the same in all lines of a shape.

    Attributes:
        rank: which one printed it.
        broken: whether the line may lack its end.
        prefixed: whether something stood before it that lines begin with.
        framed: whether it begins with a bar, a corner or a quote.
        barred: whether a progress bar stands in it.
    """

    rank: int | None
    broken: bool
    prefixed: bool
    framed: bool
    barred: bool = False


@dataclass(frozen=True, slots=True)
class RowHead(Head):
    """A row of metrics."""


@dataclass(frozen=True, slots=True)
class BarHead(Head):
    """A progress bar and nothing else."""


@dataclass(frozen=True, slots=True)
class PartHead(Head):
    """A part of a block, or a line of text.

    Attributes:
        metrics: whether it looks like metrics.
        counts: whether some of its numbers count something.
        measures: whether some of its names are known as measurements.
    """

    kind: Kind = "inner rule"
    section: str = ""
    indent: int = -1
    panel: bool = False
    redrawn: bool = False
    metrics: bool = False
    counts: bool = False
    measures: bool = False

    def labelled(self, numbers: dict[Any, float]) -> Labelled:
        """What the line holds, with its numbers."""
        counted: Row = {}
        if self.counts:
            counted = {key[1]: at for key, at in numbers.items() if isinstance(key, tuple)}
            numbers = {key: at for key, at in numbers.items() if isinstance(key, str)}
        return Labelled(
            self.kind,
            numbers,
            counted,
            self.section,
            self.indent,
            self.panel,
            self.redrawn,
            self.measures,
        )


@dataclass(slots=True)
class Known:
    """A line with its meaning; shape: what lines have that differ in their numbers."""

    segment: str
    number: int
    head: RowHead | PartHead | BarHead
    numbers: dict[Any, float]
    shape: Shape | None

    @property
    def silent(self) -> bool:
        """Whether such lines, where they are whole, say nothing to a reader that waits for none."""
        head = self.head
        silent = isinstance(head, PartHead) and head.kind in _SILENT and not head.metrics
        return silent and self.shape is not None

    @property
    def inert(self) -> bool:
        """Whether such lines say nothing to a reader that waits for none."""
        return self.silent and not self.head.broken

    def take_bar(self) -> Bar | None:
        """Where its progress bar stands, if that is one of a training; no more in its numbers."""
        at = self.numbers.pop(_AT, None)
        return None if at is None else Bar(int(at), int(self.numbers.pop(_OF)))


class Meanings:
    """Tells the meaning of lines; quick where they repeat.

    Args:
        step_key: the counter to take for the step, where there are several.
    """

    def __init__(self, step_key: str | None = None) -> None:
        self._step_key = step_key
        self._tables = Tables()
        self._shapes = Shapes(self.looked_up)
        self._apart: dict[tuple[Shape, Shape, int] | None, int] = {}

    @property
    def shape(self) -> Shape | None:
        """That of the last line; None if it was not learnt."""
        return self._shapes.latest

    def of(self, segment: str, number: int, shape: Shape | None = None) -> Known | None:
        """The meaning of a line, likely of this shape; None if it takes the lines around it."""
        shapes = self._shapes
        meaning = shapes.parse(segment) if shape is None else shapes.parse_as(shape, segment)
        if meaning is None:
            return None
        head, numbers = meaning
        assert isinstance(head, RowHead | PartHead | BarHead)  # noqa: S101 - what `looked_up` gives
        return Known(segment, number, head, numbers, shapes.latest)

    def surely_parted(self, first: Shape, second: Shape | None, padding: int) -> bool:
        """Whether lines of a shape were seen not to go on in lines of another."""
        return second is not None and self._apart.get((first, second, padding), 0) >= _SURE

    def parted(self, first: Known, second: Known, wrapped: Wrapped) -> bool:
        """Whether a line is whole and does not go on in the next."""
        padding = wrapped.padding(len(first.segment))
        one, other = first.shape, second.shape
        key = None if one is None or other is None else (one, other, padding)
        seen = self._apart.get(key, 0)
        if seen >= _SURE:
            return True
        if padding < 0 and not first.head.framed and not _VALUED.search(second.segment):
            return True  # what goes on holds a number
        parted = wrapped.parted(bare(first.segment), bare(second.segment))
        if key is not None:
            if len(self._apart) >= _MOST_PAIRS:
                self._apart.clear()
            self._apart[key] = seen + 1 if parted else -(10**9)
        return parted

    def looked_up(self, segment: str) -> Meaning | None:
        """The meaning of a line; None if it takes the lines around it to tell."""
        line = bare(segment)
        text = line.text
        if (
            any(needle in text for needle in _WITH_OTHERS)
            or line.labelled
            or tells(segment)
            or messages().see(segment, line.rank) is not None
        ):
            return None
        bars: dict[Hashable, float] = {}
        if "%|" in text:
            text, drawn = without_bars(text)
            if len(drawn) != 1 or drawn[0].metrics:
                return None
            bar = drawn[0].bar
            bars = {} if bar is None else {_AT: float(bar.at), _OF: float(bar.of)}
        # How long a line is depends on its numbers: that is looked at where it is used.
        broken = may_be_broken(line.text.ljust(SHORTEST))
        head = Head(line.rank, broken, line.prefixed, is_framed(line.text), "%|" in line.text)
        meaning = self._told(text, head)
        return (meaning[0], meaning[1] | bars) if meaning and bars else meaning

    def _told(self, text: str, head: Head) -> Meaning | None:
        """What is left of a line without its prefixes and bars."""
        values = (head.rank, head.broken, head.prefixed, head.framed, head.barred)
        if not text.strip():
            return (BarHead(*values) if head.barred else PartHead(*values)), {}
        valued = _VALUED.search(text) is not None
        row = self._row(text) if valued else None
        if row is not None and console_line.measures(row):
            return RowHead(*values), dict(row.items())
        step = row is not None and "step" in row
        if head.barred or step or "{" in text or self._is_other(text, valued=valued):
            return None
        label = labels.labelled(text)
        numbers: dict[Hashable, float] = dict(label.metrics.items())
        numbers |= {("", name): value for name, value in label.counters.items()}
        part = PartHead(
            *values,
            label.kind,
            label.section,
            label.indent,
            panel=label.panel,
            redrawn=label.redrawn,
            metrics=valued and looks_like_metrics(text),
            counts=bool(label.counters),
            measures=console_line.measures(label.metrics),
        )
        return part, numbers

    def _row(self, text: str) -> Row | None:
        if "{" not in text:
            return console_line.row_in(text, self._step_key)
        return (
            console_line.parse(text, self._step_key) if text.rfind("}") > text.rfind("{") else None
        )

    def _is_other(self, text: str, *, valued: bool) -> bool:
        """Whether it may be a point, a table's header, a heading, a list or an epoch's row."""
        if len(text) > labels.LONGEST or self._tables.may_head(text):
            return True
        return valued and (
            console_line.point(text) is not None
            or Lists.may_hold(text)
            or console_line.context_in(text) is not None
            or console_line.parse_coarse(text) is not None
            or heading_in(text) is not None
        )


class KnownLines:
    """Takes lines one by one, and gives those whose meaning needs no others.

    Args:
        step_key: the counter to take for the step, where there are several.
    """

    def __init__(self, step_key: str | None = None) -> None:
        self.meanings = Meanings(step_key)
        self._waiting: Known | None = None  # it may lack its end
        self._left: Known | None = None  # the last one, if it was left to others

    @property
    def holds(self) -> bool:
        """Whether a line waits for the next."""
        return self._waiting is not None

    @property
    def shape(self) -> Shape | None:
        """That of the line that was looked at last; None if it was not learnt."""
        return self.meanings.shape

    def meant(self, segment: str, number: int, shape: Shape | None = None) -> Known | None:
        """A line, likely of this shape, with its meaning; None if it takes the lines around it."""
        return self.meanings.of(segment, number, shape)

    def feed(self, known: Known | None, wrapped: Wrapped) -> Sequence[Known] | None:
        """The lines that are whole with this one; None if it is to be read with those before."""
        self._left = known
        if known is None or wrapped.holds:
            return None
        head, first = known.head, self._waiting
        if first is not None and not (head.prefixed or self.meanings.parted(first, known, wrapped)):
            return None
        if head.broken and (head.prefixed or len(known.segment) >= SHORTEST):
            self._waiting = known
            return () if first is None else (first,)
        self._waiting = None
        return (known,) if first is None else (first, known)

    def drain(self) -> Known | None:
        """The line that waits, which is whole after all."""
        known, self._waiting = self._waiting, None
        return known

    def release(self, wrapped: Wrapped) -> None:
        """Leave the line that waits to those who look at it together with the next."""
        known, self._waiting = self._waiting, None
        if known is not None:
            wrapped.hold(bare(known.segment, known.number))

    def take_over(self, wrapped: Wrapped) -> None:
        """Take the last line back, if it stands alone after all."""
        known, self._left = self._left, None
        if known is None or not known.head.broken:
            return
        long = known.head.prefixed or len(known.segment) >= SHORTEST
        if long and wrapped.let_go(known.number):
            self._waiting = known
