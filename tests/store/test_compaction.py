"""Compaction: fewer files, the same rows, at any moment of death."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from rlprobe import schema
from rlprobe.store import layout, living, shards
from rlprobe.store.compaction import compact, footprint
from rlprobe.store.layout import ShardName
from rlprobe.store.recording import Recording


def write(run: Path, writer: str, flush: int, steps: list[int], rank: int = 0) -> Path:
    directory = run / "steps"
    directory.mkdir(parents=True, exist_ok=True)
    size = len(steps)
    keys = {
        "step": steps,
        "attempt": [1] * size,
        "time": [0] * size,
        "tokens_seen": [float(step) for step in steps],
    }
    table = pa.table(keys, schema=pa.schema(schema.arrow_fields("steps")))
    return shards.write(directory, ShardName(1, rank, writer, flush, flush), table)


def process(run: Path, writer: str, rank: int = 0, **changes: object) -> None:
    folder = run / layout.ATTEMPTS / "0001"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "rank": rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "born": living.process_birth(os.getpid()),
        "started": 0.0,
        "status": None,
        "ended": None,
        "health": {},
    }
    path = folder / f"r{rank:05d}-{writer}.json"
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def steps(run: Path) -> list[int]:
    return sorted(Recording(run).steps.step.tolist())


def files(run: Path) -> int:
    return len(list((run / "steps").glob("*.parquet")))


def test_a_finished_writer_becomes_one_shard(tmp_path: Path) -> None:
    for flush in range(20):
        write(tmp_path, "done", flush, [2 * flush, 2 * flush + 1])
    process(tmp_path, "done", status="completed")
    done = compact(tmp_path)
    assert steps(tmp_path) == list(range(40))
    assert files(tmp_path) == 1
    assert done.before.files - done.after.files == 19
    assert not done.busy
    assert not done.problems
    assert compact(tmp_path).before == footprint(tmp_path)


def test_a_killed_process_is_finished(tmp_path: Path) -> None:
    for flush in range(3):
        write(tmp_path, "killed", flush, [flush])
    process(tmp_path, "killed", pid=2**22 - 3, born=1.0)
    compact(tmp_path)
    assert files(tmp_path) == 1


def test_a_living_writer_is_left_alone_and_the_others_are_not(tmp_path: Path) -> None:
    for flush in range(3):
        write(tmp_path, "alive", flush, [flush])
        write(tmp_path, "done", flush, [10 + flush], rank=1)
    process(tmp_path, "alive")
    process(tmp_path, "done", rank=1, status="crashed")
    done = compact(tmp_path)
    assert files(tmp_path) == 4
    assert ["alive" in writer for writer in done.busy] == [True]
    assert steps(tmp_path) == [0, 1, 2, 10, 11, 12]


def test_a_writer_elsewhere_is_left_alone_until_it_has_settled(tmp_path: Path) -> None:
    paths = [write(tmp_path, "far", flush, [flush]) for flush in range(3)]
    process(tmp_path, "far", host="elsewhere")
    assert compact(tmp_path).busy
    assert files(tmp_path) == 3
    for path in paths:
        os.utime(path, (0, 0))
    assert not compact(tmp_path).busy
    assert files(tmp_path) == 1


def test_no_row_is_hidden_by_a_merge_across_a_torn_shard(tmp_path: Path) -> None:
    for flush in range(6):
        write(tmp_path, "done", flush, [flush])
    torn = tmp_path / "steps" / str(ShardName(1, 0, "done", 2, 2))
    torn.write_bytes(b"PAR1")
    process(tmp_path, "done", status="completed")
    done = compact(tmp_path)
    assert [problem.path for problem in done.problems] == [str(torn)]
    assert torn.exists()
    assert files(tmp_path) == 3
    assert steps(tmp_path) == [0, 1, 3, 4, 5]


def test_a_kill_between_rename_and_delete_repeats_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flush in range(5):
        write(tmp_path, "done", flush, [flush])
    process(tmp_path, "done", status="completed")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            compact(tmp_path)
    assert files(tmp_path) == 6
    assert steps(tmp_path) == [0, 1, 2, 3, 4]
    compact(tmp_path)
    assert files(tmp_path) == 1
    assert steps(tmp_path) == [0, 1, 2, 3, 4]
