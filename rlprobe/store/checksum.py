"""A file's checksum, kept inside the file: no flipped bit gives other numbers in silence.

Parquet checks its pages at best; a footer, a page's header or a manifest have nothing. So a file
holds the CRC-32 of all its bytes, computed with zeros in its own place. A file without one is of an
earlier version and is read as it is.
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

from rlprobe import redaction
from rlprobe.store.text import text_of

KEY = "rlprobe.crc32"
BLANK = "00000000"
_END = 8  # bytes at the end of a Parquet file: the footer's length, and the magic word
_BLOCK = 1 << 22
# The key and its value as Parquet's footer (compact Thrift) and as JSON spell them.
_PLACE = re.compile(rb'rlprobe\.crc32(?:\x18\x08|": ")(?=[0-9a-f]{8})')


def seal_parquet(content: memoryview) -> None:
    """Put the checksum into the bytes of a Parquet file whose metadata has `KEY`: `BLANK`."""
    content = content.cast("B")
    tail = _tail(content)
    place = parquet_place(io.BytesIO(content[-tail:]))
    if place is None:
        raise ValueError("the file has no place for its checksum")
    place += len(content) - tail
    content[place : place + len(BLANK)] = b"%08x" % zlib.crc32(content)


def _tail(content: memoryview) -> int:
    """Bytes of a footer and of what comes after it."""
    return int.from_bytes(content[-_END:-4], "little") + _END


def parquet_holds(file: BinaryIO) -> bool | None:
    """Whether a Parquet file is as it was written; None where it has no checksum."""
    place = parquet_place(file)
    if place is None:
        return None
    crc = _crc_of(file, place)
    file.seek(place)
    return file.read(8) == b"%08x" % crc


def parquet_place(file: BinaryIO) -> int | None:
    """Where the checksum stands in a Parquet file."""
    size = file.seek(0, os.SEEK_END)
    length = footer_length(file)
    if not 0 < length <= size - _END:
        return None
    file.seek(size - _END - length)
    found = list(_PLACE.finditer(file.read(length)))
    return size - _END - length + found[-1].end() if found else None


def footer_length(file: BinaryIO) -> int:
    """How many bytes the footer of a Parquet file takes, as its end says; 0 if it has no end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END))
    end = file.read(_END)
    length = int.from_bytes(end[:4], "little")
    return length if end[4:] == b"PAR1" and length <= size else 0


def _crc_of(file: BinaryIO, place: int) -> int:
    file.seek(0)
    crc, left = 0, place
    while left and (block := file.read(min(_BLOCK, left))):
        crc, left = zlib.crc32(block, crc), left - len(block)
    crc = zlib.crc32(BLANK.encode(), crc)
    file.seek(place + len(BLANK))
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    return crc


def sealed_json(content: Mapping[str, Any], indent: int | None = None) -> str:
    """A JSON object with the checksum of its text as its last entry."""
    bare = {key: value for key, value in content.items() if key != KEY}
    text = json.dumps({**bare, KEY: BLANK}, indent=indent, default=_redacted)
    head, _, tail = text.rpartition(BLANK)
    return f"{head}{zlib.crc32(text.encode()):08x}{tail}"


def _redacted(value: object) -> str:
    return redaction.text(text_of(value))


def json_holds(data: bytes) -> bool | None:
    """Whether a JSON file is as it was written; None where it has no checksum."""
    found = list(_PLACE.finditer(data))
    if not found:
        return None
    place = found[-1].end()
    blank = data[:place] + BLANK.encode() + data[place + len(BLANK) :]
    return data[place : place + len(BLANK)] == b"%08x" % zlib.crc32(blank.rstrip())
