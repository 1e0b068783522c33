"""Shards of `events`, `samples` or `workers` as tables of the recording's own types.

Texts stay in their dictionaries: a shard of a few kilobytes may hold one long text a million times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlprobe import schema
from rlprobe.errors import first_line
from rlprobe.numbers import plural, size
from rlprobe.store import arrow, fitting, layout, limits
from rlprobe.store.layout import ShardName
from rlprobe.store.shard_file import ShardError, ShardFile
from rlprobe.values import BoolArray, IntArray

_OF_THE_NAME = ("attempt", "rank")  # keys that a shard's name tells as well
_NOT_NULL = {
    "events": ("kind",),
    "samples": ("step", "group_id", "sample_id"),
    "workers": ("step", "role", "worker"),
}

Remark = Callable[[str], None]


def read(table: str, name: ShardName, file: ShardFile, remark: Remark) -> pa.Table:
    """The rows of a shard, with exactly the table's columns.

    Raises:
        ShardError: it cannot be read, lacks what tells its rows apart, or is too large.
    """
    try:
        texts = [column for column, kind in file.types.items() if _is_text(kind)]
        stored = file.dictionary_encoded(texts)
        limits.text(sum(map(_text_bytes, stored.columns)), file.size)
    except limits.TooLargeError as error:
        raise ShardError(f"{error}. {limits.HINT}") from error
    return _fitted(table, name, stored, remark)


def steps(file: ShardFile) -> IntArray:
    """The step of each row of a shard, without a look at the rest.

    Raises:
        ShardError: it cannot be read, or is too large.
    """
    if "step" not in file.types:
        raise ShardError("no column 'step'")
    try:
        return fitting.integers(fitting.fit(file.read(["step"]).column(0), pa.int64()), 0)[0]
    except fitting.UnfitError as error:
        raise ShardError(f"column 'step': {error}") from error


def counted(stored: pa.Table, first: str, second: str) -> list[tuple[tuple[str, str], int]]:
    """How many rows have which two texts."""
    codes, words = [], []
    for name in (first, second):
        column = stored.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        words.append(column.chunk(0).dictionary.to_pylist() if column.num_chunks else [])
        parts = [chunk.indices.cast(pa.int64()) for chunk in column.chunks]
        codes.append(arrow.integers(pa.chunked_array(parts, pa.int64())))
    pairs, counts = np.unique(np.stack(codes), axis=1, return_counts=True)
    return [
        ((words[0][one], words[1][other]), int(count))
        for one, other, count in zip(*pairs.tolist(), counts.tolist(), strict=True)
    ]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_bytes(column: pa.ChunkedArray) -> int:
    """What a column takes once its texts are out of their dictionary."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(_lengths(column).sum())


def _lengths(column: pa.ChunkedArray) -> IntArray:
    """Bytes of each text of a column in dictionaries; 0 for null."""
    parts = [_lengths_of(chunk) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _lengths_of(chunk: pa.DictionaryArray) -> IntArray:
    words = chunk.dictionary
    width = np.int64 if pa.types.is_large_string(words.type) else np.int32
    if not len(words) or not len(chunk):
        return np.zeros(len(chunk), dtype=np.int64)
    ends = np.frombuffer(words.buffers()[1], width)[words.offset : words.offset + len(words) + 1]
    indices = chunk.indices if chunk.indices.type == pa.int32() else chunk.indices.cast(pa.int32())
    places = arrow.integers(pa.chunked_array([indices]))
    known = arrow.valid(pa.chunked_array([indices]))
    lengths = np.diff(ends.astype(np.int64))
    return np.where(known, lengths[np.where(known, places, 0)], 0)


def _not_too_long(table: str, fitted: pa.Table, remark: Remark) -> BoolArray:
    """Which rows have no text that is longer than any of a rollout."""
    fine = np.ones(len(fitted), dtype=np.bool_)
    if table != "samples" or limits.lifted():
        return fine
    for column in fitted.columns:
        if pa.types.is_dictionary(column.type):
            fine &= _lengths(column) <= limits.MOST_TEXT
    lost = len(fine) - int(np.count_nonzero(fine))
    if lost:
        most = size(limits.MOST_TEXT)
        remark(f"{plural(lost, 'row')} left out: a text of more than {most}. {limits.HINT}")
    return fine


def _fitted(table: str, name: ShardName, stored: pa.Table, remark: Remark) -> pa.Table:
    columns = []
    there = np.ones(len(stored), dtype=np.bool_)
    for field in schema.arrow_fields(table):
        column = _column(table, name, stored, field, remark)
        if field.name == "step":
            column = _possible_steps(column, field, remark)
        if field.name in _NOT_NULL[table]:
            there &= arrow.valid(column)
        columns.append(column)
    fitted = pa.table(columns, [field.name for field in schema.arrow_fields(table)])
    try:
        fitted.validate(full=True)  # lengths, places and texts are as they may be
    except (pa.ArrowException, ValueError) as error:
        raise ShardError(f"damaged ({first_line(error)})") from error
    lost = len(there) - int(np.count_nonzero(there))
    if lost:
        remark(f"{plural(lost, 'row')} left out: without {', '.join(_NOT_NULL[table])} that can be")
    there &= _not_too_long(table, fitted, remark)
    return fitted if bool(there.all()) else fitted.take(pa.array(np.flatnonzero(there)))


def _column(
    table: str, name: ShardName, stored: pa.Table, field: pa.Field, remark: Remark
) -> pa.ChunkedArray:
    """One column in its type; where it cannot be had, what stands for not known."""
    rows = len(stored)
    if field.name not in stored.schema.names:
        problem = "is not there"
    else:
        try:
            column = fitting.fit(stored.column(field.name), field.type)
            return _key(column, field, name, rows, remark)
        except fitting.UnfitError as error:
            problem = f"left out: {error}"
    if field.name in _NOT_NULL[table]:
        raise ShardError(f"column '{field.name}' {problem}")
    remark(f"column '{field.name}' {problem}")
    if field.name in _OF_THE_NAME:
        return _same(getattr(name, field.name), rows, field.type)
    if field.name == "time":
        return _same(layout.NO_TIME, rows, field.type)
    return pa.chunked_array([pa.nulls(rows, field.type)])


def _key(
    column: pa.ChunkedArray, field: pa.Field, name: ShardName, rows: int, remark: Remark
) -> pa.ChunkedArray:
    if field.name == "time":
        micros = fitting.integers(column, layout.NO_TIME)[0]
        return _array(fitting.known_times(micros), field.type)
    if field.name not in _OF_THE_NAME:
        return column
    own = getattr(name, field.name)
    values, valid = fitting.integers(column, own)
    if field.name == "rank" and bool(valid.all()):
        return column
    if bool((values == own).all()):
        return _array(values.astype(np.int32), field.type)
    remark(f"column '{field.name}' is not as its name says, which counts")
    return _same(own, rows, field.type)


def _possible_steps(column: pa.ChunkedArray, field: pa.Field, remark: Remark) -> pa.ChunkedArray:
    """Steps; null, for not told, where one cannot be."""
    values, valid = fitting.integers(column, 0)
    beyond = ~fitting.possible_steps(values)
    if not bool(beyond.any()):
        return column
    remark(f"{plural(int(np.count_nonzero(beyond)), 'step')} beyond what can be computed with")
    return pa.chunked_array([arrow.from_numpy(values, field.type, valid & ~beyond)])


def _same(value: int, rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    width = np.int32 if kind.bit_width == 32 else np.int64
    return _array(np.full(rows, value, dtype=width), kind)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([arrow.from_numpy(values, kind)])
