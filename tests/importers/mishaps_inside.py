"""What may stand inside a file whose form is right: values, rows and records of any kind."""

from __future__ import annotations

import io
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.importers.encoders import tfrecord
from tests.importers.mishaps import CHANGES, WORDS, Change

_ODD: tuple[Any, ...] = (
    *(None, 1e300, -1e300, float("inf"), 2**62, 2**63 - 1, -(2**63), -1, -5, 0.5, 3.0, "7", ""),
    *("x", "nan", b"\xff\xfe", b"", "1e400", "9" * 400, "[" * 5000, "{}", "[]", "\x1b[2J", "a\0b"),
)
_FRAME = struct.Struct("<Q")
_BLOCK_HEAD = struct.Struct("<IHB")
_LEVEL_LOG = (b":W&B", b":SWL")


def changes(data: bytes | bytearray) -> Sequence[Change]:
    """What can happen inside a file, by how it begins."""
    if data.startswith(b"SQLite format 3"):
        return (_cell,)
    if data.startswith(b"PAR1"):
        return (_column,)
    if data.startswith(_LEVEL_LOG):
        return (_logged,)
    if len(data) > 12 and _FRAME.unpack_from(data)[0] < len(data):
        return (_event,)
    return ()


def _cell(data: bytearray, random: Random) -> None:
    """A cell of a database gets a value of another kind, or the text in it is harmed."""
    db = sqlite3.connect(":memory:")
    try:
        db.deserialize(bytes(data))
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE sql > ''")]
        table = random.choice(tables)
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
        rows = [row[0] for row in db.execute(f'SELECT rowid FROM "{table}"')]
        column, row = random.choice(columns), random.choice(rows)
        where = "" if random.random() < 0.1 else f" WHERE rowid = {row}"
        (old,) = db.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = {row}').fetchone()
        new = random.choice(_ODD)
        if isinstance(old, str) and random.random() < 0.7:
            text = bytearray(old.encode() or b"0")
            random.choice(CHANGES)(text, random)
            new = text.decode("utf-8", "replace")
        db.execute(f'UPDATE "{table}" SET "{column}" = ?{where}', (new,))
        db.commit()
        data[:] = db.serialize()
    except (sqlite3.Error, LookupError, OverflowError, TypeError, ValueError):  # harmed before
        return
    finally:
        db.close()


def _column(data: bytearray, random: Random) -> None:
    """A column of a table gets another type, other values, or another name."""
    try:
        table = pq.read_table(io.BytesIO(data))
        names = table.column_names
    except (pa.ArrowException, OSError, ValueError):
        return
    if not table.num_columns:
        return
    at, size = random.randrange(table.num_columns), table.num_rows
    name = names[at]
    values: list[Any] = random.choice(
        [
            [[1, 2]] * size,
            ["nan"] * size,
            [None] * size,
            [True] * size,
            [{"a": 1}] * size,
            [2**63 - 1] * size,
            [1e300] * size,
            [b"\xff"] * size,
            [-1] * size,
            [float("nan")] * size,
        ]
    )
    field = name if random.random() < 0.8 else random.choice(["step", "a\x1b[2J", "", name * 2])
    out = io.BytesIO()
    pq.write_table(table.set_column(at, field, pa.array(values)), out)
    data[:] = out.getvalue()


def _event(data: bytearray, random: Random) -> None:
    """A record of TensorBoard is harmed, and its checksum is right."""
    records, at = [], 0
    while at + 16 <= len(data):
        (length,) = _FRAME.unpack_from(data, at)
        if at + 16 + length > len(data):
            break
        records.append(bytearray(data[at + 12 : at + 12 + length]))
        at += 16 + length
    if records:
        _harm_one(records, random)
        data[:] = b"".join(tfrecord(bytes(record)) for record in records)


def _logged(data: bytearray, random: Random) -> None:
    """A record of W&B or SwanLab is harmed, and its checksum is right."""
    records, at = [], 7
    while at + 7 <= len(data) and at < 32_000:
        _, length, kind = _BLOCK_HEAD.unpack_from(data, at)
        if kind != 1 or at + 7 + length > len(data):
            break
        records.append(bytearray(data[at + 7 : at + 7 + length]))
        at += 7 + length
    if records:
        _harm_one(records, random)
        whole = b"".join(_framed(bytes(record)) for record in records)
        if len(whole) < 32_000:
            data[7:at] = whole


def _framed(record: bytes) -> bytes:
    record = record[:30_000]
    return _BLOCK_HEAD.pack(zlib.crc32(b"\1" + record), len(record), 1) + record


def _harm_one(records: list[bytearray], random: Random) -> None:
    record = random.choice(records)
    if record:
        random.choice(CHANGES)(record, random)
    else:
        record += random.choice(WORDS)[:64]
