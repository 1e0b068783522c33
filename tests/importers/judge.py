"""Whether a log was read as it was written: every number under its name and step."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from rlprobe import naming
from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.store.run import Run
from tests.importers.tables import Cell, Table

EXACT, SAID, REFUSED = "exact", "said", "refused"
OVERSAID, MUTE, LOST, WRONG = "oversaid", "mute", "LOST", "WRONG"
# What a shape tells beside the table: counters, places, and what its prefix has.
_BESIDE = "epoch step global_step iteration train_step training_step pid v_num step_time date time "
_BESIDE += "done timestamp total_timesteps training_iteration"


@dataclass
class Judgement:
    """What became of a log.

    Attributes:
        outcome: `exact`; `oversaid`, the same, but lines are said to be unread; `said`, numbers
            that are missing, their rows counted; `refused`, the whole file, with an error that
            quotes a line of it; `mute`, the same without; `LOST`, missing without a word; `WRONG`.
        right, missing: how many numbers.
        faults: the first of them, in words.
    """

    outcome: str
    right: int = 0
    missing: int = 0
    faults: list[str] = field(default_factory=list)


def judge(path: Path, table: Table, *, beside: bool = False) -> Judgement:
    """Read a log by the public way and compare it with what was written.

    Args:
        beside: whether the log holds other numbers beside the table.
    """
    total = sum(len(row) for row in table.rows)
    try:
        runs = open_runs(path)
    except InputError as error:
        quotes = _quotes(str(error), path.read_text(encoding="utf-8"))
        return Judgement(REFUSED if quotes else MUTE, missing=total, faults=[str(error)])
    if len(runs) != 1:
        return Judgement(WRONG, faults=[f"{len(runs)} runs"])
    return _compared(runs[0], table, beside=beside)


def _compared(run: Run, table: Table, *, beside: bool) -> Judgement:
    aliases = naming.every()[run.info.framework or "generic"]
    named = {key: _names(key, aliases) for key in table.rows[0]}
    read = _read(run)
    faults = _wrong(read, table, named, aliases, beside=beside)
    missing = [
        (step, f"{key} at {step}: {cell.text} not read")
        for step, row in zip(table.steps, table.rows, strict=True)
        for key, cell in row.items()
        if not any(name in read.get(step, {}) for name in _columns(read, named[key]))
        and cell.value != aliases.sentinels.get(aliases.bare(key))
    ]
    right = sum(len(row) for row in table.rows) - len(missing)
    if faults:
        return Judgement(WRONG, right, len(missing), faults)
    unread = getattr(run.info, "unread", ())
    said = sum(item.count for item in unread)
    if not missing:
        return Judgement(OVERSAID if said else EXACT, right, faults=[str(item) for item in unread])
    enough = said >= len({step for step, _ in missing})
    faults = [fault for _, fault in missing] + [str(item) for item in unread]
    return Judgement(SAID if enough else LOST, right, len(missing), faults)


def _quotes(message: str, text: str) -> bool:
    """Whether an error shows some line of the log that it is about."""
    lines = (" ".join(line.split())[:24] for line in text.splitlines())
    shown = " ".join(message.split())
    return any(len(line) > 5 and line in shown for line in lines)


def _read(run: Run) -> dict[int, dict[str, float]]:
    """The numbers that were read, by step and name, the last of each."""
    frame = run.steps if len(run.steps) else run.ranks
    read: dict[int, dict[str, float]] = {int(step): {} for step in frame.step}
    for name in frame.names:
        values, logged = frame.load(name)
        for step, value, there in zip(frame.step, values, logged, strict=True):
            if there:
                read[int(step)][name] = float(value)
    return read


def _names(key: str, aliases: naming.Aliases) -> frozenset[str]:
    """The names under which a key may be found."""
    bare = re.sub(r"\s?\([^()]*\)$", "", key)  # without the unit that stands in it
    forms = {key, bare, key.rstrip("."), key.replace(" ", "_").rstrip("."), naming.normal(key)}
    tables = (aliases, naming.every()["generic"])
    known = {table.canonical(form) for table in tables for form in forms}
    return frozenset({*forms, *(name for name in known if name)})


def _columns(read: dict[int, dict[str, float]], names: frozenset[str]) -> set[str]:
    every = {name for row in read.values() for name in row}
    return {name for name in every if _is_one_of(name, names)}


def _is_one_of(name: str, names: frozenset[str]) -> bool:
    """By its whole name, or by the end of one that has its section before it."""
    if name in names or name.startswith("eval/"):
        return name in names
    return any(name.endswith(f"/{each}") for each in names)


def _wrong(
    read: dict[int, dict[str, float]],
    table: Table,
    named: dict[str, frozenset[str]],
    aliases: naming.Aliases,
    *,
    beside: bool,
) -> list[str]:
    written = dict(zip(table.steps, table.rows, strict=True))
    faults = []
    for step, row in read.items():
        if step not in written:
            faults += [f"invented: step {step} with {row}"] if row else []
            continue
        for name, value in row.items():
            keys = [key for key, names in named.items() if _is_one_of(name, names)]
            if not keys and (beside or _is_beside(name, value, written[step])):
                continue
            if not any(_same(value, written[step][key], aliases, key) for key in keys):
                texts = [written[step][key].text for key in keys]
                faults.append(f"{name} at {step}: read {value}, written {texts or 'nowhere'}")
    return faults


def _is_beside(name: str, value: float, row: dict[str, Cell]) -> bool:
    """What a shape has beside the table: a counter, or the spread of a number."""
    spreads = {cell.spread for cell in row.values()}
    return naming.normal(name.rpartition("/")[2]) in _BESIDE.split() or value in spreads


def _same(value: float, cell: Cell, aliases: naming.Aliases, key: str) -> bool:
    factor, offset = aliases.transforms.get(aliases.bare(key), (1.0, 0.0))
    return any(
        (math.isnan(value) and math.isnan(wanted))
        or value == wanted
        or abs(value - wanted) <= 1e-9 * abs(wanted)
        for wanted in (cell.value, cell.value * factor + offset)
    )
