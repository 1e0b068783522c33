"""Recordings that somebody made to do harm, by the hundred: every field, column and file changed.

Each case is a name and a change to a good recording. What `rlprobe` then says is judged in
`hostile_verbs`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlprobe import Recorder, schema
from rlprobe.store import checksum, shard_file

Change = Callable[[Path], object]
_NEVER = 'a"; DROP TABLE steps; --'
_ESCAPES = "\x1b[2J\u202e[bold]\n\x00"
_VALUES: tuple[Any, ...] = (
    None, "x", _ESCAPES, -1, 2**70, 10**400, 1e308, float("nan"), float("inf"), True,
    [], [1, [2]], {}, {"a": {_ESCAPES: 1}}, "\ud800",
)  # fmt: skip
_TEXTS: tuple[bytes, ...] = (
    b"", b"{", b"[]", b"5", b"null", b'"x"', b"[" * 100_000, b'{"a":' * 50_000,
    b'{"world_size": ' + b"9" * 10_000 + b"}", b'{"world_size": 1e400}', b"\xff\xfe\x00",
    b"\x00" * 99, b" " * 20_000_000, b"\xef\xbb\xbf{}", b'{"rank": 1, "rank": "x"}',
    b'{"rlprobe.crc32": "00000000"}',
)  # fmt: skip
_FIELDS: dict[str, tuple[str, ...]] = {
    "run.json": (
        "id", "source", "framework", "algorithm", "model", "world_size", "config", "notes",
        "unread", "records_end", "format_version", "created", "environment",
    ),
    "attempts/0001.json": ("launch", "started", "world_size"),
    "attempts/0001/r0*.json": (
        "rank", "host", "pid", "born", "started", "status", "ended", "health",
    ),
}  # fmt: skip
_SETTINGS = ("beta", "max_completion_length", "learning_rate", "num_generations", "loss_type")
_DATA: tuple[str, ...] = (
    "[" * 100_000, "[1]", "5", "{", json.dumps(_ESCAPES), '{"a": ' * 90_000,
    *(
        json.dumps(dict.fromkeys(
            ("exception", "exit_code", "signal", "tail", "kind", "path", "has", "lacks", "source",
             "nan_count", "names", "kl", "count", "total", "rank", "seq", "op", "enqueued", "best"),
            value,
        ))
        for value in ([1], {"a": 1}, "x", None, 2**70, -1.5, float("nan"), [[1], {}], True)
    ),
)  # fmt: skip


class Case(NamedTuple):
    """One hostile recording."""

    name: str
    change: Change


def good(directory: Path) -> Path:
    """A recording with every kind of file, small."""
    facts = {"algorithm": "GRPO", "config": {"beta": 0.1}}
    with Recorder(directory, signals=False, launch="one", **facts) as recorder:  # type: ignore[arg-type]
        for step in range(60):
            recorder.step(step, loss=1.0, reward_mean=0.5, grad_norm=1.0)
            recorder.rank(step, loss=1.0)
        recorder.samples(
            5, prompts=["p"], completions=["a", "b"], rewards=[0, 1], group_size=2,
            reward_components={"r": [0.0, 1.0]},
        )  # fmt: skip
        recorder.checkpoint(10, "/c/10")
    with Recorder(directory, signals=False, launch="one", role="rollout") as worker:
        worker.step(5, queue=3.0)
    return directory


def _first(directory: Path, pattern: str) -> Path:
    return next(iter(sorted(directory.glob(pattern))))


# --- manifests ------------------------------------------------------------------------------------


def _bytes(pattern: str, content: bytes) -> Change:
    return lambda directory: _first(directory, pattern).write_bytes(content)


def _field(pattern: str, name: str, value: Any, *, sealed: bool) -> Change:
    def change(directory: Path) -> None:
        path = _first(directory, pattern)
        content = json.loads(path.read_text())
        content.pop(checksum.KEY, None)
        if name in _SETTINGS:
            content["config"][name] = value
        else:
            content[name] = value
        path.write_text(checksum.sealed_json(content) if sealed else json.dumps(content))

    return change


def _manifests() -> Iterator[Case]:
    for (pattern, names), sealed in product(_FIELDS.items(), (False, True)):
        for name, number in product(names, range(len(_VALUES))):
            change = _field(pattern, name, _VALUES[number], sealed=sealed)
            yield Case(f"{pattern}: {name} is value {number}, sealed {sealed}", change)
    for name, number in product(_SETTINGS, range(len(_VALUES))):
        change = _field("run.json", name, _VALUES[number], sealed=False)
        yield Case(f"setting {name} is value {number}", change)
    for pattern, (number, content) in product(_FIELDS, enumerate(_TEXTS)):
        yield Case(f"{pattern} is text {number}", _bytes(pattern, content))
    for name in ("²", "0", str(10**30), "-1", "1e3", "00001", "99999999"):
        yield Case(f"attempts/{name}.json", _new_file(f"attempts/{name}.json", b"{}"))


def _new_file(name: str, content: bytes) -> Change:
    return lambda directory: (directory / name).write_bytes(content)


# --- what is no file ------------------------------------------------------------------------------


def _replaced(pattern: str, by: Callable[[Path], object]) -> Change:
    def change(directory: Path) -> None:
        path = _first(directory, pattern)
        if path.is_dir():
            path.rename(directory / "moved")
        else:
            path.unlink()
        by(path)

    return change


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name[-90:])
        Path(path.name[-90:]).rename(path.name)
    finally:
        os.chdir(before)


_NO_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a socket": _socket,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a file elsewhere": lambda path: path.symlink_to("/etc/passwd"),
    "a directory elsewhere": lambda path: path.symlink_to("/etc"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a text": lambda path: path.write_text("x"),
}
_PLACES = (
    "run.json", "attempts", "attempts/0001", "attempts/0001.json", "attempts/0001/r0*.json",
    "steps", "events", "samples", "steps/*.parquet", "ranks/*.parquet", "events/*.parquet",
    "samples/*.parquet",
)  # fmt: skip


def _no_files() -> Iterator[Case]:
    for place, (name, by) in product(_PLACES, _NO_FILES.items()):
        yield Case(f"{place} is {name}", _replaced(place, by))


# --- columns --------------------------------------------------------------------------------------


def stored(path: Path, rows: pa.Table, **settings: Any) -> None:
    """Write rows as a shard of an earlier version: nothing in it is checked."""
    metadata = {shard_file.FORMAT_KEY: b"1", shard_file.TABLE_KEY: path.parent.name.encode()}
    pq.write_table(rows.replace_schema_metadata(metadata), path, **settings)


def _rewritten(table: str, how: Callable[[pa.Table], pa.Table]) -> Change:
    def change(directory: Path) -> None:
        path = _first(directory, f"{table}/*.parquet")
        stored(path, how(pq.read_table(path)))

    return change


def _array(kind: str, size: int) -> pa.Array:
    numbers = np.arange(size)
    made: dict[str, Callable[[], pa.Array]] = {
        "text": lambda: pa.array([f"t{n}" for n in numbers]),
        "escapes": lambda: pa.array([_ESCAPES] * size),
        "int64": lambda: pa.array(numbers, pa.int64()),
        "int8": lambda: pa.array(numbers % 100, pa.int8()),
        "largest": lambda: pa.array([2**63 - 1, -(2**63)] * size, pa.int64())[:size],
        "uint64": lambda: pa.array([2**64 - 1] * size, pa.uint64()),
        "float32": lambda: pa.array(numbers / 2, pa.float32()),
        "float16": lambda: pa.array(numbers.astype(np.float16)),
        "whole double": lambda: pa.array(numbers.astype(np.float64)),
        "nan": lambda: pa.array([float("nan"), float("inf"), 1e308] * size)[:size],
        "bool": lambda: pa.array([True] * size),
        "list": lambda: pa.array([[1.0]] * size),
        "struct": lambda: pa.array([{"a": 1}] * size),
        "null": lambda: pa.nulls(size),
        "dictionary": pa.array([1.0, 2.0] * size)[:size].dictionary_encode,
        "words": pa.array(["a", "b"] * size)[:size].dictionary_encode,
        "decimal": lambda: pa.array([Decimal("1.50")] * size),
        "seconds": lambda: pa.array([2**40] * size, pa.int64()).cast(pa.timestamp("s")),
        "date": lambda: pa.array([2**20] * size, pa.int32()).cast(pa.date32()),
        "binary": lambda: pa.array([b"\xff\xfe"] * size),
        "half null": lambda: pa.array([None, 3] * size, pa.int64())[:size],
        "map": lambda: pa.array([[("a", None)]] * size, pa.map_(pa.string(), pa.int32())),
    }
    return made[kind]()


_KINDS = (
    "text", "escapes", "int64", "int8", "largest", "uint64", "float32", "float16", "whole double",
    "nan", "bool", "list", "struct", "null", "dictionary", "words", "decimal", "seconds", "date",
    "binary", "half null", "map",
)  # fmt: skip


def _with(column: str, kind: str) -> Callable[[pa.Table], pa.Table]:
    def how(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        return rows.set_column(place, column, _array(kind, len(rows)))

    return how


def _without(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.drop([column])


def _twice(column: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.append_column(column, _array("text", len(rows)))


def _columns() -> Iterator[Case]:
    for table in schema.TABLES:
        names = [field.name for field in schema.arrow_fields(table)]
        names += ["loss"] if schema.tables()[table].metrics else []
        for name, kind in product(names, _KINDS):
            yield Case(f"{table}: {name} is {kind}", _rewritten(table, _with(name, kind)))
        for name in names:
            yield Case(f"{table}: no {name}", _rewritten(table, _without(name)))
            yield Case(f"{table}: {name} twice", _rewritten(table, _twice(name)))
        for name in (_ESCAPES, _NEVER, "", "a.b", "rank", "\ud7ff" * 999):
            more = _rewritten(table, _twice(name))
            yield Case(f"{table}: a column {name[:9]!r}", more)
        yield Case(f"{table}: no rows", _rewritten(table, lambda rows: rows.slice(0, 0)))
        yield Case(f"{table}: no columns", _rewritten(table, lambda rows: rows.select([])))
    for kind, data in product(schema.event_kinds(), _DATA):
        yield Case(f"{kind} with {data[:30]}", _rewritten("events", _event(kind, data)))


def _event(kind: str, data: str) -> Callable[[pa.Table], pa.Table]:
    def how(rows: pa.Table) -> pa.Table:
        size = len(rows)
        places = {name: rows.schema.get_field_index(name) for name in ("kind", "data", "message")}
        rows = rows.set_column(places["kind"], "kind", pa.array([kind] * size))
        rows = rows.set_column(places["message"], "message", pa.array([_ESCAPES] * size))
        return rows.set_column(places["data"], "data", pa.array([data] * size))

    return how


# --- damage, names and bombs ----------------------------------------------------------------------


def _damaged(table: str, seed: int, *, checked: bool) -> Change:
    def change(directory: Path) -> None:
        path = _first(directory, f"{table}/*.parquet")
        if not checked:
            stored(path, pq.read_table(path))
        random, content = Random(seed), bytearray(path.read_bytes())
        at = random.randrange(len(content))
        content[at : at + random.choice((1, 4, 64))] = random.randbytes(random.choice((1, 4, 64)))
        path.write_bytes(content[: random.choice((len(content), len(content), at))])

    return change


def _copied(table: str, name: str) -> Change:
    def change(directory: Path) -> None:
        path = _first(directory, f"{table}/*.parquet")
        (path.parent / name).write_bytes(path.read_bytes())

    return change


def _damage() -> Iterator[Case]:
    for table, seed, checked in product(schema.TABLES, range(25), (False, True)):
        yield Case(
            f"{table}: damage {seed}, checked {checked}", _damaged(table, seed, checked=checked)
        )
    for name in (
        "a0001-r00000-x.y.1.abc-00000000-99999999", "a0001-r00000-x.y.1.abc-00000005-00000001",
        f"a{10**20}-r00000-x.y.1.abc-00000000-00000001", "a0001-r00000-x-00000000-" + "9" * 30,
        "a\u0660\u0660\u0660\u0661-r00000-x-00000000-00000001", "x",
        "a0001-r99999999-x-00000000-00000001", "a0007-r00003-x-00000000-00000001",
    ):  # fmt: skip
        for table in schema.TABLES:
            yield Case(f"{table}: a shard {name[:40]}", _copied(table, f"{name}.parquet"))


def _many_rows(table: str, rows: int) -> Change:
    """Constant rows: a few bytes for each million."""

    def change(directory: Path) -> None:
        path = _first(directory, f"{table}/*.parquet")
        one = pq.read_table(path).slice(0, 1)
        block = pa.concat_tables([one] * 1000).combine_chunks()
        block = pa.concat_tables([block] * 500).combine_chunks()
        metadata = {shard_file.FORMAT_KEY: b"1"}
        block = block.replace_schema_metadata(metadata)
        with pq.ParquetWriter(path, block.schema, compression="zstd") as writer:
            for _ in range(rows // len(block)):
                writer.write_table(block)

    return change


def _long_text(table: str, column: str, *, words: bool) -> Change:
    """Gigabytes of text when it is read: long texts, or one of a dictionary many times."""

    def how(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        length, times = (200_000, 5_000) if words else (30_000_000, 4)
        rows = pa.concat_tables([rows.slice(0, 1)] * times)
        return rows.set_column(place, column, pa.array(["a" * length] * times).dictionary_encode())

    return _rewritten(table, how)


def _wide(rows: pa.Table) -> pa.Table:
    count = 110_000
    one = pa.chunked_array([pa.nulls(len(rows), pa.float64())])
    columns = {name: rows.column(name) for name in ("step", "attempt", "time")}
    return pa.table(columns | {f"m{n}": one for n in range(count)})


def bombs() -> Iterator[Case]:
    """What is small on disk and large once it is read; slow to make."""
    for table, rows in (("steps", 12_000_000), ("ranks", 12_000_000), ("events", 1_000_000)):
        yield Case(f"{table}: {rows:,} rows", _many_rows(table, rows))
    yield Case("samples: 1,000,000 rows", _many_rows("samples", 1_000_000))
    for table, column in (("samples", "completion"), ("events", "message"), ("events", "data")):
        for words in (False, True):
            long = _long_text(table, column, words=words)
            yield Case(f"{table}: long {column}, words {words}", long)
    yield Case("steps: 110,000 columns", _rewritten("steps", _wide))


def cases() -> tuple[Case, ...]:
    """All but the bombs."""
    return (*_manifests(), *_no_files(), *_columns(), *_damage())
