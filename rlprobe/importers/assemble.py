"""Readings of one run -> the run, under canonical names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlprobe import naming, order_statistics, schema
from rlprobe.importers.attempts import attempts_of, continued, merged
from rlprobe.importers.importer import Reading
from rlprobe.importers.rows import Columns
from rlprobe.importers.steps import is_counter
from rlprobe.store.frame import Frame, empty_frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray

_MIXED = "rows of many steps come again and again: read as one launch, the last value of each step"
_COUNTED_ON = "steps begin anew in each epoch: counted on from one to the next"
_FREQUENT = 0.9  # of the rows that could have it: then a key that is missing once was dropped


@dataclass(frozen=True)
class _Part:
    step: IntArray
    columns: Columns
    rank: int | None


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
    steps, mixed = _steps_frame([part for part in parts if part.rank is None], aliases, notes)
    ranks = _ranks_frame([part for part in parts if part.rank is not None], aliases)
    notes += [_MIXED] if mixed else []
    left_out = sum(reading.rows.left_out for reading in readings)
    notes += [f"{left_out:,} keys left out: more than memory allows"] if left_out else []
    frame = steps if len(steps) else ranks
    attempts = _attempts(frame.step, frame.attempt)
    info = RunInfo(
        path=str(path),
        id=name or path.name,
        source=source,
        framework=framework,
        algorithm=_first(reading.algorithm for reading in readings)
        or schema.detect_algorithm(keys),
        settings={key: v for reading in readings for key, v in reading.settings.items()},
        attempts=attempts,
        notes=tuple(dict.fromkeys(notes)),
        unmapped=_unmapped(keys, aliases),
    )
    return TableRun(
        info,
        steps,
        ranks=ranks,
        events=[_placed(event, attempts) for reading in readings for event in reading.events],
        rollouts=[rollout for reading in readings for rollout in reading.rollouts],
        problems=[problem for reading in readings for problem in reading.problems],
    )


def _part(reading: Reading) -> _Part:
    return _Part(reading.rows.steps(), reading.rows.columns(), reading.rank)


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
    parts: Sequence[_Part], aliases: naming.Aliases, notes: list[str]
) -> tuple[Frame, bool]:
    if not parts:
        return empty_frame(), False
    step, columns = _stacked(parts)
    step, counted_on = continued(step, columns)
    notes += [_COUNTED_ON] if counted_on else []
    attempt, mixed = attempts_of(step, columns)
    step, attempt, columns = merged(step, attempt, columns)
    notes += _restored(columns, aliases)
    return frame_of(step, _canonical(step, columns, aliases), attempt=attempt), mixed


def _ranks_frame(parts: Sequence[_Part], aliases: naming.Aliases) -> Frame:
    if not parts:
        return empty_frame()
    step, columns = _stacked(parts)
    sizes = [len(part.step) for part in parts]
    rank = np.repeat([part.rank or 0 for part in parts], sizes).astype(np.int64)
    attempt = np.concatenate([attempts_of(part.step, part.columns)[0] for part in parts])
    return frame_of(step, _canonical(step, columns, aliases), rank=rank, attempt=attempt)


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
    told = {
        key
        for key, (values, valid) in columns.items()
        if is_counter(key) and bool((values[valid] == step[valid]).all())
    }
    return aliases.apply({key: column for key, column in columns.items() if key not in told})


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
