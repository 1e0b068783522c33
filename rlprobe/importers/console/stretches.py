"""Rows of one skeleton that follow each other, taken as columns.

Between them stand only lines that cannot matter, and progress bars. The first and the last of a
stretch are read as any other line, so that a reader is before and behind it what it would be.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlprobe.importers.console.episodes import Episodes
from rlprobe.importers.console.given import of_evaluation
from rlprobe.importers.console.late import is_late, late_of
from rlprobe.importers.console.meaning import BarHead, Known, RowHead
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.sieve import Like, LineBlock
from rlprobe.importers.console.steps import Bar, ConsoleRow, ConsoleRows
from rlprobe.importers.console.trainings import Trainings

_FEWEST = 16  # rows of a stretch
_VALUED = re.compile(rb"0|nan|inf", re.IGNORECASE)
_MOST_STEPS = 2.0**53


class Stretches:
    """Finds them in a block of lines."""

    def __init__(
        self, block: LineBlock, likes: Sequence[Like], reader: Reader, trainings: Trainings
    ) -> None:
        self._block, self._likes = block, likes
        self._reader, self._trainings = reader, trainings
        self._tried = 0  # lines before this one are in no stretch that is not taken

    def take(self, place: int, line: Known) -> int:
        """Take what follows a row; the place of the line to go on with.

        Args:
            place: of the row in the block; it was read.
        """
        apart = not isinstance(line.head, RowHead) or line.head.rank is not None
        if place < self._tried or apart or self._trainings.alarmed:
            return place + 1
        found = self._found(place, line)
        lines = found.rows
        self._tried = lines[-1]
        if len(lines) < 2 * _FEWEST:
            return place + 1
        rows = self._rows(line, found)
        if rows is None or not self._give(rows, found):
            return place + 1
        self._tried = 0
        self._reader.lines = self._block.numbers[lines[len(rows)]]
        return lines[len(rows) + 1]

    def _found(self, place: int, line: Known) -> _Found:
        """The lines of a stretch."""
        texts, likes = self._block.texts, self._likes
        like, found = likes[place], _Found([place])
        before = line if line.head.broken else None  # what may go on in the next line
        at_before = place
        for at in range(place + 1, len(likes)):
            other = likes[at]
            if not texts[at]:
                continue
            if before is not None and not self._is_whole(before, at_before, at):
                break
            known = other.line
            if other is like:
                found.rows.append(at)
            elif known is None:
                if other.matters:
                    break
            elif isinstance(known.head, BarHead):
                found.bars.append(at)
            elif is_late(known.head):
                found.late.setdefault(other, []).append(at)
            elif other.matters and not known.inert:
                break
            before, at_before = (known if known and known.head.broken else None), at
        return found

    def _is_whole(self, line: Known, place: int, following: int) -> bool:
        """Whether a line does not go on in the one after it."""
        like, other = self._likes[place], self._likes[following]
        if other.line is not None and other.line.head.prefixed:
            return True
        padding = self._reader.wrapped.padding(len(self._block.texts[place]))
        meanings = self._reader.known.meanings
        if like.shape and meanings.surely_parted(like.shape, other.shape, padding):
            return True
        plain = _VALUED.search(self._block.skeletons[following]) is None
        return plain and padding < 0 and not line.head.framed

    def _rows(self, line: Known, found: _Found) -> ConsoleRows | None:
        """As many rows of a stretch as go on, one from another: neither its first nor its last."""
        slots = self._likes[found.rows[0]].slots_in(line)
        if slots is None:
            return None
        names, lines = slots.names, found.rows[1:]
        values = slots.rows(self._block.tokens, lines[:-1])
        drawn = self._bars(lines, found.bars)
        apart = Episodes.are(names) or of_evaluation(names) or "train_runtime" in names
        if len(values) < _FEWEST or drawn is None or apart:
            return None
        steps: list[int] | None = None
        if "step" in names:
            at = names.index("step")
            column, values = values[:, at], np.delete(values, at, axis=1)
            names = names[:at] + names[at + 1 :]
            if not ((column >= 0) & (column < _MOST_STEPS)).all():
                return None
            steps = column.astype(np.int64).tolist()
            goes_on = np.diff(column.astype(np.int64)) > 0
        else:
            goes_on = (np.diff(values, axis=0) != 0).any(axis=1)
        if "epoch" in names:
            goes_on &= np.diff(values[:, names.index("epoch")]) >= 0
        size = len(values) if goes_on.all() else int(np.argmin(goes_on)) + 1
        return ConsoleRows(steps and steps[:size], names, values[:size], drawn[: size + 1])

    def _bars(self, lines: Sequence[int], bars: Sequence[int]) -> list[Bar | None] | None:
        """The progress bar that was drawn last before each line; None where one goes back."""
        drawn = [self._reader.bar]
        for at in bars:
            drawn.append(self._bar(at) or drawn[-1])
        for one, other in itertools.pairwise(drawn):
            if one is not None and other is not None and (one.of != other.of or one.at > other.at):
                return None
        return [drawn[bisect_left(bars, line)] for line in lines]

    def _bar(self, place: int) -> Bar | None:
        shape = self._likes[place].shape
        line = self._reader.known.meant(self._block.texts[place], self._block.numbers[place], shape)
        return None if line is None else line.take_bar()

    def _give(self, rows: ConsoleRows, found: _Found) -> bool:
        """Hand rows over; False where they may be more than that."""
        reader, trainings = self._reader, self._trainings
        late = late_of(found.late, found.rows[: len(rows) + 2], self._block.tokens)
        if late is None or not late.fits(stepped=rows.steps is not None):
            return False
        first = rows.row(0)
        trainings.move()
        reader.settle()
        trainings.add(reader.given())
        if not reader.steady or not self._goes_on(first):
            return False
        if rows.steps is None:
            trainings.add(reader.rest())
        if reader.waiting is not None or not trainings.may_add_rows(first):
            return False
        if rows.steps is not None and reader.latest is not None:
            late.tell(reader.held.regular, [reader.latest, *rows.steps])
            beside = late.beside(rows.names)
            if beside is not None:
                rows = replace(rows, beside=beside[:2])
                reader.account.read += beside[2] * (len(rows) + 1)
        trainings.add_rows(rows)
        reader.give_rows(rows)
        return True

    def _goes_on(self, first: ConsoleRow) -> bool:
        """Whether a row comes after the one that was read last, and is like it."""
        reader = self._reader
        if first.step is not None:
            return reader.latest is not None and first.step > reader.latest
        waiting = reader.waiting
        if waiting is None or waiting.metrics.keys() != first.metrics.keys():
            return False
        epoch = first.metrics.get("epoch", 0.0)
        return waiting.metrics != first.metrics and waiting.metrics.get("epoch", 0.0) <= epoch


@dataclass(slots=True)
class _Found:
    """Where the lines of a stretch stand: its rows, progress bars, and what is told of each row."""

    rows: list[int]
    bars: list[int] = field(default_factory=list)
    late: dict[Like, list[int]] = field(default_factory=dict)
