"""Parquet files that rlprobe did not write: columns as NumPy arrays or lists, bounded.

A few kilobytes of Parquet can stand for billions of rows, or for one long text over and over. Rows
are counted before anything is read, texts stay in their dictionary, and batches are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rlprobe.errors import InputError, first_line
from rlprobe.store import arrow, checksum, limits, parquet_file
from rlprobe.values import BoolArray, FloatArray, Problem

_BATCH = 1024
_BATCH_OF_LISTS = 128  # texts in lists come out of their dictionary


class ForeignParquet:
    """One Parquet file.

    Attributes:
        rows: number of rows.
        numbers: columns of numbers (integers, floats, booleans), in order.
        texts: columns of texts, or of lists and objects that may stand for one (conversations).
        problems: columns that could not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        try:
            with path.open("rb") as file:
                limits.footer(checksum.footer_length(file))
            self._file = parquet_file.opened(path)
            self._size = path.stat().st_size
            self.rows: int = self._file.metadata.num_rows
            limits.columns(self._file.metadata.num_columns)
            limits.rows_of_numbers(self.rows, self._size)
            types = {field.name: field.type for field in self._file.schema_arrow}
        except limits.TooLargeError as error:
            raise self._too_large(error) from error
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise self._unreadable(error) from error
        self.numbers = tuple(name for name, kind in types.items() if _is_number(kind))
        self.texts = tuple(name for name, kind in types.items() if _is_text(kind))
        self._flat_texts = [name for name in self.texts if not pa.types.is_nested(types[name])]

    def _unreadable(self, error: BaseException) -> InputError:
        return InputError(f"Couldn't read '{self.path}' as Parquet: {first_line(error)}")

    def _too_large(self, error: limits.TooLargeError) -> InputError:
        return InputError(f"Couldn't read '{self.path}': {error}", hint=limits.HINT)

    def columns(self, names: Sequence[str]) -> dict[str, tuple[FloatArray, BoolArray]]:
        """Columns of numbers as doubles, with their validity (False is null).

        One that is damaged is left out, and a problem; InputError if all are.
        """
        try:
            limits.cells_at_once(self.rows, len(names))
        except limits.TooLargeError as error:
            raise self._too_large(error) from error
        columns = {}
        for name in names:
            try:
                columns[name] = _doubles(self._column(name))
            except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
                if not columns and name == names[-1]:
                    raise self._unreadable(error) from error
                words = f"column '{name}' left out: {first_line(error)}"
                self.problems.append(Problem(str(self.path), words))
        return columns

    def _column(self, name: str) -> pa.ChunkedArray:
        column = self._file.read([name], use_threads=False).column(0)
        if len(column) != self.rows:
            raise ValueError(f"damaged: it holds {len(column):,} of {self.rows:,} rows")
        return column

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
        """Rows in batches, each as one list of Python values per column; null is None."""
        texts = [name for name in names if name in self._flat_texts]
        rows = _BATCH if len(texts) == len(names) else _BATCH_OF_LISTS
        read = 0
        try:
            # Opened anew: which texts stay in their dictionary is decided on opening.
            file = parquet_file.opened(self.path, texts)
            for batch in file.iter_batches(rows, columns=list(names), use_threads=False):
                read += batch.nbytes
                limits.memory(read, self._size)
                batch.validate(full=True)  # a damaged page may point behind its dictionary
                yield {
                    name: _values(column)
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
        except limits.TooLargeError as error:
            raise self._too_large(error) from error
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise self._unreadable(error) from error


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_list, pa.types.is_struct)
    return any(test(kind) for test in tests)


def _doubles(column: pa.ChunkedArray) -> tuple[FloatArray, BoolArray]:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return arrow.floats(column.cast(pa.float64(), safe=False))


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values; equal texts of a dictionary are one object."""
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    words = [*column.dictionary.to_pylist(), None]
    places = column.indices.to_pylist()
    return [words[-1 if place is None else place] for place in places]
