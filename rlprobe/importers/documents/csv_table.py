"""Tables with a delimiter: CSV, TSV and their relatives."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from rlprobe import schema
from rlprobe.errors import EmptyRunError
from rlprobe.importers import steps
from rlprobe.importers.documents.json_document import tag_of
from rlprobe.importers.importer import Complaints, Importer, Reading
from rlprobe.importers.numbers import spelled
from rlprobe.importers.source import Source

_DELIMITERS = (",", "\t", ";", "|")
_SUFFIXES = frozenset({".csv", ".tsv"})
_EXTREMES = ("__MIN", "__MAX")
_IDLE = frozenset({"relative time (process)", "relative time (wall)", "wall time", "created"})
_PEEK_ROWS = 50
_TENSORBOARD = ["wall time", "step", "value"]  # its page exports one metric per file
_RULE = re.compile(r"[\s|:+-]*-[\s|:+-]*")


class CSVTable(Importer):
    """A table with one header and one logged step per line; any delimiter.

    - W&B's export of a chart: columns are `run - metric`, each with a `__MIN` and a `__MAX` beside
      it, which are dropped; the columns of several runs become several runs.
    - `progress.csv` of Stable-Baselines3: the step is `time/total_timesteps`, an empty cell is not
      logged.
    - `metrics.csv` of Lightning: training and validation stand on separate rows of one step.
    - With `;` as the delimiter, a comma is a decimal point. Lines that start with `#` are comments.

    A row with another number of cells, or without a step, costs itself. The step is found under the
    names that JSON Lines have for it; a table without one is numbered by row.

    Source: stable_baselines3/common/logger.py (CSVOutputFormat),
    lightning/fabric/loggers/csv_logs.py.
    """

    name = "csv"
    description = "CSV or TSV with a header (W&B export, progress.csv, metrics.csv)"
    priority = 80
    step_keys = (*steps.STEP_KEYS, *schema.step_keys().formats["csv"])

    def recognises(self, source: Source) -> bool:
        """A header of words, and below it rows of as many numbers."""
        if not source.is_text:
            return False
        lines = [line for line in _text(source.head.splitlines()) if line.strip()][:_PEEK_ROWS]
        lines = [line for line in lines if not line.startswith("#")]
        delimiter = _delimiter(lines)
        if len(lines) > 1 and _RULE.fullmatch(lines[1]):
            return False  # Markdown
        if delimiter is None:
            return source.suffix in _SUFFIXES and bool(lines)
        header, *rows = _cells(lines, delimiter)
        if any(spelled(cell) is not None for cell in header):
            return False
        numeric = [_numeric(row, delimiter) for row in rows if len(row) == len(header)]
        return bool(numeric) and sum(numeric) * 2 >= len(rows)

    def read(self, source: Source) -> list[Reading]:
        """The run in the table; several where it has the columns of several."""
        lines = (line for line in _text(source.lines()))
        first = _first(lines)
        delimiter = _delimiter([first]) or ","
        header = [cell.strip() for cell in next(_cells([first], delimiter), [])]
        table = _Table(source, header, delimiter, self.step_keys)
        table.read(lines)
        return table.finish()


def _text(lines: Iterator[bytes] | Sequence[bytes]) -> Iterator[str]:
    for line in lines:
        yield line.decode("utf-8", "replace").replace("\0", "").rstrip("\r")


def _first(lines: Iterator[str]) -> str:
    return next((line for line in lines if line.strip() and not line.startswith("#")), "")


def _delimiter(lines: Sequence[str]) -> str | None:
    """The delimiter that the header has most of."""
    header = lines[0] if lines else ""
    best = max(_DELIMITERS, key=header.count)
    return best if header.count(best) else None


def _cells(lines: Sequence[str] | Iterator[str], delimiter: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines, delimiter=delimiter)
    except csv.Error:
        return


def _numeric(row: Sequence[str], delimiter: str) -> bool:
    filled = [cell for cell in row if cell.strip()]
    numbers = sum(_value(cell, delimiter) is not None for cell in filled)
    return bool(numbers) and numbers * 2 >= len(filled)


def _value(cell: str, delimiter: str) -> float | None:
    if delimiter == ";" and cell.count(",") == 1 and "." not in cell:
        cell = cell.replace(",", ".")
    return spelled(cell)


class _Table:
    def __init__(
        self, source: Source, header: Sequence[str], delimiter: str, step_keys: Sequence[str]
    ) -> None:
        self.source, self.header, self.delimiter = source, header, delimiter
        self.complaints = Complaints(source)
        self.step = next((header.index(key) for key in step_keys if key in header), None)
        self.columns = [_column(name) for name in header]
        if [name.lower() for name in header] == _TENSORBOARD:
            self.columns = [("", ""), ("", "Step"), ("", tag_of(source))]
        if self.step is None and any(run for run, _ in self.columns):
            self.step = 0  # an export of W&B with another axis: it is the first column
        runs = dict.fromkeys(run for run, name in self.columns if name) or {"": None}
        single = len({run for run in runs if run}) <= 1
        self.readings = {run: Reading(run="" if single else run) for run in runs if run or single}
        self.single = single

    def read(self, lines: Iterator[str]) -> None:
        row_number = 0
        for line_number, line in enumerate(lines, start=2):
            if not line.strip() or line.startswith("#"):
                continue
            cells = next(_cells([line], self.delimiter), None)
            if cells is None or len(cells) != len(self.header):
                self.complaints.add(line_number, f"not {len(self.header)} cells")
                continue
            row_number += 1
            self._add(cells, line_number, row_number)

    def _add(self, cells: Sequence[str], line_number: int, row_number: int) -> None:
        step = row_number if self.step is None else steps.step_number(cells[self.step])
        if step is None:
            self.complaints.add(line_number, "no step")
            return
        rows: dict[str, dict[str, float]] = {}
        for (run, name), cell in zip(self.columns, cells, strict=True):
            value = _value(cell, self.delimiter) if name else None
            if value is not None:
                rows.setdefault(run, {})[name] = value
        if self.single:
            merged = {key: value for row in rows.values() for key, value in row.items()}
            next(iter(self.readings.values())).rows.add(step, merged)
            return
        for run, row in rows.items():
            if run in self.readings:
                self.readings[run].rows.add(step, row)

    def finish(self) -> list[Reading]:
        full = [reading for reading in self.readings.values() if len(reading.rows)]
        if not full:
            raise EmptyRunError(f"Couldn't find metrics in '{self.source.path}': no row of numbers")
        full[0].problems = self.complaints.all()
        for reading in full:
            reading.notes = [] if self.step is not None else ["steps not logged: numbered by row"]
        return full


def _column(name: str) -> tuple[str, str]:
    """The run and the metric of a column; no metric where the column is to be dropped."""
    if name.endswith(_EXTREMES) or name.lower() in _IDLE or not name:
        return "", ""
    run, separator, metric = name.rpartition(" - ")
    return (run, metric) if separator else ("", name)
