"""Rows that several ranks print into one log: the first one's are the run's, all are their own."""

from __future__ import annotations

from rlprobe.importers.console.alike import repeats
from rlprobe.importers.importer import Reading
from rlprobe.importers.rows import RowTable

Row = dict[str, float]

_MOST_STEPS = 10_000  # of which it is remembered what the first rank printed
_MOST_RANKS = 4_096


class RankRows:
    """Keeps the rows of lines whose prefix tells their rank.

    Attributes:
        copies: rows that another rank had printed before.
    """

    def __init__(self) -> None:
        self.copies = 0
        self._first: dict[int, tuple[int, Row]] = {}
        self._tables: dict[int, RowTable] = {}
        self._differ = False

    def add(self, step: int, rank: int, row: Row) -> bool:
        """Take a row; whether another rank has printed its step before."""
        if len(self._first) > _MOST_STEPS:
            self._first.clear()
        if rank in self._tables or len(self._tables) < _MOST_RANKS:
            self._tables.setdefault(rank, RowTable()).add(step, row)
        first, printed = self._first.setdefault(step, (rank, row))
        if first == rank:
            self._first[step] = rank, {**printed, **row}
            return False
        self.copies += 1
        known = {key: printed[key] for key in row if key in printed}
        self._differ = self._differ or not repeats(known, row)
        return True

    def readings(self) -> list[Reading]:
        """The rows rank by rank; none where all ranks printed the same."""
        if not self._differ:
            return []
        return [Reading(table, rank=rank) for rank, table in sorted(self._tables.items())]

    def notes(self) -> list[str]:
        """What became of rows that came once for every rank, in words."""
        if not self.copies:
            return []
        if self._differ:
            return [f"metrics of the run: those of the rank that printed a step first, of {self}"]
        return [f"the same rows from {self}: counted once"]

    def __str__(self) -> str:
        return f"{len(self._tables)} ranks"
