"""Aim repositories: RocksDB tables and logs that we write ourselves."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.importers.trackers import rocksdb
from tests.importers import rocksdb_files
from tests.importers.reading import is_nan, log, only, points

TRAIN, NONE = -77, 5  # numbers of contexts
Stored = dict[bytes, bytes | None]


def path(*parts: str | int) -> bytes:
    coded = (
        b"\xfe" + struct.pack(">q", part) if isinstance(part, int) else part.encode()
        for part in parts
    )
    return b"".join(part + b"\xfe" for part in coded)


def value(content: float | str | bool | None) -> bytes:
    match content:
        case None:
            return b"\0"
        case bool():
            return b"\1" + bytes([content])
        case int():
            return b"\2" + struct.pack("<q", content)
        case float():
            return b"\3" + struct.pack("<d", content)
        case _:
            return b"\4" + content.encode()


def sequence(run: str, name: str, context: int, rows: list[tuple[int, float]]) -> Stored:
    """As Aim stores one: points under numbers in no order, with value, step and time of each."""
    stored: Stored = {}
    for step, number in rows:
        point = (step * 7919 + 13) % 1009 - 500
        for kind, content in (("val", number), ("step", step), ("time", 1e9 + step)):
            stored[path("seqs", "v2", "chunks", run, context, name, kind, point)] = value(content)
        stored[path("seqs", "v2", "chunks", run, context, name, "epoch", point)] = value(None)
    stored[path("seqs", "v2", "chunks", run, context, name, "val")] = b"\6"
    return stored


LOSS = [(step, float("nan") if step == 30 else 1 / (step + 1)) for step in range(0, 100, 10)]
REWARD = [(step, step / 8) for step in range(0, 100, 10)]


def repository(folder: Path, run: str = "f00d", name: str | None = "trial 3") -> Path:
    log(folder, ".aim/VERSION", "1.3")
    stored = sequence(run, "loss", TRAIN, LOSS) | sequence(run, "reward", NONE, REWARD)
    stored |= sequence(run, "__system__cpu", NONE, [(0, 1.0), (1, 2.0)])
    place = f".aim/seqs/chunks/{run}"
    log(folder, f"{place}/000009.sst", rocksdb_files.table(stored))
    log(folder, f"{place}/000010.sst", b"")
    log(folder, f"{place}/MANIFEST-000004", b"x")
    chunk = ("meta", "chunks", run)
    meta: Stored = {
        path(*chunk, "contexts", TRAIN, "subset"): value("train"),
        path(*chunk, "contexts", NONE): b"\7",
        path(*chunk, "attrs", "hparams", "lr"): value(1e-6),
        path(*chunk, "attrs", "__system_params", "arguments"): value("secret"),
        path(*chunk, "attrs", "hparams", "fast"): value(True),
    }
    log(folder, f".aim/meta/chunks/{run}/000009.sst", rocksdb_files.table(meta, snappy=False))
    with closing(sqlite3.connect(folder / ".aim" / "run_metadata.sqlite")) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS run (hash TEXT, name TEXT, is_archived BOOLEAN)")
        db.execute("INSERT INTO run VALUES (?, ?, 0)", (run, name or f"Run: {run}"))
    return folder


def test_a_repository_holds_runs(tmp_path: Path) -> None:
    run = only(repository(tmp_path))
    assert (run.info.id, run.info.source) == ("trial 3", "aim")
    assert run.info.settings == {"lr": 1e-6, "fast": True}
    loss = points(run, "loss")
    assert [step for step, _ in loss] == list(range(0, 100, 10))
    assert is_nan(loss[3][1])
    assert loss[1] == (10, 1 / 11)
    assert points(run, "reward_mean") == REWARD
    assert set(run.steps.names) == {"loss", "reward_mean"}
    assert not run.problems
    assert only(tmp_path / ".aim").info.id == "trial 3"


def test_what_is_still_in_the_log_counts(tmp_path: Path) -> None:
    repository(tmp_path)
    more = sequence("f00d", "loss", TRAIN, [(90, 0.5), (100, 0.25)])
    many = sequence("f00d", "entropy", TRAIN, [(step, 0.125) for step in range(300)])
    batches: list[Stored] = [more, many, {b"of no use": None}]
    log(tmp_path, ".aim/seqs/chunks/f00d/000011.log", rocksdb_files.log(batches))
    run = only(tmp_path)
    assert points(run, "loss")[-2:] == [(90, 0.5), (100, 0.25)]
    assert len(points(run, "entropy")) == 300


def test_of_a_deleted_key_nothing_is_left(tmp_path: Path) -> None:
    log(tmp_path, "1.sst", rocksdb_files.table({b"a": b"1", b"ab": b"2", b"b": b"3"}))
    log(tmp_path, "2.log", rocksdb_files.log([{b"ab": None, b"b": b"4"}]))
    assert rocksdb.read(tmp_path, []) == {b"a": b"1", b"b": b"4"}


def test_subsets_are_told_apart(tmp_path: Path) -> None:
    repository(tmp_path)
    stored = sequence("f00d", "loss", 8, [(10, 2.0), (20, 1.0)])
    stored |= sequence("f00d", "loss", NONE, [(10, 4.0)])
    log(tmp_path, ".aim/seqs/chunks/f00d/000012.sst", rocksdb_files.table(stored))
    meta: Stored = {path("meta", "chunks", "f00d", "contexts", 8, "subset"): value("val")}
    log(tmp_path, ".aim/meta/chunks/f00d/000012.sst", rocksdb_files.table(meta))
    run = only(tmp_path)
    assert points(run, "eval/loss") == [(10, 2.0), (20, 1.0)]
    assert len(points(run, "loss")) == 10  # two of one name: the training's


def test_runs_without_a_name_archived_ones_and_namesakes(tmp_path: Path) -> None:
    repository(tmp_path, "aaaa", None)
    repository(tmp_path, "bbbbbbbbbb", "twin")
    repository(tmp_path, "cccccccccc", "twin")
    repository(tmp_path, "dddd", "old")
    with closing(sqlite3.connect(tmp_path / ".aim" / "run_metadata.sqlite")) as db, db:
        db.execute("UPDATE run SET is_archived = 1 WHERE hash = 'dddd'")
    names = [run.info.id for run in open_runs(tmp_path)]
    assert names == ["aaaa", "twin (bbbbbbbb)", "twin (cccccccc)"]


def test_points_of_older_versions_are_numbered_by_their_step(tmp_path: Path) -> None:
    repository(tmp_path)
    stored: Stored = {
        path("seqs", "chunks", "f00d", NONE, "entropy", "val", step): value(step / 4)
        for step in (1, 2, 5)
    }
    log(tmp_path, ".aim/seqs/chunks/f00d/000012.sst", rocksdb_files.table(stored))
    assert points(only(tmp_path), "entropy") == [(1, 0.25), (2, 0.5), (5, 1.25)]


def test_damage_costs_a_block_and_is_told(tmp_path: Path) -> None:
    chunk = repository(tmp_path) / ".aim" / "seqs" / "chunks" / "f00d"
    content = bytearray((chunk / "000009.sst").read_bytes())
    content[40] ^= 0xFF
    (chunk / "000009.sst").write_bytes(bytes(content))
    run = only(tmp_path)
    assert "the block at 0 is damaged: wrong checksum" in run.problems[0].message
    assert len(points(run, "reward_mean")) == 10
    (chunk / "000009.sst").write_bytes(bytes(content[:-100]))
    with pytest.raises(InputError):
        open_runs(tmp_path)


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_is_no_crash(seed: int, tmp_path: Path) -> None:
    import random

    chance = random.Random(seed)
    chunk = repository(tmp_path) / ".aim" / "seqs" / "chunks" / "f00d"
    extra = rocksdb_files.log([sequence("f00d", "loss", TRAIN, [(110, 0.5)])])
    for name, whole in (("000009.sst", (chunk / "000009.sst").read_bytes()), ("1.log", extra)):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 9)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (chunk / name).write_bytes(bytes(content[: chance.randrange(len(content) + 1)]))
    try:
        runs = open_runs(tmp_path)
    except InputError:
        return
    for run in runs:  # what is read is right
        assert set(points(run, "reward_mean")) <= set(REWARD)
