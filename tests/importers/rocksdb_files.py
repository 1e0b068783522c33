"""Writes the files of a RocksDB database: sorted tables and write-ahead logs, a few lines each."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import pyarrow as pa

from tests.importers.encoders import masked, varint

Stored = Mapping[bytes, bytes | None]  # None: deleted


def _with_restarts(entries: bytes) -> bytes:
    return entries + struct.pack("<II", 0, 1)


def _finished(block: bytes, *, snappy: bool) -> bytes:
    """A block with its compression and checksum behind it."""
    data = pa.Codec("snappy").compress(block, asbytes=True) if snappy else block
    kind = bytes([int(snappy)])
    return data + kind + masked(data + kind)


def table(stored: Stored, first: int = 1, *, snappy: bool = True, per_block: int = 5) -> bytes:
    """A sorted table in blocks of a few entries; keys share their beginnings."""
    keys = sorted(stored)
    out, index, entries, before = b"", b"", b"", b""
    for place, key in enumerate(keys):
        value = stored[key]
        mark = struct.pack("<Q", (first + place) << 8 | (value is not None))
        whole, shared = key + mark, 0
        while entries and shared < min(len(before), len(key)) and before[shared] == key[shared]:
            shared += 1
        rest, content = whole[shared:], value or b""
        entries += varint(shared) + varint(len(rest)) + varint(len(content)) + rest + content
        before = whole
        if place % per_block == per_block - 1 or place == len(keys) - 1:
            block = _finished(_with_restarts(entries), snappy=snappy)
            index += varint(0) + varint(len(key)) + key + varint(len(out)) + varint(len(block) - 5)
            out, entries = out + block, b""
    block = _finished(_with_restarts(index), snappy=False)
    handles = varint(0) + varint(0) + varint(len(out)) + varint(len(block) - 5)
    footer = b"\1" + handles.ljust(40, b"\0") + struct.pack("<IQ", 5, 0x88E241B785F4CFF7)
    return out + block + footer


def log(batches: Iterable[Stored], first: int = 1_000) -> bytes:
    """A write-ahead log with one fragment, or more, for each batch."""
    out = bytearray()
    for stored in batches:
        batch = struct.pack("<QI", first, len(stored)) + b"\x0d"  # and one entry of nothing
        for key, value in stored.items():
            batch += bytes([value is not None]) + varint(len(key)) + key
            batch += b"" if value is None else varint(len(value)) + value
        batch += b"\x0f" + varint(1) + b"a" + varint(1) + b"b"  # a range that is deleted
        first += len(stored) + 1
        begun = False
        while batch:
            room = 32_768 - len(out) % 32_768
            if room < 7:
                out += bytes(room)
                continue
            part, batch = batch[: room - 7], batch[room - 7 :]
            kind = {(False, False): 1, (False, True): 2, (True, True): 3, (True, False): 4}[
                begun, bool(batch)
            ]
            out += masked(bytes([kind]) + part) + struct.pack("<HB", len(part), kind) + part
            begun = True
    return bytes(out)
