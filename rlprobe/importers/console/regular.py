"""Numbers under names that are not known: taken for metrics where they come at every step."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from rlprobe.importers.console.alike import is_same

Row = dict[str, float]
_FEWEST = 3  # times that a name must come
_NAMED = 3  # of the names that come too rarely


class Regular:
    """Collects what is printed under unknown names, each with the step that it belongs to.

    Args:
        most: values that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[str, dict[int, float]] = {}
        self._twice: set[str] = set()
        self._taken: set[str] = set()
        self._stepped: set[str] = set()
        self._size = 0

    def add(
        self,
        step: int | None,
        metrics: Mapping[str, float],
        repeated: Collection[str],
        *,
        stepped: bool = False,
    ) -> None:
        """Numbers under unknown names at a step, and which of them came several times.

        Args:
            stepped: whether they stand beside their step: what is evaluated comes at few of them.
        """
        if step is None:
            return
        self._stepped.update(metrics if stepped else ())
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
        new = dict(zip(steps, values, strict=True))
        again = [(known[step], new.pop(step)) for step in known.keys() & new.keys()]
        if not all(is_same(*pair) for pair in again):
            self._twice.add(name)
        fits = max(0, self._most - self._size)
        new = dict(itertools.islice(new.items(), fits)) if len(new) > fits else new
        self._size += len(new)
        known |= new

    def rows(self, steps: int, fewest: int = _FEWEST) -> list[tuple[int, Row]]:
        """Rows of the names that come once at half of so many steps, or beside their step."""
        fewest = min(fewest, max(2, steps))
        rows: dict[int, Row] = {}
        for name, values in self._values.items():
            least = fewest if name in self._stepped else max(fewest, steps / 2)
            if name in self._twice or len(values) < least:
                continue
            self._taken.add(name)
            for step, value in values.items():
                rows.setdefault(step, {})[name] = value
        return sorted(rows.items())

    def notes(self) -> list[str]:
        """What is left out because it came at few steps, in words."""
        rare = {
            name: len(values)
            for name, values in self._values.items()
            if len(values) > 1 and name not in self._taken and name not in self._twice
        }
        if not rare:
            return []
        named = ", ".join(list(rare)[:_NAMED]) + (", …" if len(rare) > _NAMED else "")
        return [
            f"{sum(rare.values()):,} numbers under names that came at few steps left out: {named}"
        ]
