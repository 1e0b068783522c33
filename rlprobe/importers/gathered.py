"""What was found of one run in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.placing import placed
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.values import Event, IntArray


@dataclass(eq=False)
class Part:
    """A file, or a directory that was read as a whole, and what it holds."""

    path: Path
    readings: list[Reading]

    @property
    def holds_rows(self) -> bool:
        """Whether it is a log of metrics."""
        return any(len(reading.rows) for reading in self.readings)

    def names(self) -> set[str]:
        """The keys of its metrics."""
        return {key for reading in self.readings for key in taken(reading)[1]}

    def events(self) -> list[Event]:
        """Its events, those between rows at the steps of these."""
        return [event for reading in self.readings for event in events_in(reading)]

    def cells(self) -> int:
        """How many values there are."""
        columns = [taken(reading)[1] for reading in self.readings]
        return sum(int(valid.sum()) for each in columns for _, valid in each.values())


def events_in(reading: Reading) -> list[Event]:
    """The events of a reading, those between rows at the steps of these."""
    at = reading.rows.steps()
    return [*reading.events, *placed(reading.told, at, np.ones(len(at), dtype=np.int64))]


def taken(reading: Reading) -> tuple[IntArray, Columns]:
    """The rows of a reading as columns; it keeps them."""
    at, columns = reading.rows.steps(), reading.rows.columns()
    left_out = reading.rows.left_out
    times = reading.rows.times() if isinstance(reading.rows, ColumnTable) else None
    reading.rows = ColumnTable(at, columns, times)
    reading.rows.left_out = left_out
    return at, columns


@dataclass(eq=False)
class Gathered:
    """What is of one run, or of the runs of one store.

    Attributes:
        key: its place below the directory, without what tells ranks and launches apart.
    """

    key: str
    importer: Importer
    parts: list[Part]

    @property
    def name(self) -> str:
        """What names the run; nothing where it is the directory itself."""
        return "" if self.key == "." else self.key

    @property
    def place(self) -> Path:
        """What to name as the path of the run."""
        first = self.parts[0].path
        return first if len(self.parts) == 1 else first.parent

    @property
    def holds_rows(self) -> bool:
        """Whether it is a log of metrics."""
        return any(part.holds_rows for part in self.parts)

    @property
    def readings(self) -> list[Reading]:
        """All of them, in the order of their parts."""
        return [reading for part in self.parts for reading in part.readings]
