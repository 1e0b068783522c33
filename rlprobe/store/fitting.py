"""Stored columns of any type, as the type that a recording's table has there.

A recording may come from another version or from a hostile hand: a column of integers is read as
numbers and never as their bits, and what stands for nothing of its kind is an error with its name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rlprobe.errors import first_line
from rlprobe.store import arrow, layout
from rlprobe.values import BoolArray, IntArray

_LAST_TIME = 253_402_300_800_000_000  # microseconds: the year 10000


class UnfitError(ValueError):
    """A column stands for nothing of the wanted kind; the message says what it is."""


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are read as numbers; nulls are none that were logged."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    tests = (
        pa.types.is_floating,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def fit(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as values of `kind`, one of the types of a recording's tables.

    Raises:
        UnfitError: its values are no such thing, or beyond its range.
    """
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        if column.type.value_type == kind and pa.types.is_string(kind):
            return column  # texts stay in their dictionary: they may be long, and few
        column = _cast(column, column.type.value_type)
    if not _stands_for(column.type, kind):
        raise UnfitError(f"{shown(column.type)} where {shown(kind)} belongs")
    if pa.types.is_float16(column.type):
        column = _cast(column, pa.float32())
    return _cast(column, kind)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow.compute as pc  # an honest recording needs none of it

    exact = not pa.types.is_floating(kind)
    options = pc.CastOptions(kind, allow_time_truncate=True, allow_float_truncate=not exact)
    options.allow_int_overflow = False
    options.allow_decimal_truncate = not exact
    try:
        return pc.cast(column, options=options)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        said = first_line(error, 120)
        raise UnfitError(f"{shown(column.type)} where {shown(kind)} belongs ({said})") from error


def _stands_for(given: pa.DataType, kind: pa.DataType) -> bool:
    types = pa.types
    number = is_number(given) and not types.is_boolean(given)
    texts = types.is_large_string(given) or types.is_string_view(given) or types.is_binary(given)
    if types.is_floating(kind):
        stands = is_number(given)
    elif types.is_integer(kind):
        stands = number
    elif types.is_timestamp(kind):
        stands = types.is_timestamp(given) or types.is_date(given)
    elif types.is_string(kind):
        stands = texts or is_number(given)
    elif types.is_boolean(kind):
        stands = types.is_integer(given)
    else:
        stands = types.is_map(given)
    return bool(stands or types.is_null(given))


def shown(kind: pa.DataType) -> str:
    """A type in a few characters, whatever it is made of."""
    text = str(kind)
    return text if len(text) <= 40 else f"{text[:39]}…"


def integers(column: pa.ChunkedArray, missing: int) -> tuple[IntArray, BoolArray]:
    """Fitted integers or timestamps, and which are there; `missing` where a null is."""
    values = arrow.integers(column)
    valid = arrow.valid(column)
    return (values, valid) if bool(valid.all()) else (np.where(valid, values, missing), valid)


def possible_steps(steps: IntArray) -> BoolArray:
    """Which steps are within the range that is computed with."""
    possible: BoolArray = (steps > -layout.MOST_STEP) & (steps < layout.MOST_STEP)
    return possible


def known_times(micros: IntArray) -> IntArray:
    """Microseconds since the epoch; 0, for not known, where no calendar has the time."""
    beyond = (micros < 0) | (micros >= _LAST_TIME)
    return np.where(beyond, 0, micros) if bool(beyond.any()) else micros
