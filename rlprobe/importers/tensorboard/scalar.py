"""The one number in a TensorBoard value, if it is a scalar: plain or as a tensor of one element.

Format: TensorFlow, `tensorflow/core/framework/{summary,tensor,types}.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np

from rlprobe.importers import wire

# DataType -> NumPy's name of it, as it lies in `tensor_content`
_KINDS = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "|u1",
    5: "<i2",
    6: "|i1",
    9: "<i8",
    10: "|b1",
    14: "bfloat16",
    17: "<u2",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
_CONTENT, _FLOATS, _DOUBLES, _HALVES = 4, 5, 6, 13
_WHOLE = {7, 10, 11, 16, 17}
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, and where it lies in the value that holds it.

    Attributes:
        kind: NumPy's name of its bytes, or `bfloat16`; empty if it has no fixed width.
    """

    number: float
    at: int = 0
    width: int = 0
    kind: str = ""


def scalar_of(value: memoryview) -> Scalar | None:
    """The scalar of a summary's value; None if it holds anything else.

    Raises:
        ValueError: the bytes are no message.
    """
    for number, content in wire.fields(value):
        if isinstance(content, int):
            continue
        if number == 2 and len(content) == 4:
            return _fixed(content, "<f4", value)
        if number == 8:
            return _tensor(content, value)
    return None


def _fixed(content: memoryview, kind: str, whole: memoryview) -> Scalar:
    place = _offset(content, whole)
    return Scalar(_number(content, kind), place, len(content), kind)


def _offset(part: memoryview, whole: memoryview) -> int:
    """Where a part of a buffer begins in the whole of it."""
    address = np.frombuffer(part, np.uint8).__array_interface__["data"][0]
    start: int = np.frombuffer(whole, np.uint8).__array_interface__["data"][0]
    return int(address) - start


def _number(content: memoryview, kind: str) -> float:
    if kind == "bfloat16":
        return float(_FLOAT.unpack(b"\0\0" + bytes(content))[0])
    return float(np.frombuffer(content, kind)[0])


def _tensor(tensor: memoryview, whole: memoryview) -> Scalar | None:
    kind = ""
    for number, content in wire.fields(tensor):
        if number == 1 and isinstance(content, int):
            kind = _KINDS.get(content, "")
        elif number == 2 and not isinstance(content, int):
            if _elements(content) != 1:
                return None
        elif kind:
            found = _element(number, content, kind, whole)
            if found is not None:
                return found
    return None


def _elements(shape: memoryview) -> int:
    """How many elements a tensor of this shape has."""
    count = 1
    for number, dimension in wire.fields(shape):
        if number == 2 and not isinstance(dimension, int):
            size = wire.first(dimension, 1)
            count *= size if isinstance(size, int) else 0
    return count


def _element(number: int, content: int | memoryview, kind: str, whole: memoryview) -> Scalar | None:
    if isinstance(content, int):
        return _from_integer(number, content, kind)
    if number == _CONTENT:
        width = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
        return _fixed(content, kind, whole) if len(content) == width else None
    if number == _FLOATS and len(content) == 4:
        return _fixed(content, "<f4", whole)
    if number == _DOUBLES and len(content) == 8:
        return _fixed(content, "<f8", whole)
    if number in _WHOLE | {_HALVES} and content:
        packed, end = wire.varint(content, 0)
        return _from_integer(number, packed, kind) if end == len(content) else None
    return None


def _from_integer(number: int, value: int, kind: str) -> Scalar | None:
    if number == _HALVES:
        return Scalar(_number(memoryview((value & 0xFFFF).to_bytes(2, "little")), kind))
    if number in _WHOLE:
        return Scalar(float(value if kind == "<u8" else wire.signed(value)))
    return None
