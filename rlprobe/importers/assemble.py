"""Readings of one run -> the run, under canonical names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from rlprobe import naming, order_statistics, schema
from rlprobe.counters import is_counter
from rlprobe.importers import plain_trainer
from rlprobe.importers.attempts import attempts_of, continued, merged
from rlprobe.importers.importer import Reading, Told
from rlprobe.importers.placing import placed
from rlprobe.importers.rows import Columns
from rlprobe.store.frame import Frame, empty_frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray, together

_MIXED = "rows of many steps come again and again: read as one launch, the last value of each step"
_COUNTED_ON = "steps begin anew in each epoch: counted on from one to the next"
_FREQUENT = 0.9  # of the rows that could have it: then a key that is missing once was dropped


@dataclass(frozen=True)
class _Part:
    step: IntArray
    columns: Columns
    rank: int | None
    told: Sequence[Told] = ()
    launches: Sequence[int] = ()


def assemble(path: Path, source: str, readings: Sequence[Reading], name: str = "") -> TableRun:
    """The run that these readings are about, in the order in which they are given."""
    parts = [_part(reading) for reading in readings]
    keys = sorted({key for part in parts for key in part.columns})
    given = next((reading.framework for reading in readings if reading.framework), None)
    framework = naming.detect_framework(keys) or given
    if given and given not in (framework, "trl"):
        framework = given
    aliases = naming.every().get(framework or "generic", naming.every()["generic"])
    notes = [note for reading in readings for note in reading.notes]
    placed_events: list[Event] = []
    of_ranks = [part for part in parts if part.rank is not None]
    common = [part for part in parts if part.rank is None] or _of_first_rank(of_ranks, notes)
    steps, mixed = _steps_frame(common, aliases, notes, placed_events)
    ranks = _ranks_frame(of_ranks, aliases, placed_events)
    notes += [_MIXED] if mixed else []
    left_out = sum(reading.rows.left_out for reading in readings)
    notes += [f"{left_out:,} keys left out: more than memory allows"] if left_out else []
    frame = steps if len(steps) else ranks
    attempts = _attempts(frame.step, frame.attempt)
    algorithm = _first(reading.algorithm for reading in readings) or schema.detect_algorithm(keys)
    info = RunInfo(
        path=str(path),
        id=name or path.name,
        source=source,
        framework=framework if algorithm else plain_trainer.told_apart(framework, keys),
        algorithm=algorithm,
        settings={key: v for reading in readings for key, v in reading.settings.items()},
        attempts=attempts,
        notes=tuple(dict.fromkeys(notes)),
        unmapped=_unmapped(keys, aliases),
        unread=together(item for reading in readings for item in reading.unread),
    )
    return TableRun(
        info,
        steps,
        ranks=ranks,
        events=sorted(
            [
                *placed_events,
                *(_placed(event, attempts) for reading in readings for event in reading.events),
            ],
            key=_moment,
        ),
        rollouts=[rollout for reading in readings for rollout in reading.rollouts],
        problems=[problem for reading in readings for problem in reading.problems],
    )


def _moment(event: Event) -> tuple[int, float]:
    return event.attempt, float("inf") if event.step is None else event.step


def _part(reading: Reading) -> _Part:
    rows = reading.rows
    return _Part(rows.steps(), rows.columns(), reading.rank, reading.told, reading.launches)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _unmapped(keys: Iterable[str], aliases: naming.Aliases) -> tuple[str, ...]:
    unknown = {key for key in keys if not is_counter(key) and aliases.canonical(key) is None}
    return tuple(sorted(unknown))


def _stacked(parts: Sequence[_Part]) -> tuple[IntArray, Columns]:
    """Tables one after another, still under the keys of the files."""
    if len(parts) == 1:
        return parts[0].step, parts[0].columns
    step: IntArray = np.concatenate([part.step for part in parts]).astype(np.int64)
    columns: Columns = {}
    offset = 0
    for part in parts:
        size = len(part.step)
        for name, (values, valid) in part.columns.items():
            into = columns.setdefault(name, _blank(len(step)))
            into[0][offset : offset + size] = values
            into[1][offset : offset + size] = valid
        offset += size
    return step, columns


def _blank(size: int) -> tuple[FloatArray, BoolArray]:
    return np.full(size, np.nan), np.zeros(size, dtype=np.bool_)


def _steps_frame(
    parts: Sequence[_Part], aliases: naming.Aliases, notes: list[str], placed_events: list[Event]
) -> tuple[Frame, bool]:
    if not parts:
        return empty_frame(), False
    step, columns = _stacked(parts)
    step, counted_on = continued(step, columns)
    notes += [_COUNTED_ON] if counted_on else []
    begins = [sum(len(part.step) for part in parts[:place]) for place in range(len(parts))]
    launches = [at + row for at, part in zip(begins, parts, strict=True) for row in part.launches]
    attempt, mixed = attempts_of(step, columns, launches)
    for at, part in zip(begins, parts, strict=True):
        own = slice(at, at + len(part.step))
        placed_events += placed(part.told, step[own], attempt[own])
    step, attempt, columns = merged(step, attempt, columns)
    notes += _restored(columns, aliases)
    return frame_of(step, _canonical(step, columns, aliases), attempt=attempt), mixed


def _of_first_rank(parts: Sequence[_Part], notes: list[str]) -> list[_Part]:
    """Where every rank has a log of its own, the first rank's, which stands for the run."""
    ranks = [part.rank for part in parts if part.rank is not None and len(part.step)]
    if not ranks:
        return []
    first = min(ranks)
    notes.append(f"metrics of the run: those of rank {first}")
    own = [part for part in parts if part.rank == first]
    return [replace(part, rank=None, told=(), columns=_copied(part.columns)) for part in own]


def _copied(columns: Columns) -> Columns:
    return {key: (values.copy(), valid.copy()) for key, (values, valid) in columns.items()}


def _ranks_frame(
    parts: Sequence[_Part], aliases: naming.Aliases, placed_events: list[Event]
) -> Frame:
    if not parts:
        return empty_frame()
    parts = sorted(parts, key=lambda part: part.rank or 0)
    step, columns = _stacked(parts)
    sizes = [len(part.step) for part in parts]
    rank = np.repeat([part.rank or 0 for part in parts], sizes).astype(np.int64)
    launched = [_launches(list(own)) for _, own in groupby(parts, _rank)]
    attempt = np.concatenate(launched)
    for part, at in zip(parts, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True):
        events = placed(part.told, part.step, attempt[at : at + len(part.step)])
        placed_events += [replace(event, rank=event.rank or part.rank or 0) for event in events]
    return frame_of(step, _canonical(step, columns, aliases), rank=rank, attempt=attempt)


def _rank(part: _Part) -> int | None:
    return part.rank


def _launches(parts: Sequence[_Part]) -> IntArray:
    """The attempt of each row of one rank, over all of its logs."""
    begins = [sum(len(part.step) for part in parts[:place]) for place in range(len(parts))]
    launches = [at + row for at, part in zip(begins, parts, strict=True) for row in part.launches]
    return attempts_of(*_stacked(parts), launches)[0]


def _restored(columns: Columns, aliases: naming.Aliases) -> list[str]:
    """NaN where a framework left a key out of a row because its value was not finite."""
    notes = []
    logged = {aliases.bare(key): key for key in columns}
    for name, beside in aliases.witnesses.items():
        key, witness = logged.get(name), logged.get(beside)
        if key is None or witness is None:
            continue
        values, valid = columns[key]
        there = columns[witness][1]
        dropped = there & ~valid
        if dropped.any() and (there & valid).sum() >= _FREQUENT * there.sum():
            columns[key] = (np.where(dropped, np.nan, values), valid | dropped)
            notes.append(
                f"`{key}` is missing in {int(dropped.sum())} rows: it was not finite there"
            )
    return notes


def _canonical(step: IntArray, columns: Columns, aliases: naming.Aliases) -> Columns:
    """Under canonical names, without the keys that say the step once more."""
    repeated = {
        key
        for key, (values, valid) in columns.items()
        if is_counter(key) and bool((values[valid] == step[valid]).all())
    }
    told = {key: column for key, column in columns.items() if key not in repeated}
    return {**_second_names(told, aliases), **aliases.apply(told)}


def _second_names(columns: Columns, aliases: naming.Aliases) -> Columns:
    """What is told under a second name of a metric, where it is something else: under that name."""
    seconds: Columns = {}
    plan = aliases.plan(tuple(columns))
    best = {item.name: item.key for item in plan}
    for item in plan:
        first = best[item.name]
        if item.key in (first, item.name) or schema.metric(item.key) is not None:
            continue
        (values, valid), (other, logged) = (
            aliases.apply({key: columns[key]})[item.name] for key in (item.key, first)
        )
        both = valid & logged
        if not np.allclose(values[both], other[both], rtol=1e-6, equal_nan=True):
            seconds[item.key] = columns[item.key]
    return seconds


def _placed(event: Event, attempts: Sequence[Attempt]) -> Event:
    """The end of a run is that of the launch that ended at its step, else of the last one."""
    if event.kind not in ("crash", "halted") or len(attempts) < 2:
        return event
    ends = [item.number for item in attempts if item.last_step == event.step]
    return replace(event, attempt=ends[-1] if ends else attempts[-1].number)


def _attempts(step: IntArray, attempt: IntArray) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            int(number),
            first_step=int(step[attempt == number].min()),
            last_step=int(step[attempt == number].max()),
        )
        for number in order_statistics.distinct(attempt)
    )
