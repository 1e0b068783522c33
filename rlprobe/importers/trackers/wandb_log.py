"""The framing of `.wandb` files: records in blocks of 32 KiB, as LevelDB writes its log.

A file starts with `:W&B`, a magic number and a version. A record's header is `crc, length, type`;
the type tells a whole record from the first, middle and last part of one. Unlike LevelDB's, the
checksum is the CRC-32 of zlib over the type and the data.

Format: LevelDB, `doc/log_format.md`; W&B, `core/pkg/leveldb` (Go).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct

from rlprobe.importers.byte_stream import ByteStream

MARK = b":W&B"
_FILE_HEADER = 7
_BLOCK = 32_768
_HEADER = Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST, _LOST = 1, 2, 3, 4, 0
_LARGEST_RECORD = 64 * 1024 * 1024


def records(file: ByteStream, problems: list[str]) -> Iterator[bytes]:
    """The records of a file. Damage costs a record or the rest of its block, and is told."""
    parts: bytearray | None = None  # the record of which parts have been seen
    for kind, data in _fragments(file, problems):
        if kind == _WHOLE:
            parts = None
            yield data
        elif kind == _FIRST:
            parts = bytearray(data)
        elif kind not in {_MIDDLE, _LAST} or parts is None:
            parts = None
        else:
            parts += data
            if kind == _LAST:
                yield bytes(parts)
            if kind == _LAST or len(parts) > _LARGEST_RECORD:
                parts = None
    if parts is not None:
        problems.append("cut off in the last record")


def _fragments(file: ByteStream, problems: list[str]) -> Iterator[tuple[int, bytes]]:
    """Type and data of each part; type 0 where something was lost."""
    begin, number = _FILE_HEADER, 0
    while block := file.read(_BLOCK):
        yield from _in_block(block, begin, number * _BLOCK, problems)
        begin, number = 0, number + 1


def _in_block(
    block: bytes, at: int, before: int, problems: list[str]
) -> Iterator[tuple[int, bytes]]:
    torn = len(block) < _BLOCK  # the last block of the file
    while at + _HEADER.size <= len(block):
        crc, length, kind = _HEADER.unpack_from(block, at)
        if crc == length == kind == 0:
            return  # zeros to the end of the block
        following = at + _HEADER.size + length
        if _is_whole(block, at):
            yield kind, block[at + _HEADER.size : following]
            at = following
            continue
        yield _LOST, b""
        if following > len(block) and torn:
            problems.append(f"cut off in the record at byte {before + at:,}")
            return
        if not _is_whole(block, following):  # so that the length is not to be trusted either
            problems.append(f"damaged at byte {before + at:,}: the rest of its block is left out")
            return
        problems.append(f"damaged at byte {before + at:,}: one record left out")
        at = following
    if torn and at < len(block):
        problems.append(f"cut off at byte {before + at:,}")


def _is_whole(block: bytes, at: int) -> bool:
    """Whether a record with its checksum lies here."""
    first = at + _HEADER.size
    if first > len(block):
        return False
    crc, length, kind = _HEADER.unpack_from(block, at)
    data = block[first : first + length]
    whole: bool = len(data) == length and zlib.crc32(data, zlib.crc32(bytes([kind]))) == crc
    return whole
