"""Writes the binary formats that importers read: a few lines each, independent of the readers."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def float_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def event(step: int, *values: bytes, wall: float = 1e9) -> bytes:
    """One event; a step of 0 is not written, as protobuf does."""
    numbered = number_field(2, step) if step else b""
    summary = b"".join(bytes_field(1, value) for value in values)
    return double_field(1, wall) + numbered + bytes_field(5, summary)


def plain(tag: str, value: float) -> bytes:
    return bytes_field(1, tag) + float_field(2, value)


def tensor(tag: str, dtype: int, *content: bytes, shape: Iterable[int] = ()) -> bytes:
    """A value that holds a tensor, with the metadata of the scalars plugin."""
    dimensions = b"".join(bytes_field(2, number_field(1, size)) for size in shape)
    inner = number_field(1, dtype) + bytes_field(2, dimensions) + b"".join(content)
    plugin = bytes_field(9, bytes_field(1, bytes_field(1, "scalars")))
    return bytes_field(1, tag) + plugin + bytes_field(8, inner)


def version() -> bytes:
    return double_field(1, 1e9) + bytes_field(3, "brain.Event:2")


def event_file(path: Path, *events: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(tfrecord(item) for item in (version(), *events)))
    return path


_BLOCK = 32_768


def wandb_bytes(records: Iterable[bytes]) -> bytes:
    """A `.wandb` file of these records."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        rest, begun = record, False
        while True:
            room = _BLOCK - len(out) % _BLOCK
            if room < 7:
                out += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(False, False): 1, (False, True): 2, (True, True): 3, (True, False): 4}[
                begun, bool(rest)
            ]
            crc = zlib.crc32(bytes([kind]) + part)
            out += struct.pack("<IHB", crc, len(part), kind) + part
            begun = True
            if not rest:
                break
    return bytes(out)


def history(row: Mapping[str, Any], *, nested: bool = True, step: int | None = None) -> bytes:
    """A history record; keys as newer (`nested_key`) or older clients write them."""
    items = b"".join(
        bytes_field(1, bytes_field(2 if nested else 1, key) + bytes_field(16, json.dumps(value)))
        for key, value in row.items()
    )
    numbered = b"" if step is None else bytes_field(2, number_field(1, step))
    return bytes_field(2, items + numbered)


def run_record(config: Mapping[str, Any]) -> bytes:
    items = b"".join(
        bytes_field(1, bytes_field(1, key) + bytes_field(16, json.dumps(value)))
        for key, value in config.items()
    )
    return bytes_field(17, bytes_field(1, "run-id") + bytes_field(4, items))


def metric_record(step_metric: str, pattern: str = "*") -> bytes:
    return bytes_field(12, bytes_field(2, pattern) + bytes_field(4, step_metric))


def output_record(line: str) -> bytes:
    return bytes_field(13, number_field(1, 1) + bytes_field(3, line))


def exit_record(code: int) -> bytes:
    return bytes_field(18, number_field(1, code))


def swanlab_bytes(records: Iterable[bytes], version: int = 2) -> bytes:
    """A `.swanlab` file: the framing of `.wandb` under another mark."""
    return b":SWL" + struct.pack("<HB", 0xE1D6, version) + wandb_bytes(records)[7:]


def swanlab_record(number: int, content: bytes) -> bytes:
    """A record of SwanLab 0.8 and later: its number, when it was written, and what it is."""
    time = bytes_field(2, number_field(1, 1_700_000_000))
    return number_field(1, 4) + time + bytes_field(number, content)


def swanlab_scalar(key: str, step: int, value: float) -> bytes:
    """A scalar; what is nought is not written."""
    numbered = number_field(2, step) if step else b""
    held = double_field(1, value) if value else b""
    return swanlab_record(13, bytes_field(1, key) + numbered + bytes_field(5, held))
