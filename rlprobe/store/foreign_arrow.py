"""Arrow files and streams that rlprobe did not write, bounded; a torn end costs its last batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from rlprobe.errors import InputError, first_line
from rlprobe.store import arrow, limits
from rlprobe.values import BoolArray, FloatArray

_FILE = b"ARROW1"
_FAILS = (pa.ArrowException, OSError, ValueError, OverflowError)


class ForeignArrow:
    """One Arrow file.

    Attributes:
        batches: what could be read.
        torn: why the rest could not be; empty where nothing is missing.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """Read the columns of these names that are there."""
        self.path = path
        self.torn = ""
        self.batches: list[Any] = []
        rows = size = 0
        try:
            on_disk = path.stat().st_size
            with pa.OSFile(str(path), "rb") as file:
                for batch in self._read(file):
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    limits.rows_of_numbers(rows, on_disk)
                    limits.memory(size, on_disk)
                    limits.columns(len(batch.schema))
                    there = [name for name in names if name in batch.schema.names]
                    self.batches.append(batch.select(there))
        except limits.TooLargeError as error:
            raise InputError(f"Couldn't read '{path}': {error}", hint=limits.HINT) from error
        except _FAILS as error:
            raise InputError(f"Couldn't read '{path}' as Arrow: {first_line(error)}") from error

    def _read(self, file: Any) -> Iterator[Any]:
        whole = bytes(file.read(len(_FILE))) == _FILE
        file.seek(0)
        if whole:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                batch.validate(full=True)
                yield batch
            return
        stream = pa.ipc.open_stream(file)
        while True:
            try:
                batch = stream.read_next_batch()
                batch.validate(full=True)  # lengths, places and texts are as they may be
            except StopIteration:
                return
            except _FAILS as error:
                self.torn = first_line(error)
                return
            yield batch

    def numbers(self) -> dict[str, tuple[FloatArray, BoolArray]]:
        """Columns of numbers as doubles, with their validity (False is null)."""
        if not self.batches:
            return {}
        try:
            table = pa.Table.from_batches(self.batches)
            return {
                name: arrow.floats(table.column(name).cast(pa.float64(), safe=False))
                for name in table.schema.names
                if not pa.types.is_string(table.schema.field(name).type)
            }
        except _FAILS as error:
            raise InputError(f"Couldn't read '{self.path}': {first_line(error)}") from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as objects."""
        for batch in self.batches:
            names = batch.schema.names
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield dict(zip(names, values, strict=True))
