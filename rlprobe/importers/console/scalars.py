"""Scalars printed one by one, as TensorBoard has them: `losses/value_loss 0.5 2048`."""

from __future__ import annotations

from rlprobe.importers.console import line as console_line

Row = dict[str, float]

_MOST_EARLY = 200


class Scalars:
    """Takes scalars with their steps; those of unknown names only beside others that are known."""

    def __init__(self) -> None:
        self._known = False
        self._early: list[Row] = []
        self._step = -1.0

    def feed(self, text: str) -> list[Row]:
        """The scalars that are known to be some with this line; each has its `step`."""
        row = console_line.point(text)
        if row is None:
            return []
        if console_line.measures(row) or (self._known and self._is_beside(row)):
            early, self._early, self._known = self._early, [], True
            self._step = row["step"]
            return [*early, row]
        if len(self._early) < _MOST_EARLY:
            self._early.append(row)
        return []

    def _is_beside(self, row: Row) -> bool:
        """Whether its name is spelled as one, or its step is that of a known one."""
        return row["step"] == self._step or any("/" in key or "_" in key for key in row)
