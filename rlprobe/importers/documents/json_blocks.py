"""Many JSON lines at once -> columns, through pyarrow; whatever it refuses is read line by line.

A block is refused when one of its lines is no object, when one key holds numbers here and text
there, or when a key stands twice in an object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlprobe.importers.numbers import number
from rlprobe.importers.steps import step_number
from rlprobe.values import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

WORTHWHILE_BYTES = 2 * 1024 * 1024  # below that, loading pyarrow costs more than it saves
_DEEPEST = 8
_MOST_COLUMNS = 2000


@dataclass(frozen=True)
class Block:
    """Rows as columns of values and validity; None where every row has the value."""

    size: int
    columns: dict[str, tuple[FloatArray, BoolArray | None]]
    steps: IntArray | None
    has_step: BoolArray | None


def read(block: bytes, step_key: str | None, by_row: Collection[str] = ()) -> Block | None:
    """The rows of a block of whole lines; None if they have to be read one by one.

    Args:
        block: the lines.
        step_key: the key of the step, if there is one.
        by_row: keys that say what kind of row it is: with them rows are read one by one.
    """
    import pyarrow as pa
    from pyarrow import json as pa_json

    try:
        table = pa_json.read_json(pa.BufferReader(block))
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if table.num_columns > _MOST_COLUMNS or any(name in by_row for name in table.column_names):
        return None
    columns = dict(_flat(table))
    steps, has_step = None, None
    if step_key is not None:
        if step_key not in table.column_names:
            return None
        steps, has_step = _steps(table.column(step_key))
    return Block(table.num_rows, columns, steps, has_step)


def _flat(table: pa.Table) -> Iterator[tuple[str, tuple[FloatArray, BoolArray | None]]]:
    for name in table.column_names:
        yield from _column(name, table.column(name), 0)


def _column(
    name: str, column: Any, depth: int
) -> Iterator[tuple[str, tuple[FloatArray, BoolArray | None]]]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_struct(kind) and depth < _DEEPEST:
        parts = column.combine_chunks()
        for field, child in zip(kind, parts.flatten(), strict=True):
            yield from _column(f"{name}/{field.name}", child, depth + 1)
    elif pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        yield name, _numbers(column)
    elif pa.types.is_string(kind):
        found = _spelled(column)
        if found is not None:
            yield name, found


def _numbers(column: Any) -> tuple[FloatArray, BoolArray | None]:
    import pyarrow as pa

    doubles = column.cast(pa.float64(), safe=False) if column.type != pa.float64() else column
    if not column.null_count:
        return np.asarray(doubles.to_numpy(), dtype=np.float64), None
    valid = np.asarray(column.is_valid(), dtype=np.bool_)
    return np.asarray(doubles.fill_null(float("nan")).to_numpy(zero_copy_only=False)), valid


def _spelled(column: Any) -> tuple[FloatArray, BoolArray] | None:
    """Numbers that were written as text; None if none was."""
    found = [number(text) for text in column.to_pylist()]
    valid = np.array([value is not None for value in found], dtype=np.bool_)
    if not valid.any():
        return None
    values = np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    return values, valid


def _steps(column: Any) -> tuple[IntArray, BoolArray]:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        valid = np.asarray(column.is_valid(), dtype=np.bool_)
        filled = column.fill_null(0) if column.null_count else column
        return np.asarray(filled.to_numpy(), dtype=np.int64), valid
    found = [step_number(value) for value in column.to_pylist()]
    valid = np.array([step is not None for step in found], dtype=np.bool_)
    return np.array([step or 0 for step in found], dtype=np.int64), valid
