"""Rows of a table with a delimiter -> readings: headers that come again, columns that come late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlprobe.errors import EmptyRunError
from rlprobe.importers import steps
from rlprobe.importers.documents.csv_cells import Style, is_blank, is_cut
from rlprobe.importers.documents.csv_lines import Line
from rlprobe.importers.documents.json_document import tag_of
from rlprobe.importers.importer import Complaints, Reading
from rlprobe.importers.numbers import looks_like_number
from rlprobe.importers.source import Source
from rlprobe.importers.unread import UnreadCount

_EXTREMES = ("__MIN", "__MAX")
_IDLE = frozenset({"relative time (process)", "relative time (wall)", "wall time", "created"})
_TENSORBOARD = ("wall time", "step", "value")  # its page exports one metric per file
_MONITOR = ("r", "l", "t")
_EPISODES = "one row per episode: numbered by episode"


class Table:
    """What a table holds, row by row."""

    def __init__(self, source: Source, style: Style, header: Sequence[str]) -> None:
        self.source, self.style = source, style
        self.complaints = Complaints(source)
        self.header: tuple[str, ...] = ()
        self.step_key: str | None = None
        self.step: int | None = None
        self.readings: dict[str, Reading] = {}
        self.cells_read = 0
        self.unfit = UnreadCount("row")
        self.numbers: dict[str, int] = {}  # cells of each column that were read
        self.odd: dict[str, list[tuple[int, str]]] = {}  # and those that were not
        self._head(header)
        runs = {run for run, name in self.columns if name}
        self.single = len({run for run in runs if run}) <= 1
        self.rows = 0

    def _head(self, header: Sequence[str]) -> None:
        self.header = tuple(header)
        self.trailing = len(header) - len(_without_blank_end(header))
        self.columns = _columns(header, self.source)
        if self.step_key is not None:
            self.step = self.header.index(self.step_key) if self.step_key in header else None

    def choose_step(self, rows: Sequence[Sequence[str]]) -> None:
        """Find the column that counts the steps, by its name and by what the first rows hold."""
        plain = [dict(zip(self.header, row, strict=False)) for row in rows]
        numbered = [{k: self.style.number(cell) for k, cell in row.items()} for row in plain]
        key = steps.asked_or_best(numbered, self.source.step_key, table=True)
        if key is None and any(run for run, _ in self.columns):
            key = self.header[0]  # an export of W&B with another axis: it is the first column
        if key is None and not self.header[0] and _counts(row[0] for row in rows if row):
            key = ""  # the index of a data frame
        self.step_key = key
        self.step = self.header.index(key) if key is not None and key in self.header else None

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether a row is a header: names, many of which are known."""
        named = [cell for cell in cells if cell]
        if not named or any(self.style.number(cell) is not None for cell in named):
            return False
        return len(set(named) & set(self.header)) * 2 >= min(len(named), len(self.header))

    def add(self, line: Line, *, last: bool = False) -> None:
        """Take the next line that is neither blank nor a comment."""
        number, text = line
        cells = self.style.cells(text)
        if self.is_header(cells):
            self._head(cells)
            return
        values = [self.style.number(cell) for cell in cells]
        if all(value is None for value in values):
            return  # a row of units, a rule
        cells = self._fitting(cells)
        if len(cells) != len(self.header) or (last and is_cut(cells[-1])):
            self._refuse(line, f"not {len(self.header)} cells")
            return
        self.rows += 1
        step = self.rows if self.step_key is None else self._step(cells)
        if step is None:
            self.rows -= 1
            self._refuse(line, "no step")
            return
        self._keep(number, step, cells, values)

    def _fitting(self, cells: list[str]) -> list[str]:
        """As many cells as the header has, where only blank ones are too many or too few."""
        width = len(self.header)
        if len(cells) > width and not any(cells[width:]):
            return cells[:width]
        if width - self.trailing <= len(cells) < width:
            return [*cells, *[""] * (width - len(cells))]
        return cells

    def _step(self, cells: Sequence[str]) -> int | None:
        if self.step is None:
            return None
        return steps.step_number(self.style.number(cells[self.step])) or steps.step_number(
            cells[self.step]
        )

    def _refuse(self, line: Line, why: str) -> None:
        self.complaints.add(line[0], why)
        self.unfit.add(*line)

    def _keep(
        self, number: int, step: int, cells: Sequence[str], values: Sequence[float | None]
    ) -> None:
        rows: dict[str, dict[str, float]] = {}
        padded = [*values, *[None] * (len(cells) - len(values))]
        for (run, name), cell, value in zip(self.columns, cells, padded, strict=False):
            if not name:
                continue
            if value is not None:
                rows.setdefault("" if self.single else run, {})[name] = value
                self.numbers[name] = self.numbers.get(name, 0) + 1
            elif not is_blank(cell):
                self.odd.setdefault(name, []).append((number, cell))
        for run, row in rows.items():
            if self.single or run:
                self.cells_read += len(row)
                self.readings.setdefault(run, Reading(run=run)).rows.add(step, row)

    def finish(self) -> list[Reading]:
        """The readings, one for each run.

        Raises:
            EmptyRunError: no row holds a number.
        """
        full = [reading for reading in self.readings.values() if len(reading.rows)]
        if not full:
            raise EmptyRunError(f"Couldn't find metrics in '{self.source.path}': no row of numbers")
        full[0].problems = self.complaints.all()
        full[0].unread = [*self.unfit.unread(self.rows), *self._odd_cells().unread(self.cells_read)]
        if self.header[:3] == _MONITOR:
            full[0].framework, full[0].notes = "monitor", [_EPISODES]
            return full
        for reading in full:
            reading.step_key = self.step_key
            numbered = self.step_key is not None
            reading.notes = [] if numbered else ["steps not logged: numbered by row"]
        return full

    def _odd_cells(self) -> UnreadCount:
        """Cells without a number: all of a column of numbers, else those that look like one."""
        odd = UnreadCount("cell")
        for name, cells in self.odd.items():
            whole = self.numbers.get(name, 0) >= len(cells)
            for number, cell in cells:
                if whole or looks_like_number(cell):
                    odd.add(number, f"{name}: {cell}")
        return odd


def _without_blank_end(cells: Sequence[str]) -> Sequence[str]:
    end = len(cells)
    while end and not cells[end - 1]:
        end -= 1
    return cells[:end]


def _columns(header: Sequence[str], source: Source) -> list[tuple[str, str]]:
    if tuple(name.lower() for name in header) == _TENSORBOARD:
        return [("", ""), ("", "Step"), ("", tag_of(source))]
    columns: list[tuple[str, str]] = []
    for place, name in enumerate(header):
        run, metric = _column(name)
        if tuple(header[:3]) == _MONITOR and name == "t":
            metric = "wall_time"
        if metric and (run, metric) in columns:
            metric = f"{metric}#{place + 1}"  # the second of the same name
        columns.append((run, metric))
    return columns


def _column(name: str) -> tuple[str, str]:
    """The run and the metric of a column; no metric where the column is to be dropped."""
    if name.endswith(_EXTREMES) or name.lower() in _IDLE or not name:
        return "", ""
    run, separator, metric = name.rpartition(" - ")
    return (run, metric) if separator else ("", name)


def _counts(cells: Iterable[str]) -> bool:
    """Whether these are whole numbers that go up."""
    found = [steps.step_number(cell) for cell in cells]
    known = [step for step in found if step is not None]
    return len(known) == len(found) > 1 and sorted(set(known)) == known
