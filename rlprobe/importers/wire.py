"""Protocol buffer messages, field by field, without generated code.

Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

Field = tuple[int, int | memoryview]  # field number; a varint, or the bytes of anything else

_FIXED = {1: 8, 5: 4}


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of one message in order; nested messages come as their bytes.

    Raises:
        ValueError: the bytes are no message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _short(message, at)
        kind = key & 7
        if kind == 2:
            size, at = _short(message, at)
        elif kind == 0:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        else:
            size = _fixed_size(kind)
        following = at + size
        if following > end:
            raise ValueError("a field reaches over the end of its message")
        yield key >> 3, message[at:following]
        at = following


def _short(message: memoryview, at: int) -> tuple[int, int]:
    """A varint that is usually one byte long."""
    if at < len(message) and (byte := message[at]) < 0x80:
        return byte, at + 1
    return varint(message, at)


def _fixed_size(kind: int) -> int:
    size = _FIXED.get(kind)
    if size is None:
        raise ValueError(f"wire type {kind}")
    return size


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """The unsigned varint at a position, and the position after it."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise ValueError("a number that does not end")


def signed(value: int) -> int:
    """A varint as int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: int | memoryview) -> str:
    """The text of a string field; bytes that are no UTF-8 are replaced."""
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


def first(message: memoryview, number: int) -> int | memoryview | None:
    """The first field of this number, if there is one."""
    return next((value for found, value in fields(message) if found == number), None)
