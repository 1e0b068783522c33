"""A file to be read, bounded: decompressed and decoded where need be.

Everything is read in blocks of bytes: no file is ever held as a whole unless its format needs that,
and then only up to a limit. Text in UTF-16 is turned into UTF-8 on the way.
"""

from __future__ import annotations

import codecs
import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from rlprobe._lazy import cached_property
from rlprobe.errors import InputError

HEAD_BYTES = 65_536
LONGEST_LINE = 8 * 1024 * 1024
LARGEST_DOCUMENT = 128 * 1024 * 1024  # of a format that must be read as a whole
BLOCK_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
# A log compresses by a factor of 5 to 50. What swells more than this is no log.
_MOST_SWELLING = 400
_HARMLESS_BYTES = 256 * 1024 * 1024
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SUFFIXES = (".gz", ".zst", ".zstd")
STDIN = Path("-")


class _Stream(Protocol):
    def read1(self, size: int = ..., /) -> bytes: ...

    def close(self) -> None: ...


class Source:
    """One file, by its path; `-` is the standard input.

    Attributes:
        path: where it lies; named in every message.
        name: its name without a compression suffix.
        step_key: the key that the user wants rows to be numbered by; None: the best one there is.
    """

    def __init__(self, path: Path, step_key: str | None = None) -> None:
        self.path = path
        self.step_key = step_key
        self.name = path.name
        for suffix in _SUFFIXES:
            self.name = self.name.removesuffix(suffix)

    @property
    def suffix(self) -> str:
        """The suffix of the name, lower case."""
        return Path(self.name).suffix.lower()

    @cached_property
    def _spooled(self) -> tempfile.SpooledTemporaryFile[bytes]:
        """Standard input, kept so that it can be read again."""
        file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            max_size=BLOCK_BYTES
        )
        shutil.copyfileobj(sys.stdin.buffer, file)
        return file

    def close(self) -> None:
        """Let go of what was kept of the standard input."""
        if "_spooled" in vars(self):
            self._spooled.close()

    def _opened(self) -> BinaryIO:
        if self.path == STDIN:
            self._spooled.seek(0)
            return cast("BinaryIO", _Borrowed(self._spooled))
        return self.path.open("rb")

    def open(self) -> BinaryIO:
        """The content, decompressed; InputError if it cannot be opened."""
        try:
            file = self._opened()
            magic = file.read(4)
            file.seek(0)
        except OSError as error:
            raise InputError(f"Couldn't read '{self.path}': {error.strerror}") from error
        if magic.startswith(_GZIP):
            return cast("BinaryIO", _Bounded(gzip.GzipFile(fileobj=file), file, self.path))
        if magic == _ZSTD:
            import pyarrow as pa

            inner = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
            return cast("BinaryIO", _Bounded(inner, file, self.path))
        return file

    @cached_property
    def head(self) -> bytes:
        """The first bytes, as UTF-8 if the file is text in an encoding that is told by its start.

        A head that fits into HEAD_BYTES is the whole file.
        """
        parts: list[bytes] = []
        for chunk in self.chunks(HEAD_BYTES):
            parts.append(chunk)
            if sum(map(len, parts)) >= HEAD_BYTES:
                break
        return b"".join(parts)[:HEAD_BYTES]

    @property
    def is_text(self) -> bool:
        """Whether the start looks like text: no control characters but those of terminals."""
        sample = self.head[:8192]
        odd = sum(sample.count(bytes([code])) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 127))
        return bool(sample.strip()) and odd * 100 <= len(sample)

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """The content in blocks of about this size, in UTF-8 if the file is text."""
        with self.open() as file:
            first = self._read(file, size)
            encoding, mark = _encoding(first)
            if encoding == "utf-8":
                if rest := first[mark:]:
                    yield rest
                while chunk := self._read(file, size):
                    yield chunk
                return
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            chunk = first[mark:]
            while chunk:
                yield decoder.decode(chunk).encode("utf-8", "replace")
                chunk = self._read(file, size)

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Whole lines, in blocks of about this size; a line that is too long is cut short."""
        rest, skipping = b"", False
        for chunk in self.chunks(size):
            start = chunk.find(b"\n") if skipping else 0
            if start < 0:
                continue
            cut = chunk.rfind(b"\n") + 1
            skipping = False
            if cut:
                yield b"".join((rest, memoryview(chunk)[start:cut]))
                rest = chunk[cut:]
            elif len(rest) + len(chunk) > LONGEST_LINE:
                # Of an overlong line only the start is kept: enough to name it as bad.
                rest, skipping = (rest + chunk)[:LONGEST_LINE], True
            else:
                rest += chunk
        if rest:
            yield rest

    def lines(self) -> Iterator[bytes]:
        """Lines without their end; a line that is too long is cut short."""
        for block in self.blocks():
            for line in block.removesuffix(b"\n").split(b"\n"):
                yield line[:LONGEST_LINE]

    def whole(self) -> bytes:
        """All of it; InputError if it is larger than LARGEST_DOCUMENT."""
        parts: list[bytes] = []
        size = 0
        for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > LARGEST_DOCUMENT:
                raise InputError(
                    f"Couldn't read '{self.path}': more than {LARGEST_DOCUMENT // 2**20} MB in one "
                    "document",
                    hint="Export it as JSON Lines or CSV.",
                )
        return b"".join(parts)

    def _read(self, file: BinaryIO, size: int) -> bytes:
        try:
            return file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            if self.path != STDIN and isinstance(error, EOFError):
                return b""  # a compressed file that is still written, or was cut by a crash
            raise InputError(f"Couldn't read '{self.path}': {error}") from error


def _encoding(start: bytes) -> tuple[str, int]:
    """The encoding of text by its start, and the length of its byte order mark."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8", len(codecs.BOM_UTF8)
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32", 0
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", 0
    sample = start[:400]
    if len(sample) >= 16:
        if not any(sample[0::2]) and all(sample[1::2]):
            return "utf-16-be", 0
        if not any(sample[1::2]) and all(sample[0::2]):
            return "utf-16-le", 0
    return "utf-8", 0


class _Borrowed:
    """A file that stays open when its reader closes it."""

    def __init__(self, file: tempfile.SpooledTemporaryFile[bytes]) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell

    def close(self) -> None:
        """Nothing: the next reader starts again."""

    def __enter__(self) -> _Borrowed:
        return self

    def __exit__(self, *_: object) -> None:
        return


class _Bounded:
    """A decompressed stream that refuses to swell without bounds."""

    def __init__(self, stream: _Stream, file: BinaryIO, path: Path) -> None:
        self._stream, self._file, self._path = stream, file, path
        self._out = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes; InputError once they are far more than any log compresses to."""
        data = self._some(size)
        self._out += len(data)
        if self._out > _HARMLESS_BYTES and self._out > _MOST_SWELLING * max(1, self._file.tell()):
            raise InputError(
                f"Couldn't read '{self._path}': it swells to more than {_MOST_SWELLING} times "
                "its size, which no log does"
            )
        return data

    def _some(self, size: int) -> bytes:
        """Up to `size` bytes; what came before an error is not lost to it."""
        parts: list[bytes] = []
        wanted = size if size >= 0 else sys.maxsize
        try:
            while wanted > 0 and (part := self._stream.read1(min(wanted, _CHUNK_BYTES))):
                parts.append(part)
                wanted -= len(part)
        except (OSError, EOFError, zlib.error):
            if not parts:
                raise
        return b"".join(parts)

    def close(self) -> None:
        """Close both streams."""
        self._stream.close()
        self._file.close()

    def __enter__(self) -> _Bounded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
