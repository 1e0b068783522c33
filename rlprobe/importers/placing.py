"""Events between rows -> events with the step and the launch of those rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlprobe.importers.importer import Told
from rlprobe.values import Event, IntArray

_BEGINS = ("resumed", "run_started")  # what belongs to the rows after it
_DIED = "crash"


def placed(between_rows: Sequence[Told], step: IntArray, attempt: IntArray) -> Iterator[Event]:
    """The events, each with a step of its launch.

    A step that the event names itself counts where it lies between the rows around it: it may be
    one of another counter, and is data then. A death after which the same launch goes on was none.

    Args:
        step, attempt: of every row, in the order of the file.
    """
    last = len(step) - 1
    ends = {item.row for item in between_rows if "tail" in item.event.data}
    for item in between_rows:
        row, event = min(item.row, last), item.event
        if event.kind == "halted" and item.row in ends and "tail" not in event.data:
            continue  # the last words tell it with more
        if event.kind == _DIED and row < last and (row < 0 or attempt[row] == attempt[row + 1]):
            continue
        begins = event.kind in _BEGINS
        owner = min(max(row + begins, 0), last)
        number = int(attempt[owner]) if last >= 0 else 1
        yield replace(_at(event, row, step, begins=begins), attempt=number)


def _at(event: Event, row: int, step: IntArray, *, begins: bool) -> Event:
    """The event with its step: the one it names, or that of the row it belongs to."""
    last = len(step) - 1
    before = int(step[row]) if row >= 0 else None
    after = int(step[row + 1]) if row < last else None
    own = event.step
    if own is not None and _between(own, None if begins else before, after):
        return event
    if own is not None and event.kind == "checkpoint" and own in step[: row + 1]:
        return event  # written in the background, and told when it was done
    data = event.data if own is None else {**event.data, "named_step": own}
    return replace(event, step=after if begins else before, data=data)


def _between(own: int, before: int | None, after: int | None) -> bool:
    """Whether a step lies between two rows; one alone must be the next logged step at most."""
    if after is None:
        return before is None or own == before
    return (before is None or before <= own) and own <= after
