"""Lists of rows in a JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlprobe import naming
from rlprobe.counters import is_counter
from rlprobe.importers import evaluations, long_form, steps
from rlprobe.importers.importer import Complaints, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source
from rlprobe.importers.unread import UnreadCount

_DEEPEST = 6
_FEWEST_ROWS = 2
_PLACE = "step"  # of rows that stand under their step
_STEP_NAME = re.compile(r"(?:(?:step|iter|iteration|epoch|update)[ _:-]*)?(?P<at>\d{1,18})", re.I)


@dataclass
class RowList:
    """A list of rows, and the keys that lead to it; `stepped`: whether its rows have steps."""

    place: tuple[str, ...]
    items: Sequence[Any]
    stepped: bool

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows that measure something."""
        return [item for item in self.items if isinstance(item, dict) and measures(item)]

    @property
    def of_evaluation(self) -> bool:
        """Whether the list is named as one of evaluations."""
        return any(map(evaluations.of_evaluation, self.place))


def measures(row: Mapping[str, Any]) -> bool:
    """Whether a row has a number that counts nothing."""
    return any(number(value) is not None for key, value in row.items() if not is_counter(key))


def listed(document: Any, source: Source, complaints: Complaints) -> list[Reading]:
    """The runs in the lists of rows of a document; [] if it has none.

    Lists that measure the same are several runs, others are parts of one.
    """
    every = list(_lists(document, ()))
    stepped = [part for part in every if part.stepped]
    runs: list[tuple[set[str], list[RowList]]] = []
    for rows in sorted(stepped, key=lambda it: (it.of_evaluation, -len(it.items))):
        names = {key for row in rows.rows[:50] for key in row if not is_counter(key)}
        home = next((run for run in runs if rows.of_evaluation or not _alike(names, run[0])), None)
        if home is None:
            runs.append((names, [rows]))
        else:
            home[0].update(() if rows.of_evaluation else names)
            home[1].append(rows)
    readings = [_reading(lists, source, complaints) for _, lists in runs]
    if len(readings) == 1:
        readings[0].run = ""
    if readings:
        read = sum(len(reading.rows) for reading in readings)
        readings[0].unread = [*readings[0].unread, *_stepless(every).unread(read)]
    return readings


def _stepless(lists: Sequence[RowList]) -> UnreadCount:
    """Rows of lists that have no steps, though they hold a metric that is known."""
    known = naming.every()["generic"].canonical
    unread = UnreadCount("row")
    for part in lists:
        if not part.stepped and any(map(known, part.rows[0])):
            for index, row in enumerate(part.rows, start=1):
                unread.add(index, f"{'/'.join(part.place)}: {json.dumps(row, default=str)[:200]}")
    return unread


def _alike(names: set[str], others: set[str]) -> bool:
    return len(names & others) * 2 >= min(len(names), len(others))


def _reading(lists: Sequence[RowList], source: Source, complaints: Complaints) -> Reading:
    reading = Reading(run="/".join(lists[0].place))
    unstepped, bad = 0, UnreadCount("row")
    key: str | None = None
    for part in lists:
        key = steps.asked_or_best(part.rows, source.step_key)
        unstepped += _add(part, key, reading, complaints, bad)
        reading.step_key = reading.step_key or key
    if unstepped:
        complaints.say(f"{unstepped:,} rows without `{reading.step_key}` left out")
    reading.notes = [] if reading.step_key else ["steps not logged: numbered by row"]
    read = len(reading.rows)
    reading.unread = [*bad.unread(read), *reading.rows.odd.unread(read)]
    return reading


def _add(
    part: RowList, key: str | None, reading: Reading, complaints: Complaints, bad: UnreadCount
) -> int:
    """Add the rows of one list; how many had no step. `bad`: those whose step is no number."""
    unstepped = reached = 0
    for index, row in enumerate(part.items):
        if not isinstance(row, dict):
            complaints.add(index, "not an object")
            continue
        if "train_runtime" in row:  # the summary of a whole run is no step of it
            continue
        step = steps.step_number(row.get(key)) if key else index + 1
        if step is None and key and steps.miscounts(row.get(key)):
            bad.add(index + 1, json.dumps(row, default=str)[:400])
        elif step is None:
            unstepped += measures(row)
        elif part.of_evaluation:
            reading.rows.add(step, evaluations.marked(long_form.spread(row)))
        elif evaluations.is_evaluation(row):  # which may count its own batches
            reading.rows.add(max(step, reached), evaluations.marked(long_form.spread(row)))
        else:
            reached = step
            reading.rows.add(step, long_form.spread(row))
    return unstepped


def _lists(node: Any, place: tuple[str, ...]) -> Iterator[RowList]:
    if isinstance(node, list):
        part = RowList(place, node, stepped=not place)
        rows = part.rows
        part.stepped = not place or steps.choose(rows) is not None
        if rows and len(rows) * 2 >= len(node):
            yield part
    elif isinstance(node, dict) and len(place) < _DEEPEST:
        if numbered := _numbered(node):
            yield RowList(place, numbered, stepped=True)
            return
        for key, value in node.items():
            yield from _lists(value, (*place, key))


def _numbered(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows by their step: `{"1": {…}, "2": {…}}`, `{"epoch_1": {…}, …}`; [] if these are none."""
    if len(node) < _FEWEST_ROWS or not all(isinstance(row, dict) for row in node.values()):
        return []
    steps_of = [_STEP_NAME.fullmatch(key) for key in node]
    if not all(steps_of) or not all(map(measures, node.values())):
        return []
    pairs = zip(steps_of, node.values(), strict=True)
    return [{_PLACE: int(step["at"]), **row} for step, row in pairs if step is not None]
