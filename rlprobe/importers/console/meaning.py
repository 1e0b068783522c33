"""What a line means whatever came before it: a row, a part of a block, or mere text.

A reader that waits for nothing does with such a line what it does with its meaning, and that is
known by the line's shape. Everything else is read with the lines around it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from rlprobe.importers.console import labels
from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.account import looks_like_metrics
from rlprobe.importers.console.blocks import heading_in
from rlprobe.importers.console.labels import Kind, Labelled
from rlprobe.importers.console.lists import Lists
from rlprobe.importers.console.messages import messages
from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.console.shapes import Meaning, Shapes
from rlprobe.importers.console.table import Tables
from rlprobe.importers.console.wrapped import SHORTEST, Wrapped, may_be_broken

Row = dict[str, float]
# Bars and headings of evaluations: what follows them or came before counts too.
_WITH_OTHERS = ("%|", "skipped=", "valuat")
_MOST_PAIRS = 10_000  # of shapes of lines that follow each other
_SURE = 3  # times that it was seen that one does not go on in the other


@dataclass(frozen=True, slots=True)
class RowHead:
    """A row, printed by this rank.

    Attributes:
        broken: whether the line may lack its end.
        prefixed: whether something stood before it that lines begin with.
    """

    rank: int | None
    broken: bool
    prefixed: bool


@dataclass(frozen=True, slots=True)
class PartHead:
    """A part of a block, or a line of text.

    Attributes:
        broken, prefixed: as of a row.
        metrics: whether it looks like metrics.
    """

    rank: int | None
    broken: bool
    prefixed: bool
    kind: Kind = "inner rule"
    section: str = ""
    indent: int = -1
    panel: bool = False
    redrawn: bool = False
    metrics: bool = False

    def labelled(self, numbers: dict[Any, float]) -> Labelled:
        """What the line holds, with its numbers."""
        measured: Row = {}
        counted: Row = {}
        for (counter, name), value in numbers.items():
            (counted if counter else measured)[name] = value
        return Labelled(
            self.kind, measured, counted, self.section, self.indent, self.panel, self.redrawn
        )


@dataclass(frozen=True, slots=True)
class Known:
    """A line with its meaning; shape: what lines have that differ in their numbers."""

    segment: str
    number: int
    head: RowHead | PartHead
    numbers: dict[Any, float]
    shape: object

    @property
    def broken(self) -> bool:
        """Whether it may lack its end."""
        head = self.head
        return head.broken and (head.prefixed or len(self.segment) >= SHORTEST)


class Meanings:
    """Tells the meaning of lines; quick where they repeat.

    Args:
        step_key: the counter to take for the step, where there are several.
    """

    def __init__(self, step_key: str | None = None) -> None:
        self._step_key = step_key
        self._tables = Tables()
        self._shapes = Shapes(self.looked_up)
        self._apart: dict[tuple[object, object, int], int] = {}

    def of(self, segment: str, number: int) -> Known | None:
        """The meaning of a line; None if it takes the lines around it to tell."""
        meaning = self._shapes.parse(segment)
        if meaning is None:
            return None
        head, numbers = meaning
        assert isinstance(head, RowHead | PartHead)  # noqa: S101 - what `looked_up` gives
        return Known(segment, number, head, numbers, self._shapes.latest)

    def parted(self, first: Known, second: Known, wrapped: Wrapped) -> bool:
        """Whether a line is whole and does not go on in the next."""
        key = (first.shape, second.shape, wrapped.padding(len(first.segment)))
        seen = self._apart.get(key, 0) if None not in key else 0
        if seen >= _SURE:
            return True
        parted = wrapped.parted(bare(first.segment), bare(second.segment))
        if None not in key:
            if len(self._apart) >= _MOST_PAIRS:
                self._apart.clear()
            self._apart[key] = seen + 1 if parted else -(10**9)
        return parted

    def looked_up(self, segment: str) -> Meaning | None:
        """The meaning of a line; None if it takes the lines around it to tell."""
        line = bare(segment)
        text = line.text
        if any(needle in text for needle in _WITH_OTHERS):
            return None
        if line.labelled or messages().see(segment, line.rank) is not None:
            return None
        # How long a line is depends on its numbers: that is looked at where it is used.
        broken = may_be_broken(text.ljust(SHORTEST))
        if not text.strip():
            return PartHead(line.rank, broken, line.prefixed), {}
        row = self._row(text)
        if row is not None and console_line.measures(row):
            return RowHead(line.rank, broken, line.prefixed), dict(row.items())
        if "{" in text or (row and "step" in row) or self._is_other(text):
            return None
        label = labels.labelled(text)
        head = PartHead(
            line.rank,
            broken,
            line.prefixed,
            label.kind,
            label.section,
            label.indent,
            panel=label.panel,
            redrawn=label.redrawn,
            metrics=looks_like_metrics(text),
        )
        numbers: dict[Hashable, float] = {}
        numbers |= {(False, name): value for name, value in label.metrics.items()}
        numbers |= {(True, name): value for name, value in label.counters.items()}
        return head, numbers

    def _row(self, text: str) -> Row | None:
        if "{" not in text:
            return console_line.row_in(text, self._step_key)
        return (
            console_line.parse(text, self._step_key) if text.rfind("}") > text.rfind("{") else None
        )

    def _is_other(self, text: str) -> bool:
        """Whether it may be a point, a table's header, a heading, a list or an epoch's row."""
        return (
            len(text) > labels.LONGEST
            or console_line.point(text) is not None
            or self._tables.may_head(text)
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
        self._meanings = Meanings(step_key)
        self._waiting: Known | None = None  # it may lack its end
        self._left: Known | None = None  # the last one, if it was left to others

    @property
    def holds(self) -> bool:
        """Whether a line waits for the next."""
        return self._waiting is not None

    def feed(self, segment: str, number: int, wrapped: Wrapped) -> list[Known] | None:
        """The lines that are whole with this one; None if it is to be read with those before."""
        known = self._left = self._meanings.of(segment, number)
        if known is None or wrapped.holds:
            return None
        wrapped.widen(len(segment))
        first = self._waiting
        if first is not None and not (
            known.head.prefixed or self._meanings.parted(first, known, wrapped)
        ):
            return None
        whole = [] if first is None else [first]
        self._waiting = known if known.broken else None
        return whole if known.broken else [*whole, known]

    def release(self, wrapped: Wrapped) -> None:
        """Leave the line that waits to those who look at it together with the next."""
        known, self._waiting = self._waiting, None
        if known is not None:
            wrapped.hold(bare(known.segment, known.number))

    def take_over(self, wrapped: Wrapped) -> None:
        """Take the last line back, if it stands alone after all."""
        known, self._left = self._left, None
        if known is not None and known.broken and wrapped.let_go(known.number):
            self._waiting = known
