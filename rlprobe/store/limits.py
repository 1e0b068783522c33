"""How much is read of a file that somebody else wrote, by what it says before it is read.

A few kilobytes can stand for billions of rows or for gigabytes of text, and a number in JSON may be
a million brackets deep. Honest files stay far below these limits: beyond a floor, each row and each
character takes its share of the file. `--allow-large`, or the environment, lifts them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rlprobe import environment
from rlprobe.numbers import plural, size

HINT = f"`--allow-large` (or {environment.ALLOW_LARGE}=1) reads it all the same."
MOST_FOOTER = 32 * 1024**2  # bytes of a Parquet footer
MOST_COLUMNS = 100_000
MOST_ROWS = 100_000_000  # of one table
MOST_CELLS = 1_000_000_000  # of one table of metrics
MOST_CELLS_AT_ONCE = 400_000_000
MOST_MEMORY = 4 * 1024**3  # bytes of rows that are read as objects
MOST_JSON = 16 * 1024**2  # bytes of a manifest
MOST_DATA = 1024**2  # characters of an event's data or message
MOST_TEXT = 4 * 1024**2  # bytes of one text of a rollout
MOST_NESTING = 100  # of JSON
_FREE_ROWS = 10_000_000  # of metrics, however small the file is
_FREE_RECORDS = 200_000  # of events or rollouts, however small the file is
_BYTES_OF_A_RECORD = 8  # that one more takes at least
_FREE_MEMORY = 1024**3  # bytes of rows, however small the file is
_FREE_TEXT = 64 * 1024**2  # bytes of text, however small the file is
_MOST_SWELLING = 200  # times the file's size, for more text

_lifted: ContextVar[bool] = ContextVar("lifted", default=False)


class TooLargeError(ValueError):
    """A file says that it holds more than is read; the message says what."""


@dataclass(frozen=True)
class Amount:
    """How much some shards hold, as their footers say.

    Attributes:
        cells: rows times columns, shard by shard.
        decoded: bytes of their columns before they leave their dictionaries.
        size: bytes on disk.
    """

    rows: int = 0
    cells: int = 0
    decoded: int = 0
    size: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.rows + other.rows,
            self.cells + other.cells,
            self.decoded + other.decoded,
            self.size + other.size,
        )

    def check(self, *, numbers: bool) -> None:
        """Raise TooLargeError where it is more than a table of numbers, or of records, holds."""
        if numbers:
            rows_of_numbers(self.rows, self.size)
            cells(self.cells, self.size)
        else:
            rows_of_records(self.rows, self.size)
            text(self.decoded, self.size)


NOTHING = Amount()


@contextmanager
def scope() -> Iterator[None]:
    """Limits that `lift` lifts come back at the end."""
    token = _lifted.set(_lifted.get())
    try:
        yield
    finally:
        _lifted.reset(token)


def lift(wanted: bool) -> None:  # noqa: FBT001 - the flag itself
    """Read files of any size until the end of the scope, if that is wanted."""
    if wanted:
        _lifted.set(True)


def lifted() -> bool:
    """Whether files of any size are read."""
    return _lifted.get() or bool(os.environ.get(environment.ALLOW_LARGE))


def refuse(words: str) -> None:
    """Unless the limits are lifted."""
    if not lifted():
        raise TooLargeError(words)


def rows_of_numbers(rows: int, file_bytes: int) -> None:
    """Rows of metrics: beyond a floor, a byte each."""
    if rows > min(MOST_ROWS, max(_FREE_ROWS, file_bytes)):
        refuse(f"{plural(rows, 'row')} in {size(file_bytes)}, more than is read")


def cells(count: int, file_bytes: int) -> None:
    """Numbers of a table."""
    if count > max(MOST_CELLS, file_bytes):
        refuse(f"{plural(count, 'number')} in {size(file_bytes)}, more than is read")


def cells_at_once(rows: int, columns: int) -> None:
    """Numbers that are in memory together."""
    if rows * columns > MOST_CELLS_AT_ONCE:
        refuse(f"{plural(columns, 'column')} of {plural(rows, 'row')}, more than is read")


def memory(taken: int, file_bytes: int) -> None:
    """Bytes that rows take in all, as they are read."""
    if taken > min(MOST_MEMORY, max(_FREE_MEMORY, _MOST_SWELLING * file_bytes)):
        refuse(f"rows that take {size(taken)} in {size(file_bytes)}, more than is read")


def rows_of_records(rows: int, file_bytes: int) -> None:
    """Rows of events or rollouts: beyond a floor, some bytes each."""
    if rows > max(_FREE_RECORDS, file_bytes // _BYTES_OF_A_RECORD):
        refuse(f"{plural(rows, 'row')} in {size(file_bytes)}, more than is read")


def text(text_bytes: int, file_bytes: int) -> None:
    """Text as it is when it is read: beyond a floor, so many times the file's size."""
    if text_bytes > max(_FREE_TEXT, _MOST_SWELLING * file_bytes):
        refuse(f"{size(text_bytes)} of text in {size(file_bytes)}, more than is read")


def columns(count: int) -> None:
    """Columns of a table."""
    if count > MOST_COLUMNS:
        refuse(f"{plural(count, 'column')}, more than is read")


def footer(length: int) -> None:
    """Bytes of a Parquet footer."""
    if length > MOST_FOOTER:
        refuse(f"a footer of {size(length)}, more than is read")
