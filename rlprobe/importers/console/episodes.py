"""Episodes that end at one step, each printed by itself (CleanRL): their mean is the step's."""

from __future__ import annotations

from collections.abc import Collection

Row = dict[str, float]
_MOST_KEYS = 4  # of a row about one episode


class Episodes:
    """Keeps the rows of one step that tell of one episode each, until another line comes.

    Source: cleanrl/ppo.py, `global_step=…, episodic_return=…` for every environment.

    Attributes:
        several: rows that were not the first of their step.
    """

    def __init__(self) -> None:
        self.several = 0
        self._step: int | None = None
        self._sums: Row = {}
        self._count = 0
        self._waiting = False

    @property
    def waiting(self) -> bool:
        """Whether rows are kept that were not taken."""
        return self._waiting

    @staticmethod
    def are(names: Collection[str]) -> bool:
        """Whether a row of these names tells of one episode."""
        return len(names) <= _MOST_KEYS and any("episod" in name.lower() for name in names)

    def add(self, step: int, row: Row) -> bool:
        """Take a row; False if it is none of an episode, or of another step than those kept."""
        if not self.are(row):
            return False
        alike = step == self._step and row.keys() == self._sums.keys()
        if self._waiting and not alike:
            return False
        if alike:
            self._sums = {key: self._sums[key] + value for key, value in row.items()}
        else:
            self._step, self._sums, self._count = step, dict(row), 0
        self._count += 1
        self.several += alike
        self._waiting = True
        return True

    def take(self) -> tuple[int, Row] | None:
        """The step that is kept, with the mean over its rows so far; None if none is."""
        if not self._waiting or self._step is None:
            return None
        self._waiting = False
        return self._step, {key: total / self._count for key, total in self._sums.items()}

    def notes(self) -> list[str]:
        """What was done, in words."""
        if not self.several:
            return []
        return [
            f"several episodes end at one step: their mean ({self.several:,} rows more than steps)"
        ]
