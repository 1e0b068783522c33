"""SQL over a run's tables: right rows, only live shards, only reading."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rlprobe import schema
from rlprobe.errors import UsageError
from rlprobe.store import shards, sql
from rlprobe.store.frame import frame_of
from rlprobe.store.layout import ShardName
from rlprobe.store.recording import Recording
from rlprobe.store.run import Run, RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Event, Rollout


def write(
    run: Path, attempt: int, flush: int, steps: list[int], last: int = -1, **metrics: float
) -> None:
    directory = run / "steps"
    directory.mkdir(parents=True, exist_ok=True)
    (run / "attempts").mkdir(exist_ok=True)
    size = len(steps)
    keys = {
        "step": steps,
        "attempt": [attempt] * size,
        "time": [0] * size,
        "tokens_seen": [None] * size,
    }
    fixed = pa.table(keys, schema=pa.schema(schema.arrow_fields("steps")))
    for name, value in metrics.items():
        fixed = fixed.append_column(name, pa.array([value] * size))
    shards.write(directory, ShardName(attempt, 0, "w", flush, max(flush, last)), fixed)


def ask(run: Run, statement: str) -> list[tuple[object, ...]]:
    return list(sql.query(run, statement).rows)


def test_metrics_differ_from_shard_to_shard(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    write(tmp_path, 1, 1, [2], loss=math.nan, kl_mean=0.1)
    rows = ask(Recording(tmp_path), "SELECT step, loss, kl_mean FROM steps ORDER BY step")
    assert rows[0] == (1, 0.5, None)
    assert math.isnan(float(str(rows[1][1])))


def test_a_shard_that_was_merged_away_is_not_counted_twice(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    write(tmp_path, 1, 1, [2], loss=0.5)
    write(tmp_path, 1, 0, [1, 2], last=1, loss=0.5)
    assert ask(Recording(tmp_path), "SELECT count(*) FROM steps") == [(2,)]


def test_the_lineage_leaves_out_what_a_later_attempt_overtook(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1, 2, 3], loss=1.0)
    write(tmp_path, 2, 0, [3, 4], loss=2.0)
    write(tmp_path, 3, 0, [2], loss=3.0)
    rows = ask(Recording(tmp_path), "SELECT step, attempt FROM lineage ORDER BY step")
    assert rows == [(1, 1), (2, 3)]
    assert ask(Recording(tmp_path), "SELECT step, attempt FROM line ORDER BY step") == rows
    assert ask(Recording(tmp_path), "SELECT count(*) FROM steps") == [(6,)]


def test_a_torn_shard_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    (tmp_path / "steps" / str(ShardName(1, 0, "w", 1, 1))).write_bytes(b"PAR1 torn")
    result = sql.query(Recording(tmp_path), "SELECT count(*) FROM steps")
    assert result.rows == ((1,),)
    assert ["00000001" in problem.path for problem in result.problems] == [True]


def test_tables_without_shards_are_empty(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    for table in ("ranks", "events", "samples"):
        assert ask(Recording(tmp_path), f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    run = tmp_path / "it's [1]* ?é"
    write(run, 1, 0, [1], loss=0.5)
    assert ask(Recording(run), "SELECT step FROM lineage") == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP VIEW steps",
        "CREATE TABLE t (i int)",
        "COPY steps TO 'OUT'",
        "EXPLAIN ANALYZE COPY steps TO 'OUT'",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "ATTACH 'OUT'",
        "SET lock_configuration = false",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM steps",
        "SELEC 1",
        "",
    ],
)
def test_only_queries_over_the_run_are_answered(tmp_path: Path, statement: str) -> None:
    write(tmp_path / "run", 1, 0, [1], loss=0.5)
    outside = tmp_path / "out"
    with pytest.raises(UsageError):
        sql.query(Recording(tmp_path / "run"), statement.replace("OUT", str(outside)))
    assert not outside.exists()


def test_a_foreign_log_has_the_same_tables() -> None:
    step = np.array([1, 2], dtype=np.int64)
    frame = frame_of(step, {"loss": (np.array([1.0, 9.9]), np.array([True, False]))})
    rollout = Rollout(1, "g", "s", completion="text", reward_components={"format": 0.1})
    event = Event("checkpoint", 1, time=10.0, data={"path": "c"})
    run = TableRun(RunInfo("a", "a", "jsonl"), frame, events=[event], rollouts=[rollout])
    assert ask(run, "SELECT step, loss, time FROM lineage") == [(1, 1.0, None), (2, None, None)]
    assert ask(run, "SELECT data->>'path' FROM events") == [("c",)]
    assert ask(run, "SELECT reward_components['format'] FROM samples") == [(0.1,)]
    assert ask(run, "SELECT prompt_id, capture_reason FROM samples") == [(None, None)]
    assert ask(run, "SELECT count(*) FROM ranks") == [(0,)]
    columns = [row[0] for row in ask(run, "DESCRIBE steps")]
    assert columns == ["step", "attempt", "time", "loss"]


def test_an_answer_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    monkeypatch.setattr(sql, "_MOST_CELLS", 1000)
    assert len(ask(Recording(tmp_path), "SELECT * FROM range(1000)")) == 1000
    with pytest.raises(UsageError, match="more than 1,000 values") as caught:
        sql.query(Recording(tmp_path), "SELECT * FROM range(3000000000)")
    assert "LIMIT" in caught.value.hint


def test_a_value_that_python_has_no_type_for_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, 1, 0, [1], loss=0.5)
    (row,) = ask(Recording(tmp_path), "SELECT timestamp '290000-01-01', 2::HUGEINT ** 120")
    assert len(row) == 2
