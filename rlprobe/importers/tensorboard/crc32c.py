"""CRC-32C (Castagnoli) of many pieces of one buffer at once, as TensorFlow masks it.

Reference: RFC 3720, appendix B.4; the mask: TensorFlow, `tensorflow/core/lib/hash/crc32c.h`.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from rlprobe.values import IntArray

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
Words = NDArray[np.uint32]


@functools.cache
def _table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


def masked(data: NDArray[np.uint8], starts: IntArray, lengths: IntArray) -> Words:
    """The masked checksum of `data[start:start + length]` for each start."""
    table = _table()
    order = np.argsort(-lengths, kind="stable")
    at, sizes = starts[order], lengths[order]
    crc = np.full(len(at), 0xFFFF_FFFF, dtype=np.uint32)
    longest = int(sizes[0]) if len(sizes) else 0
    # Longest first, so that the pieces that still go on at byte i are a prefix.
    live = np.searchsorted(-sizes, -np.arange(longest), side="left")
    for index in range(longest):
        part = crc[: live[index]]
        byte = data[at[: len(part)] + index]
        crc[: len(part)] = table[(part ^ byte) & 0xFF] ^ (part >> 8)
    crc = ~crc
    rotated = (crc >> 15) | (crc << 17)
    found = np.empty_like(crc)
    found[order] = rotated + np.uint32(_MASK_DELTA)
    return found


def words_at(data: NDArray[np.uint8], starts: IntArray) -> Words:
    """The little-endian 32-bit words at these positions."""
    spread = data[starts[:, None] + np.arange(4)]
    return np.ascontiguousarray(spread).view("<u4").reshape(-1)
