"""What was found of one run in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlprobe.importers.importer import Importer, Reading


@dataclass
class Part:
    """A file, or a directory that was read as a whole, and what it holds."""

    path: Path
    readings: list[Reading]

    @property
    def holds_rows(self) -> bool:
        """Whether it is a log of metrics."""
        return any(len(reading.rows) for reading in self.readings)


@dataclass
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
