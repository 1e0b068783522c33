"""Columns in a JSON document: lists of values beside a list of steps, at any depth."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlprobe import naming
from rlprobe.counters import is_counter
from rlprobe.importers import steps
from rlprobe.importers.importer import Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source
from rlprobe.importers.unread import UnreadCount

_DEEPEST = 8
_FEWEST_ROWS = 2
_EVALUATION = re.compile(r"^(?:eval|val|valid|validation|evaluation|test)(?:_|$)", re.IGNORECASE)
_LAST_RESORT = "x"  # beside `y`
_SHOWN = 3  # values of a column that is quoted

Place = tuple[str, ...]
Values = Sequence[Any]


@dataclass
class Axis:
    """A list of steps, and the columns that it numbers.

    Attributes:
        place: the keys that lead to the object that holds the list.
        key: the list's own key; None where rows are numbered.
    """

    place: Place
    key: str | None
    steps: Sequence[int | None]
    columns: dict[str, Values] = field(default_factory=dict)

    @property
    def of_evaluation(self) -> bool:
        """Whether the columns are those of an evaluation."""
        return any(map(_EVALUATION.match, (*self.place, self.key or "")))

    def named(self) -> dict[str, Values]:
        """The columns, those of an evaluation named as such."""
        if not self.of_evaluation:
            return self.columns
        return {
            name if _EVALUATION.match(name) else f"eval/{name}": values
            for name, values in self.columns.items()
        }


class Columns:
    """All columns of a document."""

    def __init__(self, wanted: str | None = None) -> None:
        self.wanted = wanted
        self.axes: list[Axis] = []
        self.loose: dict[Place, Values] = {}  # without a list of steps of their length

    def collect(
        self, node: Mapping[str, Any], place: Place = (), above: Sequence[Axis] = ()
    ) -> None:
        """Take the columns of an object and of those below it."""
        lists = {key: value for key, value in node.items() if _is_column(value)}
        own = [self._axis(place, dict(group), above) for group in _by_length(lists)]
        axes = [axis for axis in own if axis is not None]
        self.axes += axes
        scope = [*axes, *above]
        for key, values in lists.items():
            if any(axis.key == key for axis in axes):
                continue
            axis = next((axis for axis in scope if len(axis.steps) == len(values)), None)
            if axis is None:
                self.loose[(*place, key)] = values
            else:
                axis.columns["/".join((*place[len(axis.place) :], key))] = values
        for key, inner in node.items():
            if isinstance(inner, dict) and len(place) < _DEEPEST:
                self.collect(inner, (*place, key), scope)

    def _axis(
        self, place: Place, lists: Mapping[str, Values], above: Sequence[Axis]
    ) -> Axis | None:
        """The list of steps among lists of one length; None if there is none, or a better above."""
        counters = [key for key in lists if _counts(key) and _advances(lists[key])]
        best = steps.best_step_key(counters, self.wanted) if self.wanted else None
        best = best or next(iter(_ranked(counters)), None)
        if best is None:
            return None
        numbered = any(len(axis.steps) == len(lists[best]) for axis in above)
        if numbered and not steps.is_step(_plain(best)):
            return None
        return Axis(place, best, [steps.step_number(value) for value in lists[best]])

    def settle(self) -> None:
        """Give columns without steps those of the only list of their length elsewhere."""
        for place, values in list(self.loose.items()):
            alike = [axis for axis in self.axes if len(axis.steps) == len(values)]
            if len(alike) == 1:
                alike[0].columns["/".join(place)] = values
                del self.loose[place]
        self.axes = [axis for axis in self.axes if axis.columns]
        if not self.axes and self.loose:
            self._number()

    def _number(self) -> None:
        """Number the rows of columns without any steps, if a name among them is a metric's."""
        known = naming.every()["generic"].canonical
        depth = _shared(list(self.loose))
        named = {place: "/".join(place[depth:]) for place in self.loose}
        metrics = [values for place, values in self.loose.items() if known(named[place])]
        if not metrics:
            return
        size = Counter(map(len, metrics)).most_common(1)[0][0]
        axis = Axis((), None, range(1, size + 1))
        for place, values in list(self.loose.items()):
            if len(values) == size:
                axis.columns[named[place]] = self.loose.pop(place)
        self.axes = [axis]

    def unread(self) -> UnreadCount:
        """The columns that no list of steps tells where they belong."""
        left = UnreadCount("column")
        for place, (name, values) in enumerate(self.loose.items(), start=1):
            shown = ", ".join(str(value) for value in values[:_SHOWN])
            left.add(place, f"{'/'.join(name)}: [{shown}, …] ({len(values):,} values)")
        return left


def _shared(places: Sequence[Place]) -> int:
    """How many keys the places of all columns begin with alike."""
    first, last = min(places), max(places)
    pairs = zip(first[:-1], last[:-1], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def columnar(document: Any, source: Source) -> list[Reading]:
    """The runs in the columns of a document; [] if it has none."""
    if not isinstance(document, dict):
        return []
    columns = Columns(source.step_key)
    columns.collect(document)
    columns.settle()
    if not columns.axes:
        return []
    readings = [_reading(axes) for axes in _runs(columns.axes)]
    if len(readings) == 1:
        readings[0].run = ""
    read = sum(len(axis.columns) for axis in columns.axes)
    readings[0].unread = columns.unread().unread(read)
    return readings


def _runs(axes: Sequence[Axis]) -> list[list[Axis]]:
    """Axes of one run together: the same names again, not of an evaluation, are another run's."""
    ordered = sorted(axes, key=lambda axis: (axis.of_evaluation, -len(axis.columns)))
    runs: list[list[Axis]] = []
    for axis in ordered:
        names = set(axis.named())
        home = next((run for run in runs if not _repeats(names, run)), None)
        if home is None:
            runs.append([axis])
        else:
            home.append(axis)
    order = {id(axis): place for place, axis in enumerate(axes)}
    return sorted(runs, key=lambda run: order[id(run[0])])


def _repeats(names: set[str], run: Sequence[Axis]) -> bool:
    had = {name for axis in run for name in axis.named()}
    return len(names & had) * 2 >= min(len(names), len(had))


def _reading(axes: Sequence[Axis]) -> Reading:
    main = axes[0]
    reading = Reading(run="/".join(main.place), step_key=main.key)
    for axis in axes:
        columns = axis.named()
        if axis.key and not axis.of_evaluation:
            columns = {**columns, axis.key: axis.steps}  # a counter, where another is asked for
        for index, step in enumerate(axis.steps):
            if step is not None:
                reading.rows.add(step, {name: values[index] for name, values in columns.items()})
    reading.notes = [] if main.key else ["steps not logged: numbered by row"]
    return reading


def _is_column(value: object) -> bool:
    """Whether a value is a list of numbers, most of it."""
    if not isinstance(value, list) or len(value) < _FEWEST_ROWS:
        return False
    numbers = sum(number(item) is not None for item in value)
    return numbers > 0 and all(not isinstance(item, list | dict) for item in value)


def _by_length(lists: Mapping[str, Values]) -> Iterator[list[tuple[str, Values]]]:
    for size in dict.fromkeys(map(len, lists.values())):
        yield [(key, values) for key, values in lists.items() if len(values) == size]


def _counts(key: str) -> bool:
    return is_counter(_plain(key)) or key == _LAST_RESORT


def _plain(key: str) -> str:
    """A key without the word for evaluations before it."""
    return _EVALUATION.sub("", key, count=1)


def _ranked(counters: Sequence[str]) -> list[str]:
    """Counters, the better first; one without a rank counts where there is no other."""
    order = {name: rank for rank, name in enumerate(steps.ranked(map(_plain, counters)))}
    return sorted(counters, key=lambda key: order.get(_plain(key), len(order)))


def _advances(values: Values) -> bool:
    """Whether these are whole numbers that do not stand still."""
    found = [steps.step_number(value) for value in values]
    known = {step for step in found if step is not None}
    return found.count(None) * 2 <= len(found) and len(known) > 1
