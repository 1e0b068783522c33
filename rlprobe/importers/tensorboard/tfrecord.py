"""The framing of TensorBoard event files: records of `length, crc, data, crc`.

All numbers are little-endian; both checksums are masked CRC-32C. Read block by block, so that
memory is bounded by the block and not by the file.

Format: TensorFlow, `tensorflow/core/lib/io/record_writer.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from rlprobe._lazy import cached_property
from rlprobe.importers.byte_stream import ByteStream
from rlprobe.importers.tensorboard import crc32c
from rlprobe.values import BoolArray, IntArray

BLOCK = 16 * 1024 * 1024
LARGEST_RECORD = 64 * 1024 * 1024  # a larger one is an image or a graph, and is passed over
MOST_DAMAGES = 100  # damaged places after which a file is given up
PADDING = 64  # bytes after a block that may be looked at without asking
_HEADER = 12
_FRAME = 16
_LENGTH = Struct("<Q")


@dataclass
class Damage:
    """What could not be read of one file, as sentences."""

    places: list[str] = field(default_factory=list)
    records: int = 0

    @property
    def too_much(self) -> bool:
        """Whether to give up."""
        return len(self.places) >= MOST_DAMAGES


@dataclass(frozen=True)
class Block:
    """Whole records: where the data of each begins in `data`, and how long it is."""

    data: bytes
    starts: IntArray
    lengths: IntArray

    @cached_property
    def octets(self) -> NDArray[np.uint8]:
        """The data as an array, with PADDING behind it."""
        padded = np.zeros(len(self.data) + PADDING, dtype=np.uint8)
        padded[: len(self.data)] = np.frombuffer(self.data, dtype=np.uint8)
        return padded

    def intact(self, rows: IntArray) -> BoolArray:
        """Whether the data of these records has its checksum."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        wanted = crc32c.words_at(self.octets, starts + lengths)
        intact: BoolArray = crc32c.masked(self.octets, starts, lengths) == wanted
        return intact


def blocks(file: ByteStream, damage: Damage) -> Iterator[Block]:
    """The records of a file, in blocks. Damage is passed over and told."""
    held, before = b"", 0  # bytes kept from the last block; where they lie in the file
    while not damage.too_much:
        fresh = file.read(BLOCK)
        data = held + fresh
        if not fresh:
            if data:
                damage.places.append(f"cut off in the record at byte {before:,}")
            return
        scanned = _scan(data, before, damage)
        yield from _block(data, scanned)
        over = scanned.end - len(data)
        held = data[scanned.end :]
        before += scanned.end
        if over > 0 and file.skip(over) < over:
            damage.places.append(f"cut off in the record at byte {before - over:,}")
            return


@dataclass
class _Scan:
    """Where records lie in a block; `end` lies behind it where a large record is passed over."""

    headers: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    end: int = 0


def _block(data: bytes, scanned: _Scan) -> Iterator[Block]:
    if scanned.headers:
        starts = np.array(scanned.headers, dtype=np.int64) + _HEADER
        yield Block(data, starts, np.array(scanned.lengths, dtype=np.int64))


def _scan(data: bytes, before: int, damage: Damage) -> _Scan:
    scanned = _Scan()
    headers: IntArray | None = None
    while not damage.too_much:
        part = _follow(data, scanned.end)
        good = _good_headers(data, part.headers)
        scanned.headers += part.headers[:good]
        scanned.lengths += part.lengths[:good]
        if good == len(part.headers) and _whole_or_waiting(data, part.end):
            scanned.end = part.end
            break
        lost = part.headers[good] if good < len(part.headers) else part.end
        headers = _all_headers(data) if headers is None else headers
        scanned.end = _next_header(headers, lost, len(data))
        damage.places.append(
            f"{scanned.end - lost:,} damaged bytes passed over at byte {before + lost:,}"
        )
        if scanned.end + _HEADER > len(data):
            break
    return _pass_over_large(data, scanned)


def _follow(data: bytes, at: int) -> _Scan:
    """Records from here on, believing every length."""
    headers: list[int] = []
    lengths: list[int] = []
    unpack, end = _LENGTH.unpack_from, len(data)
    last = end - _FRAME
    while at <= last:
        (length,) = unpack(data, at)
        if at + _FRAME + length > end:
            break
        headers.append(at)
        lengths.append(length)
        at += _FRAME + length
    return _Scan(headers, lengths, at)


def _good_headers(data: bytes, headers: list[int]) -> int:
    """How many of these headers, from the first on, have their checksum."""
    if not headers:
        return 0
    good = _valid(np.frombuffer(data, dtype=np.uint8), np.array(headers, dtype=np.int64))
    return len(headers) if good.all() else int(np.argmin(good))


def _valid(octets: NDArray[np.uint8], at: IntArray) -> BoolArray:
    found = crc32c.masked(octets, at, np.full(len(at), 8, dtype=np.int64))
    valid: BoolArray = found == crc32c.words_at(octets, at + 8)
    return valid


def _whole_or_waiting(data: bytes, at: int) -> bool:
    """Whether what begins here may be a record that the block does not hold whole."""
    return at + _HEADER > len(data) or _good_headers(data, [at]) == 1


def _all_headers(data: bytes) -> IntArray:
    """Every position of a block that could be a header, by its checksum."""
    octets = np.frombuffer(data, dtype=np.uint8)
    headers = [np.empty(0, dtype=np.int64)]
    for first in range(0, max(0, len(data) - _HEADER + 1), 1 << 20):
        last = min(first + (1 << 20), len(data) - _HEADER + 1)
        at = np.arange(first, last, dtype=np.int64)
        headers.append(at[_valid(octets, at)])
    return np.concatenate(headers)


def _next_header(headers: IntArray, lost: int, size: int) -> int:
    later = int(np.searchsorted(headers, lost, side="right"))
    # Without one the last bytes are kept: they may be the beginning of a header.
    return int(headers[later]) if later < len(headers) else max(lost + 1, size - _HEADER + 1)


def _pass_over_large(data: bytes, scanned: _Scan) -> _Scan:
    if scanned.end + _HEADER <= len(data):
        (length,) = _LENGTH.unpack_from(data, scanned.end)
        if length > LARGEST_RECORD and _good_headers(data, [scanned.end]):
            scanned.end += _FRAME + length
    return scanned
