"""Metrics in Parquet files, such as W&B's exports of a history."""

from __future__ import annotations

import numpy as np

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.attempts import merged
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.importers.source import Source
from rlprobe.importers.step_axis import AXES
from rlprobe.importers.steps import STEP_KEYS, ranked
from rlprobe.values import BoolArray, FloatArray, IntArray

_PARQUET = b"PAR1"
_OWN = frozenset({"_step", "_runtime", "_timestamp"})
_MOST = float(2**62)


class MetricsParquet(Importer):
    """Parquet files of metrics: one row per logged step, one column per metric.

    What `run.download_history_exports()` of W&B writes, and tables of one's own. A null is not
    logged; a NaN was NaN. The step is the trainer's own where a column holds it, else `step` or
    `_step`; a row without one belongs to the step before it. Columns that hold no numbers are left
    out.
    """

    name = "parquet"
    description = "Parquet files of metrics with a column for the step (W&B history exports)"
    priority = 40
    step_keys = (*AXES, *STEP_KEYS)

    def recognises(self, source: Source) -> bool:
        """Parquet with a column that can be the step."""
        if not source.head.startswith(_PARQUET):
            return False
        from rlprobe.store.foreign_parquet import ForeignParquet

        return bool(_axes(ForeignParquet(source.path).numbers))

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        from rlprobe.store.foreign_parquet import ForeignParquet

        columns = ForeignParquet(source.path)
        read = columns.columns(columns.numbers)
        axis = next((name for name in _axes(read) if read[name][1].any()), None)
        if axis is None:
            said = "; ".join(problem.message for problem in columns.problems) or "all are null"
            raise EmptyRunError(f"Couldn't find steps in '{source.path}': {said}")
        steps, known = _steps(*read[axis], source)
        metrics = _metrics(read, axis, known)
        if not metrics:
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no column of numbers")
        notes = [f"step read from {axis}"] if axis not in {"step", "_step"} else []
        launch = np.append(0, np.cumsum(np.diff(steps) < 0)).astype(np.int64)
        steps, _, metrics = merged(steps, launch, metrics)
        rows = ColumnTable(steps, metrics)
        return [Reading(rows=rows, notes=notes, problems=columns.problems)]


def _axes(names: object) -> list[str]:
    present = list(names) if isinstance(names, tuple | dict) else []
    usual = [name for name in MetricsParquet.step_keys if name in present]
    return list(dict.fromkeys([*usual, *ranked(present)]))


def _steps(values: FloatArray, valid: BoolArray, source: Source) -> tuple[IntArray, BoolArray]:
    """The step of each row from the first known one on, and which rows these are."""
    good = valid & np.isfinite(values) & (np.abs(values) < _MOST)
    if not good.any():
        raise InputError(f"Couldn't read '{source.path}': no step is a number")
    last = np.maximum.accumulate(np.where(good, np.arange(len(values)), -1))
    known: BoolArray = last >= 0
    return values[last[known]].astype(np.int64), known


def _metrics(read: Columns, axis: str, known: BoolArray) -> Columns:
    return {
        name: (values[known], valid[known])
        for name, (values, valid) in read.items()
        if name != axis and name not in _OWN and valid.any()
    }
