"""The keys and values of a RocksDB database, without RocksDB: its tables and its write-ahead log.

A database is a directory of sorted tables (`NNN.sst`) and logs of what is in no table yet
(`NNN.log`). All are read, and of several values of a key the one with the highest sequence number
counts: which tables are live does not matter then.

    table   blocks of entries `shared, rest, size | key | value`, each block with its compression
            and a checksum behind it; an index of the blocks; a footer of 53 bytes
    key     the user's key, and `sequence << 8 | type` in 8 bytes
    log     fragments `crc, length, type | data` in blocks of 32 KiB, which make up batches
    batch   sequence, count, then `type | key | value` each

Format: RocksDB, `table/format.h`, `table/block_based/block.cc`, `db/log_format.h`,
`db/write_batch.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct, error

import numpy as np

from rlprobe.errors import InputError
from rlprobe.importers import wire
from rlprobe.importers.tensorboard import crc32c

_MAGIC = 0x88E241B785F4CFF7
_FOOTER, _TRAILER = 53, 5
_PLAIN, _SNAPPY = 0, 1
_DELETED, _VALUE, _REMARK, _NOTHING, _RANGE = 0, 1, 3, 13, 15
_OF_FAMILY = {4: _DELETED, 5: _VALUE, 14: _RANGE}  # types whose entry names a column family first
_CRC32C = 1  # the kind of checksum that is looked at
_LARGEST_BLOCK = 1024 * 1024  # a larger one holds a single value, which is no number
_MOST_BYTES = 4 * 1024**3
_LOG_BLOCK, _LOG_HEADER = 32_768, Struct("<IHB")
_WHOLE, _FIRST, _LAST, _KINDS = 1, 2, 4, frozenset({1, 2, 3, 4})
_U32, _U64 = Struct("<I"), Struct("<Q")
_FAILS = (error, ValueError, IndexError, OSError, OverflowError)

Entry = tuple[int, int, bytes, bytes]  # sequence, type, key, value


def read(directory: Path, problems: list[str]) -> dict[bytes, bytes]:
    """Every key of a database with its value. Damage costs a block, or the rest of a log."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    size = 0
    for path in files_of(directory):
        size += path.stat().st_size
        if size > _MOST_BYTES:
            raise InputError(f"Couldn't read '{directory}': more than {_MOST_BYTES // 2**30} GB")
        entries = _table(path, problems) if path.suffix == ".sst" else _log(path, problems)
        for sequence, kind, key, value in entries:
            if sequence >= newest.get(key, (-1, None))[0]:
                newest[key] = sequence, value if kind == _VALUE else None
    return {key: value for key, (_, value) in newest.items() if value is not None}


def files_of(directory: Path) -> list[Path]:
    """Its tables and logs that hold anything: one that is being written is empty at first."""
    files = sorted(path for path in directory.iterdir() if path.suffix in (".sst", ".log"))
    return [path for path in files if path.is_file() and path.stat().st_size]


# --- tables -----------------------------------------------------------------------------------


def _table(path: Path, problems: list[str]) -> Iterator[Entry]:
    """The entries of a sorted table."""
    try:
        content = path.read_bytes()
        handles = [handle for handle in _handles(content) if handle[1] <= _LARGEST_BLOCK]
        sound = _sound(content, handles)
    except _FAILS as problem:
        problems.append(f"{path.name} is damaged: {problem}")
        return
    for (at, size), intact in zip(handles, sound, strict=True):
        try:
            if not intact:
                raise ValueError("wrong checksum")
            yield from list(_entries(_block(content, at, size)))
        except _FAILS as problem:
            problems.append(f"{path.name}: the block at {at:,} is damaged: {problem}")


def _sound(content: bytes, handles: list[tuple[int, int]]) -> list[bool]:
    """Whether the checksum behind each block is its own."""
    if content[len(content) - _FOOTER] != _CRC32C:
        return [True] * len(handles)
    places = [(at, size + 1) for at, size in handles if at + size + _TRAILER <= len(content)]
    sums = iter(_checksums(content, places))
    return [
        at + size + _TRAILER <= len(content)
        and next(sums) == _U32.unpack_from(content, at + size + 1)[0]
        for at, size in handles
    ]


def _checksums(content: bytes, places: list[tuple[int, int]]) -> list[int]:
    octets = np.frombuffer(content, dtype=np.uint8)
    starts = np.array([at for at, _ in places], dtype=np.int64)
    lengths = np.array([size for _, size in places], dtype=np.int64)
    checksums: list[int] = crc32c.masked(octets, starts, lengths).tolist()
    return checksums


def _handles(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the blocks of data lie, by the index."""
    footer = memoryview(content)[-_FOOTER:]
    if len(footer) < _FOOTER or _U64.unpack_from(footer, _FOOTER - 8)[0] != _MAGIC:
        raise ValueError("no footer")
    _, at = wire.varint(footer, 1)
    _, at = wire.varint(footer, at)
    start, at = wire.varint(footer, at)
    size, at = wire.varint(footer, at)
    block = memoryview(_block(content, start, size))
    end = _end_of_entries(block)
    place = before = length = 0
    while place < end:
        shared, place = wire.varint(block, place)
        rest, place = wire.varint(block, place)
        place += rest
        if shared:  # the size alone, as a difference
            zigzag, place = wire.varint(block, place)
            before, length = before + length + _TRAILER, length + (zigzag >> 1 ^ -(zigzag & 1))
        else:
            before, place = wire.varint(block, place)
            length, place = wire.varint(block, place)
        yield before, length


def _block(content: bytes, at: int, size: int) -> bytes:
    """A block, decompressed."""
    data, kind = content[at : at + size], content[at + size]
    if kind == _PLAIN:
        return data
    if kind != _SNAPPY:
        raise ValueError(f"compression {kind}")
    import pyarrow as pa

    full, _ = wire.varint(memoryview(data), 0)
    if full > 64 * _LARGEST_BLOCK:
        raise ValueError("it swells beyond bounds")
    unpacked: bytes = pa.Codec("snappy").decompress(data, full, asbytes=True)
    return unpacked


def _end_of_entries(block: memoryview) -> int:
    """Where the entries end: behind them stand the places of some, and how many there are."""
    restarts: int = _U32.unpack_from(block, len(block) - 4)[0]
    return len(block) - 4 - 4 * (restarts & 0x7FFFFFFF)


def _entries(data: bytes) -> Iterator[Entry]:
    block = memoryview(data)
    at, end, key = 0, _end_of_entries(block), b""
    while at < end:
        shared, at = wire.varint(block, at)
        rest, at = wire.varint(block, at)
        size, at = wire.varint(block, at)
        key = key[:shared] + bytes(block[at : at + rest])
        at += rest
        (mark,) = _U64.unpack_from(key, len(key) - 8)
        yield mark >> 8, mark & 0xFF, key[:-8], bytes(block[at : at + size])
        at += size


# --- logs -------------------------------------------------------------------------------------


def _log(path: Path, problems: list[str]) -> Iterator[Entry]:
    """What is in no table yet."""
    try:
        for batch in _batches(path.read_bytes()):
            yield from list(_written(batch))
    except _FAILS as problem:
        problems.append(f"{path.name} is cut off or damaged: {problem}")


def _batches(content: bytes) -> Iterator[bytes]:
    fragments = list(_fragments(content))
    sums = _checksums(content, [(at - 1, size + 1) for _, _, at, size in fragments])
    parts = b""
    for (checksum, kind, at, size), found in zip(fragments, sums, strict=True):
        if found != checksum:
            raise ValueError("wrong checksum")
        data = content[at : at + size]
        parts = data if kind in (_WHOLE, _FIRST) else parts + data
        if kind in (_WHOLE, _LAST):
            yield parts


def _fragments(content: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Checksum, type, place and size of each; up to where the log was cut."""
    at = 0
    while at + _LOG_HEADER.size <= len(content):
        room = _LOG_BLOCK - at % _LOG_BLOCK
        if room < _LOG_HEADER.size:
            at += room
            continue
        checksum, size, kind = _LOG_HEADER.unpack_from(content, at)
        at += _LOG_HEADER.size
        if kind not in _KINDS or at + size > len(content):
            return  # space that was set aside, or the end of what a crash cut
        yield checksum, kind, at, size
        at += size


def _written(batch: bytes) -> Iterator[Entry]:
    """The entries of a batch. What is deleted by range is passed over: it is written anew after."""
    view = memoryview(batch)
    (sequence,) = _U64.unpack_from(view, 0)
    at = 12
    while at < len(view):
        kind, at = view[at], at + 1
        if kind in _OF_FAMILY:
            _, at = wire.varint(view, at)
            kind = _OF_FAMILY[kind]
        if kind == _NOTHING:
            continue
        key, at = _text(view, at)
        if kind == _REMARK:
            continue
        if kind not in (_DELETED, _VALUE, _RANGE):
            raise ValueError(f"an entry of type {kind}")
        value, at = _text(view, at) if kind != _DELETED else (b"", at)
        if kind != _RANGE:
            yield sequence, kind, key, value
        sequence += 1


def _text(view: memoryview, at: int) -> tuple[bytes, int]:
    size, at = wire.varint(view, at)
    if at + size > len(view):
        raise ValueError("an entry reaches over the end")
    return bytes(view[at : at + size]), at + size
