"""Numbers under names that are not known: taken for metrics where they come at every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rlprobe.importers.console.alike import is_same

Row = dict[str, float]
_FEWEST = 3  # times that a name must come


class Regular:
    """Collects what is printed under unknown names, each with the step that it belongs to.

    Args:
        most: values that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[str, dict[int, float]] = {}
        self._twice: set[str] = set()
        self._size = 0

    def add(
        self, step: int | None, metrics: Mapping[str, float], repeated: Collection[str]
    ) -> None:
        """Numbers under unknown names at a step, and which of them came several times."""
        if step is None:
            return
        self._twice.update(name for name in metrics if name in repeated)
        for name, value in metrics.items():
            values = self._values.setdefault(name, {})
            if step in values and not is_same(values[step], value):
                self._twice.add(name)
            elif self._size < self._most:
                self._size += step not in values
                values[step] = value

    def add_column(
        self, name: str, steps: Sequence[int], values: Sequence[float], *, repeated: bool
    ) -> None:
        """The same of one name at many steps, at each once.

        Args:
            repeated: whether it came several times at some.
        """
        if repeated:
            self._twice.add(name)
        known = self._values.setdefault(name, {})
        fits = max(0, self._most - self._size)
        new = dict(zip(steps[:fits], values[:fits], strict=True))
        self._size += len(new)
        known |= new

    def rows(self, steps: int, fewest: int = _FEWEST) -> list[tuple[int, Row]]:
        """Rows of the names that come once at no less than half of so many steps."""
        fewest = min(fewest, max(2, steps))
        rows: dict[int, Row] = {}
        for name, values in self._values.items():
            if name in self._twice or len(values) < max(fewest, steps / 2):
                continue
            for step, value in values.items():
                rows.setdefault(step, {})[name] = value
        return sorted(rows.items())
