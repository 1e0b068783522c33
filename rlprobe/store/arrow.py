"""Arrow arrays from and to NumPy and lists, buffer by buffer.

`pyarrow.array` and `to_numpy` import pandas wherever it is installed: half a second inside every
training process and every scan, and impossible while an interpreter shuts down. These do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlprobe.values import BoolArray, FloatArray, IntArray

MICROSECONDS = pa.timestamp("us", tz="UTC")


def from_numpy(values: NDArray[Any], kind: pa.DataType, valid: BoolArray | None = None) -> pa.Array:
    """A fixed-width array (integers, doubles, timestamps as int64) without a copy of the values.

    Args:
        valid: False is null; None where none is.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(values)])


def _bitmap(valid: BoolArray | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _known(values: Sequence[Any]) -> BoolArray:
    return np.fromiter((value is not None for value in values), np.bool_, len(values))


def from_list(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of any type of the recording's tables; None is null."""
    if pa.types.is_string(kind):
        return _strings(values)
    if pa.types.is_map(kind):
        return _maps(values, kind)
    valid = _known(values)
    if pa.types.is_boolean(kind):
        bits = np.fromiter((bool(value) for value in values), np.bool_, len(values))
        packed = pa.py_buffer(np.packbits(bits, bitorder="little"))
        return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), packed])
    width = {4: np.int32, 8: np.int64}[kind.bit_width // 8]
    wanted = np.float64 if pa.types.is_floating(kind) else width
    filled = [0 if value is None else value for value in values]
    return from_numpy(np.array(filled, dtype=wanted), kind, valid)


def _strings(values: Sequence[str | None]) -> pa.Array:
    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = _offsets([len(item) for item in encoded])
    buffers = [_bitmap(_known(values)), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _maps(values: Sequence[Sequence[tuple[str, float]] | None], kind: pa.DataType) -> pa.Array:
    entries = [entry for value in values for entry in value or ()]
    keys = _strings([key for key, _ in entries])
    numbers = from_list([number for _, number in entries], pa.float64())
    offsets = _offsets([len(value or ()) for value in values])
    pairs = pa.StructArray.from_arrays([keys, numbers], fields=[kind.key_field, kind.item_field])
    buffers = [_bitmap(_known(values)), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[pairs])


def _offsets(lengths: Sequence[int]) -> NDArray[np.int32]:
    return np.cumsum([0, *lengths]).astype(np.int32)


def table_of(rows: Sequence[Mapping[str, Any]], fields: Sequence[pa.Field]) -> pa.Table:
    """Rows of dictionaries as a table; a missing key is null."""
    arrays = [from_list([row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.table(arrays, schema=pa.schema(fields))


def integers(column: pa.ChunkedArray) -> IntArray:
    """An int32, int64 or timestamp column as int64; nulls come as whatever lies under them."""
    kind = np.int32 if column.type.bit_width == 32 else np.int64
    return _joined([_values(chunk, kind) for chunk in column.chunks], kind).astype(
        np.int64, copy=False
    )


def floats(column: pa.ChunkedArray) -> tuple[FloatArray, BoolArray]:
    """A double column as values and validity. Under a null lies NaN or anything else."""
    values = _joined([_values(chunk, np.float64) for chunk in column.chunks], np.float64)
    return values, valid(column)


def valid(column: pa.ChunkedArray) -> BoolArray:
    """Which values of a column are there."""
    return _joined([_validity(chunk) for chunk in column.chunks], np.bool_)


def flags(array: pa.Array) -> BoolArray:
    """An array of booleans without nulls."""
    if not len(array):
        return np.zeros(0, dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def doubles(array: pa.Array) -> FloatArray:
    """An array of doubles without nulls."""
    return _values(array, np.float64)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; equal texts of a dictionary are one object.

    A timestamp comes in its own unit since the epoch: as a datetime it would make pyarrow import
    pandas.
    """
    if pa.types.is_timestamp(column.type):
        return [
            value if there else None
            for value, there in zip(integers(column).tolist(), valid(column).tolist(), strict=True)
        ]
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        words = [*chunk.dictionary.to_pylist(), None]
        values += [words[-1 if place is None else place] for place in chunk.indices.to_pylist()]
    return values


def _joined(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


def _values(chunk: pa.Array, kind: Any) -> NDArray[Any]:
    buffer = chunk.buffers()[1]
    if buffer is None:  # a column of nulls only
        return np.zeros(len(chunk), dtype=kind)
    return np.frombuffer(buffer, kind)[chunk.offset : chunk.offset + len(chunk)]


def _validity(chunk: pa.Array) -> BoolArray:
    if chunk.null_count == 0:
        return np.ones(len(chunk), dtype=np.bool_)
    bitmap = chunk.buffers()[0]
    if bitmap is None:
        return np.zeros(len(chunk), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[chunk.offset : chunk.offset + len(chunk)].astype(np.bool_)
