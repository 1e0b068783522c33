"""Who is missing from a collective that timed out, as the watchdogs of the ranks tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlprobe.detector import Event, RunContext

KIND = "collective_timeout"
_NO_COUNT = 10**15  # what an older watchdog prints for a number that was never set

Group: TypeAlias = "Sequence[tuple[int, Mapping[str, Any]]]"  # ranks, and what each says


@dataclass(frozen=True, slots=True)
class Absence:
    """Ranks that did not come to a collective in which others waited until they gave up.

    Attributes:
        step: at which it hung; None where none is known.
        heard: how many ranks told of it.
        reached: the number of the last collective that the missing ranks had begun; None where
            they said nothing at all.
        others: the number that the others had begun.
        operation: what the others waited in.
    """

    ranks: tuple[int, ...]
    step: int | None
    attempt: int
    heard: int
    reached: int | None = None
    others: int | None = None
    operation: str = ""


def absences(run: RunContext) -> Iterator[Absence]:
    """For each launch that hung, who was missing, where the messages tell."""
    of_launch: dict[int, list[Event]] = defaultdict(list)
    for event in run.events(KIND):
        of_launch[event.attempt].append(event)
    for attempt, events in sorted(of_launch.items()):
        steps = [event.step for event in events if event.step is not None]
        last = max(steps, default=None)
        told = [event for event in events if event.step in (None, last)]
        yield from _of_hang(run, told, last, attempt)


def _of_hang(
    run: RunContext, events: Sequence[Event], step: int | None, attempt: int
) -> Iterator[Absence]:
    reports = [(int(event.data.get("rank", max(event.rank, 0))), event.data) for event in events]
    operation = next((str(data["op"]) for _, data in reports if data.get("op")), "")
    heard = len({rank for rank, _ in reports})
    late = list(_behind(reports))
    for ranks, reached, others in late:
        yield Absence(ranks, step, attempt, heard, reached, others, operation)
    if not late:
        ranks = _never_heard(reports, _world_size(run, attempt))
        if ranks:
            yield Absence(ranks, step, attempt, heard, operation=operation)


def _behind(reports: Group) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Of each process group the ranks that have begun fewer collectives than most of it."""
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, data in reports:
        begun = data.get("enqueued")
        if isinstance(begun, int) and -1 <= begun < _NO_COUNT:
            group = groups[f"{data.get('group')} {data.get('group_name', '')}"]
            group[rank] = max(begun, group.get(rank, -1))
    for begun_by in groups.values():
        first, last = min(begun_by.values()), max(begun_by.values())
        ranks = tuple(sorted(rank for rank, begun in begun_by.items() if begun == first))
        if first < last and 2 * len(ranks) <= len(begun_by):
            yield ranks, first, last


def _never_heard(reports: Group, world: int) -> tuple[int, ...]:
    """Ranks that no message is of, where the others wait in one operation: at most half as many."""
    waiting = {rank for rank, data in reports if "seq" in data}
    operations = {(data.get("seq"), data.get("op")) for _, data in reports if data.get("op")}
    if len(operations) != 1 or not waiting:
        return ()
    heard = {rank for rank, _ in reports}
    size = max(world, max(heard) + 1)
    ranks = tuple(rank for rank in range(size) if rank not in heard)
    return ranks if 2 * len(ranks) <= len(heard) else ()


def _world_size(run: RunContext, attempt: int) -> int:
    return next((item.world_size for item in run.attempts if item.number == attempt), 1)
