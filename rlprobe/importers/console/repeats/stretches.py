"""Rows of one skeleton that follow each other, taken as columns.

Between them stand only lines that cannot matter, progress bars, and what is printed behind every
row. The first and the last row of a stretch are read as any other, so that the reader is before it
and behind it what it would be. What was not seen to be the same line by line is left to the reader.
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
from rlprobe.importers.console.listener import Listener
from rlprobe.importers.console.prefixes import bare
from rlprobe.importers.console.repeats.late import is_late, late_of
from rlprobe.importers.console.repeats.meaning import BarHead, Known, PartHead, RowHead
from rlprobe.importers.console.repeats.panels import panel_of
from rlprobe.importers.console.repeats.sieve import Like, LineBlock
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.steps import Bar, ConsoleRow, ConsoleRows
from rlprobe.importers.console.wrapped import SHORTEST
from rlprobe.values import FloatArray

_FEWEST = 16  # rows of a stretch
_VALUED = re.compile(rb"0|nan|inf", re.IGNORECASE)
_MOST_STEPS = 2.0**53


class Stretches:
    """Finds them in a block of lines."""

    def __init__(
        self, block: LineBlock, likes: Sequence[Like], reader: Reader, trainings: Listener
    ) -> None:
        self._block, self._likes = block, likes
        self._reader, self._trainings = reader, trainings
        self._tried = 0  # lines before this one are in no stretch that is not taken
        self._patience = _FEWEST  # rows before it is tried again
        self._panel = -1  # where the last panel ended
        self._seams: set[tuple[Like, Like, int]] = set()  # of lines that are whole, by length

    def take(self, place: int, line: Known, *, gave: bool) -> int:
        """Take what follows a row; the place of the line to go on with.

        Args:
            place: of the line in the block; it was read.
            gave: whether a row was given.
        """
        head = line.head
        if place < self._tried or head.rank is not None or self._trainings.alarmed:
            return place + 1
        if gave and isinstance(head, PartHead) and head.kind == "rule":
            return self._take_panels(place)
        return self._take_rows(place, line) if isinstance(head, RowHead) else place + 1

    def _take_rows(self, place: int, line: Known) -> int:
        stretch = self._found(place, line)
        lines = stretch.rows
        rows = self._rows(line, stretch) if len(lines) >= 2 * _FEWEST else None
        if rows is None or not self._give(rows, stretch):
            self._give_up(lines)
            return place + 1
        self._tried, self._patience = 0, _FEWEST
        self._reader.lines = self._block.numbers[lines[len(rows)]]
        return lines[len(rows) + 1]

    def _take_panels(self, place: int) -> int:
        """The same where the row was a panel, and more of its kind follow."""
        likes, reader = self._likes, self._reader
        start, self._panel = self._begins(self._panel + 1, place), place
        lines = likes[start : place + 1]
        starts: list[int] = []
        at = self._begins(place + 1, len(likes))
        while likes[at : at + len(lines)] == lines and self._are_whole(lines, at):
            starts.append(at)
            at = self._begins(at + len(lines), len(likes))
        panel = panel_of(lines, reader.blocks.behind_a_row()) if len(starts) > _FEWEST else None
        if panel is None or not reader.idle or reader.step_key is not None:
            self._give_up([*starts, at])
            return place + 1
        steps, values = panel.rows(self._block.tokens, starts[:-1])
        rows = _going_on(steps, panel.names, values, [reader.bar] * len(starts))
        if rows is None or not self._give(rows, None):
            self._give_up([*starts, at])
            return place + 1
        reader.lines = self._block.numbers[starts[len(rows)] - 1]
        self._tried, self._patience, self._panel = 0, _FEWEST, starts[len(rows)] - 1
        return starts[len(rows)]

    def _give_up(self, lines: Sequence[int]) -> None:
        """Try again some rows on; each time so many more that it costs little in all."""
        self._tried = lines[min(self._patience, len(lines) - 1)]
        self._patience *= 2

    def _begins(self, place: int, end: int) -> int:
        """The first line that says something."""
        likes, texts = self._likes, self._block.texts
        while place < end and not (likes[place].matters and texts[place]):
            place += 1
        return place

    def _are_whole(self, lines: Sequence[Like], start: int) -> bool:
        """Whether none of the lines of a panel goes on in the next."""
        pairs = zip(lines, lines[1:], range(start, start + len(lines)), strict=False)
        return all(self._is_whole(one, other, at, at + 1) for one, other, at in pairs)

    def _found(self, place: int, line: Known) -> _Stretch:
        """The lines of a stretch."""
        texts, likes = self._block.texts, self._likes
        row, stretch = likes[place], _Stretch([place])
        roles: dict[Like, list[int] | None] = {row: stretch.rows}
        before, at_before = (row if line.head.broken else None), place
        for at in range(place + 1, len(likes)):
            like = likes[at]
            if like not in roles:
                if not _is_of_stretch(like):
                    break
                roles[like] = stretch.role(like)
            elif not texts[at]:
                continue
            if before is not None and not self._is_whole(before, like, at_before, at):
                break
            places = roles[like]
            if places is not None:
                places.append(at)
            known = like.line
            before, at_before = (like if known is not None and known.head.broken else None), at
        return stretch

    def _is_whole(self, like: Like, other: Like, place: int, following: int) -> bool:
        """Whether a line does not go on in the one after it."""
        line = like.line
        if line is None or not line.head.broken:
            return True
        length = len(self._block.texts[place])
        seam = like, other, length
        if seam in self._seams or (length < SHORTEST and not line.head.prefixed):
            return True
        padding = self._reader.wrapped.padding(length)
        meanings = self._reader.known.meanings
        prefixed = other.line is not None and other.line.head.prefixed
        sure = like.shape and meanings.surely_parted(like.shape, other.shape, padding)
        plain = _VALUED.search(self._block.skeletons[following]) is None
        if not (prefixed or sure or (plain and padding < 0 and not line.head.framed)):
            return False
        if other.line is not None:  # else it is one of many
            self._seams.add(seam)
        return True

    def _rows(self, line: Known, stretch: _Stretch) -> ConsoleRows | None:
        """As many rows of a stretch as go on, one from another: neither its first nor its last."""
        slots = self._likes[stretch.rows[0]].slots_in(line)
        if slots is None:
            return None
        names, lines = slots.names, stretch.rows[1:]
        values = slots.rows(self._block.tokens, lines[:-1])
        drawn = self._drawn(stretch.bars)
        apart = Episodes.are(names) or of_evaluation(names) or "train_runtime" in names
        if len(values) < _FEWEST or drawn is None or apart:
            return None
        first = [bisect_left(stretch.bars, line) for line in lines]
        bars = [drawn[at] for at in first]
        if "step" not in names:
            rows = _going_on(None, names, values, bars)
            behind = itertools.pairwise(first)
            redrawn = [drawn[at + 1] if following > at else None for at, following in behind]
            return rows and replace(rows, redrawn=redrawn)
        at = names.index("step")
        names = names[:at] + names[at + 1 :]
        return _going_on(values[:, at], names, np.delete(values, at, axis=1), bars)

    def _drawn(self, bars: Sequence[int]) -> list[Bar | None] | None:
        """The progress bar before the stretch, and each in it; None where one goes back."""
        drawn = [self._reader.bar]
        for at in bars:
            drawn.append(self._bar(at) or drawn[-1])
        for one, other in itertools.pairwise(drawn):
            if one is not None and other is not None and (one.of != other.of or one.at > other.at):
                return None
        return drawn

    def _bar(self, place: int) -> Bar | None:
        shape = self._likes[place].shape
        line = self._reader.known.meant(self._block.texts[place], self._block.numbers[place], shape)
        return None if line is None else line.take_bar()

    def _give(self, rows: ConsoleRows, stretch: _Stretch | None) -> bool:
        """Hand rows over; False where they may be more than that."""
        reader, trainings = self._reader, self._trainings
        behind, places = (
            ({}, [0]) if stretch is None else (stretch.late, stretch.rows[: len(rows) + 2])
        )
        late = late_of(behind, places, self._block.tokens)
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
        count, at = late.samples()
        if count:
            text = bare(self._block.texts[at]).text
            reader.account.sampled(self._block.numbers[at], text, count)
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


def _going_on(
    steps: FloatArray | None,
    names: tuple[str, ...],
    values: FloatArray,
    bars: Sequence[Bar | None],
) -> ConsoleRows | None:
    """As many rows as go on, one from another; None where they are too few.

    Args:
        steps: None where rows have none.
        values: (rows x names).
        bars: one for each row, and more.
    """
    if len(values) < _FEWEST:
        return None
    numbers: Sequence[int] | None = None
    if steps is None:
        goes_on = (np.diff(values, axis=0) != 0).any(axis=1)
    else:
        if not ((steps >= 0) & (steps < _MOST_STEPS)).all():
            return None
        goes_on = np.diff(steps.astype(np.int64)) > 0
        numbers = steps.astype(np.int64).tolist()
    if "epoch" in names:
        goes_on &= np.diff(values[:, names.index("epoch")]) >= 0
    size = len(values) if goes_on.all() else int(np.argmin(goes_on)) + 1
    return ConsoleRows(numbers and numbers[:size], names, values[:size], bars[: size + 1])


def _is_of_stretch(like: Like) -> bool:
    """Whether a line may stand between two rows of a stretch."""
    line = like.line
    if line is None or not like.matters or line.silent:
        return not like.matters or line is not None
    return isinstance(line.head, BarHead) or is_late(line.head)


@dataclass(slots=True)
class _Stretch:
    """Where the lines of a stretch stand: its rows, progress bars, and what is told of each row."""

    rows: list[int]
    bars: list[int] = field(default_factory=list)
    late: dict[Like, list[int]] = field(default_factory=dict)

    def role(self, like: Like) -> list[int] | None:
        """Where to note lines that are no rows; None where they say nothing."""
        if like.line is None or not like.matters or like.line.silent:
            return None
        return self.bars if isinstance(like.line.head, BarHead) else self.late.setdefault(like, [])
