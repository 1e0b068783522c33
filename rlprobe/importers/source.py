"""A file to be read, bounded: decompressed and decoded where need be.

Everything is read in blocks of bytes: no file is ever held as a whole unless its format needs that,
and then only up to a limit. Text in UTF-16 is turned into UTF-8 on the way.
"""

from __future__ import annotations

import codecs
import io
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from rlprobe._lazy import cached_property
from rlprobe.errors import InputError
from rlprobe.importers import compression, listening

HEAD_BYTES = 65_536
LONGEST_LINE = 8 * 1024 * 1024
LARGEST_DOCUMENT = 128 * 1024 * 1024  # of a format that must be read as a whole
BLOCK_BYTES = 16 * 1024 * 1024
STDIN = Path("-")


class Source:
    """One file, by its path; `-` is the standard input.

    Attributes:
        path: where it lies; named in every message.
        name: its name without a compression suffix.
        parts: files whose texts are read one after another (rotated logs); else the file itself.
        step_key: the key that the user wants rows to be numbered by; None: the best one there is.
    """

    def __init__(
        self, path: Path, step_key: str | None = None, *, parts: Sequence[Path] = ()
    ) -> None:
        self.path = path
        self.step_key = step_key
        self.parts = tuple(parts) or (path,)
        self._small: bytes | None = None  # all of it, once it has turned out to be small
        self.name = path.name
        for suffix in compression.SUFFIXES:
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
        if not stat.S_ISREG(self.path.stat().st_mode):  # opening a pipe would wait for a writer
            raise InputError(f"Couldn't read '{self.path}': not a regular file")
        return self.path.open("rb")

    def size(self) -> int:
        """Bytes that the file takes, compressed as it is; InputError if that cannot be told."""
        try:
            with self._opened() as file:
                return file.seek(0, 2)
        except OSError as error:
            raise InputError(f"Couldn't read '{self.path}': {error.strerror}") from error

    def open(self) -> BinaryIO:
        """The content of the file itself, decompressed; InputError if it cannot be opened."""
        try:
            return compression.decompressed(self._opened(), self.path)
        except OSError as error:
            raise InputError(f"Couldn't read '{self.path}': {error.strerror}") from error

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
        else:
            self._small = b"".join(parts)  # so that small files are opened once
        head = b"".join(parts)[:HEAD_BYTES]
        if b"\n" not in head and b"\0" not in head:
            head = head.replace(b"\r", b"\n")  # what ends every line in such a file
        return head

    @property
    def is_text(self) -> bool:
        """Whether the start looks like text: no control characters but those of terminals."""
        sample = self.head[:8192]
        odd = sum(sample.count(bytes([code])) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 127))
        return bool(sample.strip()) and odd * 100 <= len(sample)

    def chunks(self, size: int = compression.CHUNK_BYTES) -> Iterator[bytes]:
        """The content in blocks of about this size, in UTF-8 if the file is text."""
        if self._small is not None:
            yield self._small
            return
        if len(self.parts) == 1:
            yield from self._own_chunks(size)
            return
        for path in self.parts:
            last = b"\n"
            for chunk in Source(path).chunks(size):
                yield chunk
                last = chunk[-1:] or last
            if last not in b"\r\n":
                yield b"\n"

    def _whole_size(self, file: BinaryIO) -> int:
        """Bytes that will be read; 0 where that is not known."""
        plain = isinstance(file, io.BufferedReader)
        return self.path.stat().st_size if plain and self.path.is_file() else 0

    def _own_chunks(self, size: int) -> Iterator[bytes]:
        with self.open() as file:
            first = self._read(file, size)
            encoding, mark = _encoding(first)
            if encoding == "utf-8":
                if rest := first[mark:]:
                    yield rest
                done = len(first)
                of = self._whole_size(file)
                while chunk := self._read(file, size):
                    done += len(chunk)
                    listening.tell(self.path, done, of)
                    yield chunk
                return
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            chunk = first[mark:]
            while chunk:
                yield decoder.decode(chunk).encode("utf-8", "replace")
                chunk = self._read(file, size)

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Whole lines, in blocks of about this size; a line that is too long is cut short.

        Whatever ends a line in the file (LF, CR, CR LF, CR CR LF), here LF does.
        """
        rest, skipping = b"", False
        for chunk in _with_newlines(self.chunks(size)):
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
        except compression.DAMAGE as error:
            if self.path != STDIN and isinstance(error, EOFError):
                return b""  # a compressed file that is still written, or was cut by a crash
            raise InputError(f"Couldn't read '{self.path}': {error}") from error


def _encoding(start: bytes) -> tuple[str, int]:
    """The encoding of text by its start, and the length of its byte order mark."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8", len(codecs.BOM_UTF8)
    marked = ((mark, name) for marks, name in _MARKS for mark in marks if start.startswith(mark))
    if (found := next(marked, None)) is not None:
        return found[1], 0
    return _unmarked(start[:400]) if len(start) >= 16 else "utf-8", 0


# The little-endian mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    ((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    ((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
)


def _unmarked(sample: bytes) -> str:
    """The encoding by which bytes of ASCII characters are nought."""
    wide = [any(sample[place::4]) for place in range(4)]
    full = [all(sample[place::4]) for place in range(4)]
    shapes: dict[tuple[bool, ...], str] = {
        (True, False, False, False): "utf-32-le",
        (False, False, False, True): "utf-32-be",
        (True, False, True, False): "utf-16-le",
        (False, True, False, True): "utf-16-be",
    }
    return shapes.get(tuple(wide), "utf-8") if wide == full else "utf-8"


def _with_newlines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same with LF at the end of each line."""
    held = b""  # carriage returns that may belong to a line feed in the next chunk
    for piece in chunks:
        chunk = held + piece if held else piece
        held = chunk[len(chunk) - _returns(chunk) :]
        chunk = chunk[: len(chunk) - len(held)] if held else chunk
        if b"\r" in chunk:
            for end in (b"\r\r\n", b"\r\n", b"\r"):
                chunk = chunk.replace(end, b"\n")
        yield chunk
    if held:
        yield b"\n"


def _returns(chunk: bytes) -> int:
    """How many carriage returns it ends with, up to two."""
    return 2 if chunk.endswith(b"\r\r") else int(chunk.endswith(b"\r"))


class _Borrowed:
    """A file that stays open when its reader closes it."""

    closed = False  # pyarrow asks

    def __init__(self, file: tempfile.SpooledTemporaryFile[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Nothing: the next reader starts again."""

    def __enter__(self) -> _Borrowed:
        return self

    def __exit__(self, *_: object) -> None:
        return
