"""One shard, open for reading: as it was written and within limits, or an error that says why."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import schema
from rlprobe.errors import NewerFormatError, first_line
from rlprobe.store import admission, checksum, limits, parquet_file

FORMAT_KEY = b"rlprobe.format_version"
TABLE_KEY = b"rlprobe.table"
SEALED_KEY = b"rlprobe.sealed"  # the file has a checksum: where none is found, it is damaged
_MAGIC = b"PAR1"
_IN_MEMORY = 1 << 20  # bytes: a smaller file is read at once, and takes no file descriptor


class ShardError(ValueError):
    """A shard cannot be read, as a whole or in some column; the message says why."""


class ShardFile:
    """A shard of a recording.

    Args:
        root: the run directory; that of the path where it is not given.
        content: the file's bytes, where they have been read already.
        known: it has been opened before, and matched its checksum.

    Attributes:
        path: where it lies.
        rows: how many it has.
        size: bytes on disk.
        types: the type of each column, by name; of two with one name, the first.
        twice: names that several columns have.
        sealed: whether it has a checksum, and is as it was written.

    Raises:
        NewerFormatError: written by a newer rlprobe.
        ShardError: no shard of a recording, damaged, too large, or unreadable.
        FileNotFoundError: merged away since it was listed.
        TooManyOpenError: too many files are open.
    """

    def __init__(
        self,
        path: Path,
        root: Path | None = None,
        *,
        content: bytes | None = None,
        known: bool = False,
    ) -> None:
        self.path = path
        self._known = known
        self._file: BinaryIO
        if content is None:
            self._file = _admitted(path, root or path.parent.parent)
            self.size = os.fstat(self._file.fileno()).st_size
        else:
            self._file, self.size = io.BytesIO(content), len(content)
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        try:
            if self.size <= _IN_MEMORY and not isinstance(self._file, io.BytesIO):
                content = self._file.read()
                self._file.close()
                self._file = io.BytesIO(content)
            self.sealed = self._known or self._checked()
            self._parquet = self._opened()
            self._describe()
        except limits.TooLargeError as error:
            raise ShardError(f"{error}. {limits.HINT}") from error
        except (ShardError, NewerFormatError):
            raise
        except Exception as error:  # whatever a decoder makes of bytes that are no Parquet
            raise ShardError(f"torn or not Parquet ({first_line(error)})") from error
        if not self.sealed and SEALED_KEY in self._metadata:
            raise ShardError("damaged: its checksum is gone")

    def _opened(self, read_dictionary: Sequence[str] = ()) -> pq.ParquetFile:
        # Pages are checked where the whole file has not been: of earlier versions, opened again.
        check_pages = self._known or not self.sealed
        return parquet_file.opened(self._file, read_dictionary, check_pages=check_pages)

    def _checked(self) -> bool:
        file = self._file
        if self.size < 12:
            raise ShardError("torn or not Parquet (too short)")
        file.seek(self.size - 4)
        if file.read(4) != _MAGIC:
            raise ShardError("torn or not Parquet (no end)")
        limits.footer(checksum.footer_length(file))
        holds = checksum.parquet_holds(file)
        if holds is False:
            raise ShardError("damaged: it does not match its checksum")
        return bool(holds)

    def _describe(self) -> None:
        metadata = self._parquet.metadata
        self.rows: int = metadata.num_rows
        limits.columns(metadata.num_columns)
        arrow_schema = self._parquet.schema_arrow
        self._metadata: dict[bytes, bytes] = arrow_schema.metadata or {}
        self._check_version()
        self.types: dict[str, pa.DataType] = {}
        self.twice: set[str] = set()
        for field in arrow_schema:
            if field.name in self.types:
                self.twice.add(field.name)
            self.types.setdefault(field.name, field.type)
        if self.rows < 0:
            raise ShardError("torn or not Parquet (a negative number of rows)")

    def _check_version(self) -> None:
        version = self._metadata.get(FORMAT_KEY, b"")
        if not version.isdigit() or len(version) > 9:
            raise ShardError("a Parquet file that rlprobe did not write")
        if int(version) > schema.FORMAT_VERSION:
            raise NewerFormatError(
                f"Couldn't read '{self.path}': format {int(version)}, this rlprobe knows "
                f"{schema.FORMAT_VERSION}",
                hint="Upgrade rlprobe.",
            )

    def check_size(self, table: str, others: limits.Amount = limits.NOTHING) -> limits.Amount:
        """How much this and other shards of a table hold, where that is within the limits.

        Raises:
            ShardError: it is not.
        """
        own = limits.Amount(
            self.rows, self.rows * len(self.types), self._decoded_bytes(), self.size
        )
        amount = own + others
        try:
            amount.check(numbers=schema.tables()[table].metrics)
        except limits.TooLargeError as error:
            raise ShardError(f"{error}. {limits.HINT}") from error
        return amount

    def _decoded_bytes(self) -> int:
        metadata = self._parquet.metadata
        groups = range(metadata.num_row_groups)
        return sum(metadata.row_group(number).total_byte_size for number in groups)

    def read(self, names: Sequence[str] | None = None) -> pa.Table:
        """Columns as they are stored; of two with one name, the first.

        Raises:
            ShardError: they cannot be read.
        """
        wanted = list(self.types if names is None else names)
        try:
            # Parquet reads `a.b` along with `a`: there may be more than was asked for.
            table = self._parquet.read(None if names is None else wanted, use_threads=False)
            places = {name: place for place, name in reversed(list(enumerate(table.schema.names)))}
            table = table.select([places[name] for name in wanted])
        except Exception as error:  # whatever a decoder makes of damaged bytes
            raise ShardError(f"damaged ({first_line(error)})") from error
        if wanted and table.num_rows != self.rows:
            raise ShardError(f"damaged ({table.num_rows} rows, {self.rows} by its footer)")
        return table

    def dictionary_encoded(self, names: Sequence[str]) -> pa.Table:
        """The whole shard, with these columns of text left in their dictionaries.

        Raises:
            ShardError: it cannot be read.
        """
        try:
            self._file.seek(0)
            self._parquet = self._opened(names)
        except Exception as error:
            raise ShardError(f"damaged ({first_line(error)})") from error
        return self.read()

    def close(self) -> None:
        """Close the file; nothing can be read any more."""
        self._file.close()

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _admitted(path: Path, root: Path) -> BinaryIO:
    try:
        return admission.open_regular(path, root)
    except admission.NotAdmittedError as error:
        raise ShardError(str(error)) from error
