"""SQLite databases of others, read without leaving a trace beside them."""

from __future__ import annotations

import functools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlprobe.errors import InputError
from rlprobe.importers.source import Source

MAGIC = b"SQLite format 3\0"
_VERSIONS = slice(18, 20)  # of the file format: 2 is WAL
_LARGEST_COPY = 8 * 1024**3
_LARGEST_VALUE = 64 * 1024 * 1024
_SMALLEST_ROW = 4  # bytes that a row takes at the least


class Database:
    """One open database."""

    def __init__(self, path: Path, connection: sqlite3.Connection, size: int) -> None:
        self.path = path
        self._connection = connection
        self._most_rows = 1000 + size // _SMALLEST_ROW

    def columns(self, table: str) -> set[str]:
        """The columns of a table; none if there is no such table (a view is none)."""
        found = self.rows("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", table)
        plain = [sql for (sql,) in found if str(sql).upper().startswith("CREATE TABLE")]
        if not plain:
            return set()
        return {str(row[0]) for row in self.rows("SELECT name FROM pragma_table_info(?)", table)}

    def rows(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a query.

        Raises:
            InputError: the database is damaged.
        """
        try:
            for count, row in enumerate(self._connection.execute(sql, values)):
                if count > self._most_rows:
                    raise InputError(f"Couldn't read '{self.path}': more rows than bytes")
                yield row
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise _unreadable(self.path, error) from error


def is_sqlite(source: Source) -> bool:
    """Whether a file is an SQLite database."""
    return source.head.startswith(MAGIC)


def has_columns(source: Source, table: str, *needed: str) -> bool:
    """Whether a file is a database with such a table; also if it is too damaged to tell."""
    if not is_sqlite(source):
        return False
    path = source.path
    columns = _columns(path, table, _state(path), _state(_beside(path, "-wal")))
    return columns is None or columns >= set(needed)


@functools.lru_cache(maxsize=16)
def _columns(path: Path, table: str, *_: tuple[int, int]) -> frozenset[str] | None:
    """The columns of a table, None if the file is damaged; several formats ask for the same."""
    try:
        with opened(path) as database:
            return frozenset(database.columns(table))
    except InputError:
        return None


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open a database for reading; its folder is left exactly as it is.

    A write-ahead log that has not been merged into the file is merged in a temporary copy.
    """
    with tempfile.TemporaryDirectory(prefix="rlprobe-") as folder:
        try:
            place, how = _place(path, Path(folder))
            with closing(_connect(place, how)) as connection:
                yield Database(path, connection, _size(path) + _size(_beside(path, "-wal")))
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    # SQLite's messages quote names from the file, which need not be text.
    said = "damaged" if isinstance(error, UnicodeDecodeError) else str(error)
    return InputError(f"Couldn't read '{path}' as SQLite: {said}")


def _place(path: Path, folder: Path) -> tuple[Path, str]:
    """What to open, and how."""
    pending = [end for end in ("-wal", "-journal") if _size(_beside(path, end))]
    if pending:
        return _copy(path, folder, pending), "mode=rw"
    with path.open("rb") as file:
        wal = 2 in file.read(20)[_VERSIONS]
    # A database in WAL mode cannot be opened, even for reading, without creating files beside it.
    return path, "immutable=1" if wal else "mode=ro"


def _copy(path: Path, folder: Path, pending: list[str]) -> Path:
    names = [path, *(_beside(path, end) for end in pending)]
    if sum(_size(name) for name in names) > _LARGEST_COPY:
        raise InputError(
            f"Couldn't read '{path}': it has an open log and is too large to copy",
            hint="Close the program that writes it, then try again.",
        )
    for _ in range(3):
        before = [_state(name) for name in names]
        for name, end in zip(names, ("", *pending), strict=True):
            shutil.copyfile(name, folder / f"copy.db{end}")
        if [_state(name) for name in names] == before:
            break
    return folder / "copy.db"


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, timeout=5)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
