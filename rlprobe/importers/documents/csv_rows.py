"""Rows of a table with a delimiter -> readings: headers that come again, columns that come late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rlprobe.errors import EmptyRunError
from rlprobe.importers import evaluations, long_form, steps
from rlprobe.importers.documents.csv_cells import Style, is_blank, is_cut
from rlprobe.importers.documents.csv_lines import Line
from rlprobe.importers.documents.json_document import tag_of
from rlprobe.importers.importer import Complaints, Reading
from rlprobe.importers.numbers import looks_like_number
from rlprobe.importers.source import Source
from rlprobe.importers.unread import UnreadCount
from rlprobe.values import BoolArray, FloatArray, IntArray

_EXTREMES = ("__MIN", "__MAX")
_IDLE = frozenset({"relative time (process)", "relative time (wall)", "wall time", "created"})
_TENSORBOARD = ("wall time", "step", "value")  # its page exports one metric per file
_MONITOR = ("r", "l", "t")
_MOST = float(2**62)
_EPISODES = "one row per episode: numbered by episode"

Column = tuple[FloatArray, BoolArray | None]
_Long = tuple[int, int, int | None]


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
        self.odd: dict[str, tuple[UnreadCount, UnreadCount]] = {}  # others, and those like numbers
        self.quick_rows = 0  # that hold a number in each cell of this header
        self._head(header)
        runs = {run for run, name in self.columns if name}
        self.single = len({run for run in runs if run}) <= 1
        self.long: _Long | None = None
        self.run_at: int | None = None  # the column that tells the run of each row
        self.rows = 0
        self.quick = False
        if self.single:
            self.readings[""] = Reading()

    def _head(self, header: Sequence[str]) -> None:
        self._count_quick_rows()
        self.header = tuple(header)
        self.trailing = len(header) - len(_without_blank_end(header))
        self.columns = _columns(header, self.source)
        self.names = [name for _, name in self.columns]
        known = evaluations.KIND_KEYS
        self.kinds = [place for place, name in enumerate(header) if name.lower() in known]
        if self.step_key is not None:
            self.quick = self._may_be_quick()
            self.step = self.header.index(self.step_key) if self.step_key in header else None

    def _count_quick_rows(self) -> None:
        for name in self.names if self.quick_rows else ():
            self.numbers[name] = self.numbers.get(name, 0) + self.quick_rows
            self.cells_read += self.quick_rows
        self.quick_rows = 0

    def _find_run(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Let rows that name their run be those of several runs."""
        key = long_form.run_key(rows, self.step_key) if self.single else None
        self.run_at = None if key is None else self.header.index(key)

    def _may_be_quick(self) -> bool:
        named = self.long is not None or self.run_at is not None
        return self.single and self.style.decimal == "point" and all(self.names) and not named

    @property
    def blockwise(self) -> bool:
        """Whether many lines may be taken at once: each is a row, and its columns are known."""
        one_by_one = self.long is not None or self.run_at is not None or self.style.framed
        stepped = self.step is not None or self.step_key is None
        names = [name for name in self.names if name]
        twice = self.single and len(set(names)) < len(names)
        return self.style.decimal == "point" and stepped and not (one_by_one or twice)

    def take(
        self,
        numbers: FloatArray | None,
        columns: Mapping[int, Column],
        texts: Mapping[int, tuple[int, Sequence[Line]]],
    ) -> None:
        """Take many rows at once.

        Args:
            numbers: the step of each; None where rows are numbered.
            columns: of numbers, by their place.
            texts: how many cells of a column hold text, and the first of these.
        """
        size = len(next(iter(columns.values()))[0])
        at = np.arange(self.rows + 1, self.rows + 1 + size) if numbers is None else numbers
        self.rows += size
        by_run: dict[str, dict[str, Column]] = {}
        for place, column in columns.items():
            run, name = self.columns[place]
            count = size if column[1] is None else int(np.count_nonzero(column[1]))
            if not (count and name):
                continue
            self.numbers[name] = self.numbers.get(name, 0) + count
            if self.single or run:
                self.cells_read += count
                by_run.setdefault("" if self.single else run, {})[name] = column
        for run, part in sorted(by_run.items(), key=lambda item: _first_row(item[1])):
            rows = self.readings.setdefault(run, Reading(run=run)).rows
            rows.add_columns(*_rows_of(at.astype(np.int64), part))
        for place, (count, shown) in texts.items():
            self._count_text(self.columns[place][1], count, shown)

    def _count_text(self, name: str, count: int, shown: Sequence[Line]) -> None:
        every, _ = self.odd.setdefault(name, (UnreadCount("cell"), UnreadCount("cell")))
        for number, cell in shown:
            every.add(number, f"{name}: {cell}")
        every.count += count - len(shown)

    def _long_form(self, rows: Sequence[Mapping[str, float | None]]) -> _Long | None:
        """The columns of the metric's name, of its value and of the run, if rows name theirs."""
        keys = long_form.keys_of(self.header)
        if keys is None or any(row.get(keys[0]) is not None for row in rows):
            return None
        run = next((key for key in long_form.RUN_KEYS if key in self.header), None)
        place = self.header.index
        return place(keys[0]), place(keys[1]), None if run is None else place(run)

    def choose_step(self, rows: Iterable[Sequence[str]]) -> None:
        """Find the column that counts the steps, by its name and by what the first rows hold."""
        header: Sequence[str] = self.header
        numbered: list[dict[str, float | None]] = []
        labelled: list[dict[str, str]] = []
        for row in rows:
            if self.is_header(row):
                header = row
            else:
                values = map(self.style.number, row)
                numbered.append(dict(zip(header, values, strict=False)))
                labelled.append(dict(zip(header, row, strict=False)))
        key = steps.asked_or_best(numbered, self.source.step_key, table=True)
        if key is None and any(run for run, _ in self.columns):
            key = self.header[0]  # an export of W&B with another axis: it is the first column
        if key is None and not self.header[0] and _counts([row.get("") for row in numbered]):
            key = ""  # the index of a data frame
        self.step_key = key
        self._find_run(labelled)
        self.long = self._long_form(numbered)
        self.quick = self._may_be_quick()
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
        if not last and self._plain(text):
            return
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

    def _plain(self, text: str) -> bool:
        """Take a line of plain numbers alone, as nearly all are; whether it was one."""
        if not self.quick or '"' in text or "_" in text:
            return False
        cells = text.split(self.style.delimiter)
        if len(cells) != len(self.names):
            return False
        try:
            values = [*map(float, cells)]
        except ValueError:
            return False
        step = self.rows + 1 if self.step is None else values[self.step]
        lost = self.step is None and self.step_key is not None
        if lost or not -_MOST < step < _MOST or step != int(step):
            return False
        self.rows += 1
        self.quick_rows += 1
        self.readings[""].rows.add(int(step), dict(zip(self.names, values, strict=True)))
        return True

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
        if self.long is not None:
            self._spread(step, cells, values)
            return
        of_evaluation = any(evaluations.of_evaluation(cells[place]) for place in self.kinds)
        rows: dict[str, dict[str, float]] = {}
        own = "" if self.run_at is None else cells[self.run_at]
        padded = [*values, *[None] * (len(cells) - len(values))]
        for (run, name), cell, value in zip(self.columns, cells, padded, strict=False):
            if not name:
                continue
            if value is not None:
                shown = evaluations.named(name) if of_evaluation else name
                rows.setdefault(own if self.single else run, {})[shown] = value
                self.numbers[name] = self.numbers.get(name, 0) + 1
            elif not is_blank(cell):
                self._odd(name, number, cell)
        for run, row in rows.items():
            if self.single or run:
                self.cells_read += len(row)
                self.readings.setdefault(run, Reading(run=run)).rows.add(step, row)

    def _spread(self, step: int, cells: Sequence[str], values: Sequence[float | None]) -> None:
        """Keep a row of one value, which names its metric and perhaps its run."""
        name, value, run = self.long or (0, 0, None)
        number = values[value]
        if number is not None and cells[name]:
            self.cells_read += 1
            key = "" if run is None else cells[run]
            self.readings.setdefault(key, Reading(run=key)).rows.add(step, {cells[name]: number})

    def finish(self) -> list[Reading]:
        """The readings, one for each run.

        Raises:
            EmptyRunError: no row holds a number.
        """
        full = [reading for reading in self.readings.values() if len(reading.rows)]
        if not full:
            raise EmptyRunError(f"Couldn't find metrics in '{self.source.path}': no row of numbers")
        full[0].problems = self.complaints.all()
        self._count_quick_rows()
        odd = self._odd_cells().unread(self.cells_read)
        full[0].unread = [*self.unfit.unread(self.rows), *odd]
        if self.header[:3] == _MONITOR:
            full[0].framework, full[0].notes = "monitor", [_EPISODES]
            return full
        if len(full) == 1:
            full[0].run = ""
        for reading in full:
            reading.step_key = self.step_key
            numbered = self.step_key is not None
            reading.notes = [] if numbered else ["steps not logged: numbered by row"]
        return full

    def _odd(self, name: str, number: int, cell: str) -> None:
        every, alike = self.odd.setdefault(name, (UnreadCount("cell"), UnreadCount("cell")))
        every.add(number, f"{name}: {cell}")
        if looks_like_number(cell):
            alike.add(number, f"{name}: {cell}")

    def _odd_cells(self) -> UnreadCount:
        """Cells without a number: all of a column of numbers, else those that look like one."""
        odd = UnreadCount("cell")
        for name, (every, alike) in self.odd.items():
            whole = self.numbers.get(name, 0) >= every.count
            odd.take(every if whole else alike)
        return odd


def _first_row(columns: Mapping[str, Column]) -> int:
    """The first row that holds a number."""
    return min(0 if valid is None else int(valid.argmax()) for _, valid in columns.values())


def _rows_of(at: IntArray, columns: dict[str, Column]) -> tuple[IntArray, dict[str, Column]]:
    """The rows that hold a number."""
    masks = [valid for _, valid in columns.values()]
    if any(valid is None for valid in masks):
        return at, columns
    rows = np.logical_or.reduce([valid for valid in masks if valid is not None])
    if rows.all():
        return at, columns
    part = {name: (v[rows], m[rows]) for name, (v, m) in columns.items() if m is not None}
    return at[rows], {**part}


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


def _counts(index: Sequence[float | None]) -> bool:
    """Whether these are whole numbers that go up."""
    known = [step for step in map(steps.step_number, index) if step is not None]
    return len(known) == len(index) > 1 and sorted(set(known)) == known
