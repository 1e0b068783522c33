"""A file as a stream of bytes, read piece by piece."""

from __future__ import annotations

import zlib
from types import TracebackType

from rlprobe.errors import InputError
from rlprobe.importers.source import Source

_PIECE = 64 * 1024  # where a compressed file was cut, at most this much before it is lost


class ByteStream:
    """The decompressed content of a source; `Source.open` bounds what compression may hide."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self._file = source.open()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end; InputError if they cannot be read."""
        parts: list[bytes] = []
        while size > 0 and (part := self._part(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _part(self, size: int) -> bytes:
        try:
            return self._file.read(min(size, _PIECE))
        except EOFError:  # a compressed file that is still written, or was cut by a crash
            return b""
        except (OSError, zlib.error) as error:
            raise InputError(f"Couldn't read '{self.path}': {error}") from error

    def skip(self, size: int) -> int:
        """Pass over bytes; returns how many there were."""
        left = size
        while left > 0 and (got := len(self.read(min(left, 16 * _PIECE)))):
            left -= got
        return size - left
