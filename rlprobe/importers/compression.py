"""Compressed files, known by the marks at their start: gzip, bzip2, xz and Zstandard.

What swells beyond all bounds is refused while it is read; of a file that was cut, what came before
the cut is kept.
"""

from __future__ import annotations

import re
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from rlprobe.errors import InputError

SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zstd")
DAMAGE = (OSError, EOFError, zlib.error)  # what reading a damaged or cut file raises
CHUNK_BYTES = 1024 * 1024
# A log compresses by a factor of 5 to 50. What swells more than this is no log.
MOST_SWELLING = 400
HARMLESS_BYTES = 256 * 1024 * 1024
_MARK_BYTES = 10
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
# The size of a block, then the mark of a block, or of the end where there is none.
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR, _TAR_AT = b"ustar", slice(257, 262)


class Stream(Protocol):
    """A decompressor."""

    def read1(self, size: int = ..., /) -> bytes:
        """Some bytes, at most `size`."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def is_archive(head: bytes) -> bool:
    """Whether a file is a zip or a tar archive, by its first bytes once they are decompressed."""
    return head.startswith(ZIP) or head[_TAR_AT] == _TAR


def decompressed(file: BinaryIO, path: Path) -> BinaryIO:
    """A file's content; the file itself where it is not compressed.

    Raises:
        OSError: it cannot be read.
        InputError: this Python has no decompressor for it.
    """
    mark = file.read(_MARK_BYTES)
    file.seek(0)
    try:
        stream = _stream(file, mark)
    except ImportError as error:
        raise InputError(
            f"Couldn't read '{path}': this Python was built without {error.name}",
            hint="Decompress it first.",
        ) from error
    return file if stream is None else cast("BinaryIO", Bounded(stream, file, path))


def _stream(file: BinaryIO, mark: bytes) -> Stream | None:
    if mark.startswith(_GZIP):
        import gzip

        return gzip.GzipFile(fileobj=file, mode="rb")
    if _BZIP2.match(mark):
        import bz2

        return bz2.BZ2File(file)
    if mark.startswith(_XZ):
        import lzma

        return _Usual(lzma.LZMAFile(file), lzma.LZMAError)
    if mark.startswith(_ZSTD):
        import pyarrow as pa

        return _Usual(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"), OSError)
    return None


class _Usual:
    """A stream that fails in its own ways, made to fail as the others do."""

    def __init__(self, stream: Stream, damaged: type[Exception]) -> None:
        self._stream, self._damaged = stream, damaged
        self.close = stream.close

    def read1(self, size: int = -1, /) -> bytes:
        """Some bytes; EOFError where the data were cut, OSError where they are damaged."""
        try:
            return self._stream.read1(size)
        except self._damaged as error:
            cut = "Truncated" in str(error)  # pyarrow's word for it
            raise (EOFError if cut else OSError)(str(error)) from error


class Bounded:
    """A decompressed stream that refuses to swell without bounds."""

    def __init__(self, stream: Stream, file: BinaryIO, path: Path) -> None:
        self._stream, self._file, self._path = stream, file, path
        self._out = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes; InputError once they are far more than any log compresses to."""
        data = self._some(size)
        self._out += len(data)
        if self._out > HARMLESS_BYTES and self._out > MOST_SWELLING * max(1, self._file.tell()):
            raise InputError(
                f"Couldn't read '{self._path}': it swells to more than {MOST_SWELLING} times "
                "its size, which no log does"
            )
        return data

    def _some(self, size: int) -> bytes:
        """Up to `size` bytes; what came before an error is not lost to it."""
        parts: list[bytes] = []
        wanted = size if size >= 0 else sys.maxsize
        try:
            while wanted > 0 and (part := self._stream.read1(min(wanted, CHUNK_BYTES))):
                parts.append(part)
                wanted -= len(part)
        except DAMAGE:
            if not parts:
                raise
        return b"".join(parts)

    def close(self) -> None:
        """Close both streams."""
        self._stream.close()
        self._file.close()

    def __enter__(self) -> Bounded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
