"""A file to be read, bounded: decompressed where need be, never more than it should cost."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from rlprobe.errors import InputError

HEAD_BYTES = 65_536
LONGEST_LINE = 16 * 1024 * 1024
LARGEST_DOCUMENT = 512 * 1024 * 1024  # of a format that must be read as a whole
_GZIP = b"\x1f\x8b"


class Source:
    """One file, by its path.

    Attributes:
        path: where it lies; named in every message.
        name: its name without a compression suffix.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name.removesuffix(".gz")

    @property
    def suffix(self) -> str:
        """The suffix of the name, lower case."""
        return Path(self.name).suffix.lower()

    def open(self) -> BinaryIO:
        """The content, decompressed; InputError if it cannot be opened."""
        try:
            file = self.path.open("rb")
            magic = file.read(2)
            file.seek(0)
        except OSError as error:
            raise InputError(f"Couldn't read '{self.path}': {error.strerror}") from error
        if magic == _GZIP:
            return io.BufferedReader(gzip.GzipFile(fileobj=file))
        return file

    @cached_property
    def head(self) -> bytes:
        """The first bytes."""
        with self.open() as file:
            return self._read(file, HEAD_BYTES)

    def lines(self) -> Iterator[bytes]:
        """Lines without their end; a line that is too long comes in parts of LONGEST_LINE."""
        with self.open() as file:
            while line := self._line(file):
                yield line

    def whole(self) -> bytes:
        """All of it; InputError if it is larger than LARGEST_DOCUMENT."""
        with self.open() as file:
            content = self._read(file, LARGEST_DOCUMENT + 1)
        if len(content) > LARGEST_DOCUMENT:
            raise InputError(
                f"Couldn't read '{self.path}': more than {LARGEST_DOCUMENT // 2**20} MB in one "
                "document",
                hint="Export it as JSON Lines or CSV.",
            )
        return content

    def _read(self, file: BinaryIO, size: int) -> bytes:
        try:
            return file.read(size)
        except (OSError, EOFError) as error:
            raise InputError(f"Couldn't read '{self.path}': {error}") from error

    def _line(self, file: BinaryIO) -> bytes:
        try:
            return file.readline(LONGEST_LINE)
        except (OSError, EOFError) as error:
            raise InputError(f"Couldn't read '{self.path}': {error}") from error
