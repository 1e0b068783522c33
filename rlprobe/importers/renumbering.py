"""Rows numbered by another counter of theirs, because the user asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlprobe.importers import steps
from rlprobe.importers.importer import Reading
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.values import BoolArray, FloatArray, IntArray

_MOST = float(2**62)


def numbered_by(readings: Sequence[Reading], wanted: str, path: Path) -> None:
    """Number the rows of these readings by the counter of this name.

    A row without it belongs to the row before; those before the first that has it are left out.

    Raises:
        NoSuchCounterError: no reading that holds rows has such a counter; it says which there are.
    """
    numbered = 0
    names: set[str] = set()
    full = [reading for reading in readings if len(reading.rows)]
    for reading in full:
        if reading.step_key and steps.best_step_key([reading.step_key], wanted):
            reading.notes = [f"step read from {reading.step_key}", *reading.notes]
            numbered += 1
            continue
        at, columns = reading.rows.steps(), reading.rows.columns()
        names.update(columns, [reading.step_key] if reading.step_key else [])
        key = steps.best_step_key(columns, wanted)
        rare = key is None or 2 * int(columns[key][1].sum()) < len(at)
        if rare and not reading.step_key and steps.is_step(wanted):
            # a format that has one step, and no name for it that could be told
            reading.rows = ColumnTable(at, columns)
            reading.notes = [f"no counter named {wanted}: numbered by the step", *reading.notes]
            numbered += 1
            continue
        filled = None if key is None else _filled(*columns[key])
        if key is None or filled is None:
            reading.rows = ColumnTable(at, columns)
            continue
        reading.rows = _taken(filled, columns)
        reading.step_key = key
        before = int((~filled[1]).sum())
        note = [f"{before:,} rows before the first `{key}` left out"] if before else []
        reading.notes = [f"step read from {key}", *reading.notes, *note]
        numbered += 1
    if full and not numbered:
        raise steps.NoSuchCounterError(path, wanted, names)


def _filled(values: FloatArray, valid: BoolArray) -> tuple[IntArray, BoolArray] | None:
    """The step of each row, carried on, and whether there is one; None if none is a number."""
    with np.errstate(invalid="ignore"):
        good = valid & np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < _MOST)
    if not good.any():
        return None
    last = np.maximum.accumulate(np.where(good, np.arange(len(values)), -1))
    known: BoolArray = last >= 0
    numbered = np.where(known, values[last], 0).astype(np.int64)
    return numbered, known


def _taken(found: tuple[IntArray, BoolArray], columns: Columns) -> ColumnTable:
    numbered, known = found
    kept = {name: (values[known], valid[known]) for name, (values, valid) in columns.items()}
    return ColumnTable(numbered[known], kept)
