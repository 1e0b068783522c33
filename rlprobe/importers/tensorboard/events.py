"""TensorBoard events -> points. Whole blocks at once where events have the usual shape.

    Event   {1 wall_time double, 2 step int64, 5 summary}
    Summary {1 repeated Value}
    Value   {1 tag, 2 simple_value float, 8 tensor, 9 metadata}
    Tensor  {1 dtype, 2 shape, 4 content, 5 float_val, 6 double_val, 7 int_val, 10 int64_val,
             11 bool_val, 13 half_val, 16 uint32_val, 17 uint64_val}

Format: TensorFlow, `tensorflow/core/util/event.proto`, `framework/{summary,tensor}.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from rlprobe.importers import wire
from rlprobe.importers.points import Points
from rlprobe.importers.tensorboard.scalar import Scalar, scalar_of
from rlprobe.importers.tensorboard.tfrecord import Block, Damage
from rlprobe.values import BoolArray, IntArray

_DOUBLE = Struct("<d")
_LONGEST = 256  # bytes of a value without its tag that is looked at at once
_MOST_SHAPES = 32  # shapes of a value that are looked at at once, per length of it


@dataclass
class EventReader:
    """Collects the scalar points of one event file.

    Attributes:
        tags: number of each tag.
        damage: records that could not be read.
    """

    damage: Damage
    tags: dict[bytes, int] = field(default_factory=dict)
    _points: list[Points] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Read the events of one block."""
        usual = _usual(block)
        rows, values = _values(block, usual)
        intact = block.intact(usual.rows[rows])
        self.damage.records += int((~intact).sum())
        sound = rows[intact]
        points = Points(
            self._numbers(block, usual.tag[sound], usual.rest[sound]),
            usual.step[sound],
            usual.wall[sound],
            values[intact],
            np.zeros(len(sound), dtype=np.int64),
        )
        others = np.setdiff1d(np.arange(len(block.starts)), usual.rows[rows])
        one_by_one, positions = self._careful(block, others)
        order = np.argsort(np.concatenate([usual.rows[sound], positions]), kind="stable")
        self._points.append(Points.joined([points, one_by_one]).take(order))

    def points(self) -> Points:
        """All points, in the order of the file."""
        return Points.joined(self._points)

    def _numbers(self, block: Block, starts: IntArray, ends: IntArray) -> IntArray:
        data, tags = block.data, self.tags
        words = [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        for word in dict.fromkeys(words):
            tags.setdefault(word, len(tags))
        return np.fromiter(map(tags.__getitem__, words), np.int64, len(words))

    def _careful(self, block: Block, rows: IntArray) -> tuple[Points, IntArray]:
        """Events of any other shape, one by one; with the row of each point."""
        singles: list[tuple[int, int, float, float, int]] = []
        view = memoryview(block.data)
        for row in rows.tolist():
            start = int(block.starts[row])
            event = view[start : start + int(block.lengths[row])]
            try:
                scalars = list(_scalars(event))
            except ValueError:
                self.damage.records += 1
                continue
            if scalars and not block.intact(np.array([row]))[0]:
                self.damage.records += 1
                continue
            for tag, step, wall, value in scalars:
                singles.append((self.tags.setdefault(tag, len(self.tags)), step, wall, value, row))
        columns = list(zip(*singles, strict=True)) if singles else [()] * 5
        points = Points.of(*columns[:4])
        return points, np.array(columns[4], dtype=np.int64)


def _scalars(event: memoryview) -> list[tuple[bytes, int, float, float]]:
    """Tag, step, wall time and value of each scalar of an event."""
    wall, step = 0.0, 0
    summaries: list[memoryview] = []
    for number, value in wire.fields(event):
        if number == 1 and not isinstance(value, int) and len(value) == 8:
            (wall,) = _DOUBLE.unpack(value)
        elif number == 2 and isinstance(value, int):
            step = wire.signed(value)
        elif number == 5 and not isinstance(value, int):
            summaries.append(value)
    return [
        (tag, step, wall, number)
        for summary in summaries
        for field_, value in wire.fields(summary)
        if field_ == 1 and not isinstance(value, int)
        for tag, number in _tagged(value)
    ]


def _tagged(value: memoryview) -> list[tuple[bytes, float]]:
    tag = wire.first(value, 1)
    scalar = scalar_of(value)
    if scalar is None or tag is None or isinstance(tag, int):
        return []
    return [(bytes(tag), scalar.number)]


@dataclass(frozen=True)
class _Usual:
    """Events with one value whose tag comes first, which is nearly all; arrays over `rows`.

    Attributes:
        tag, rest, end: where the tag, the rest of the value, and the end of it lie.
    """

    rows: IntArray
    step: IntArray
    wall: NDArray[np.float64]
    tag: IntArray
    rest: IntArray
    end: IntArray


def _usual(block: Block) -> _Usual:
    octets = block.octets
    most = len(octets) - 16
    at, end = block.starts, block.starts + block.lengths
    fits = (block.lengths >= 16) & (octets[at] == 0x09)
    wall = _gather(octets, at + 1, 8).view("<f8").reshape(-1)
    has_step = octets[at + 9] == 0x10
    step, after = _varints(octets, at + 10)
    step, at = np.where(has_step, step, 0), np.where(has_step, after, at + 9)
    for key in (0x2A, 0x0A):
        fits &= octets[np.minimum(at, most)] == key
        size, at = _varints(octets, at + 1)
        fits &= at + size == end
    fits &= octets[np.minimum(at, most)] == 0x0A
    size, tag = _varints(octets, at + 1)
    fits &= (size >= 0) & (size < end - tag)
    rows = np.flatnonzero(fits)
    return _Usual(rows, step[rows], wall[rows], tag[rows], tag[rows] + size[rows], end[rows])


def _gather(octets: NDArray[np.uint8], at: IntArray, width: int) -> NDArray[np.uint8]:
    most = len(octets) - width
    spread = octets[np.minimum(at, most)[:, None] + np.arange(width)]
    return np.ascontiguousarray(spread)


def _varints(octets: NDArray[np.uint8], at: IntArray) -> tuple[IntArray, IntArray]:
    """The varint at each position, and the position after it."""
    value = np.zeros(len(at), dtype=np.uint64)
    at = np.minimum(at, len(octets) - 16)
    live: BoolArray = np.ones(len(at), dtype=np.bool_)
    for index in range(10):
        byte = octets[at]
        bits = (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        value |= np.where(live, bits, np.uint64(0))
        at = at + live
        live &= byte >= 0x80
        if not live.any():
            break
    return value.view(np.int64), np.minimum(at, len(octets) - 16)


def _values(block: Block, usual: _Usual) -> tuple[IntArray, NDArray[np.float64]]:
    """The scalars among values: which (positions in `usual`), and their numbers.

    Values of the same shape differ in nothing but the number, so that the first of a shape tells
    where the number lies in all of them.
    """
    rows: list[IntArray] = [np.empty(0, dtype=np.int64)]
    numbers: list[NDArray[np.float64]] = [np.empty(0)]
    lengths = usual.end - usual.rest
    for length in np.flatnonzero(np.bincount(lengths[lengths <= _LONGEST])).tolist():
        waiting = np.flatnonzero(lengths == length)
        for _ in range(_MOST_SHAPES):
            if not len(waiting):
                break
            matrix = _gather(block.octets, usual.rest[waiting], length)
            scalar = _first_scalar(matrix)
            alike = _alike(matrix, scalar)
            if scalar is not None:
                rows.append(waiting[alike])
                numbers.append(_decoded(matrix[alike], scalar))
            waiting = waiting[~alike]
    return np.concatenate(rows), np.concatenate(numbers)


def _first_scalar(matrix: NDArray[np.uint8]) -> Scalar | None:
    try:
        scalar = scalar_of(memoryview(matrix[0].tobytes()))
    except ValueError:
        return None
    return scalar if scalar and scalar.kind else None


def _alike(matrix: NDArray[np.uint8], scalar: Scalar | None) -> BoolArray:
    differs = matrix != matrix[0]
    if scalar is not None:
        differs[:, scalar.at : scalar.at + scalar.width] = False
    alike: BoolArray = ~differs.any(axis=1)
    return alike


def _decoded(matrix: NDArray[np.uint8], scalar: Scalar) -> NDArray[np.float64]:
    part = np.ascontiguousarray(matrix[:, scalar.at : scalar.at + scalar.width])
    if scalar.kind == "bfloat16":
        words = part.view("<u2").reshape(-1).astype(np.uint32) << np.uint32(16)
        numbers = words.view(np.float32)
    else:
        numbers = part.view(scalar.kind).reshape(-1)
    with np.errstate(invalid="ignore"):  # a signalling NaN, which some writers store
        return numbers.astype(np.float64)
