"""Trackio and MLflow: databases and files that hold several runs."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from rlprobe.errors import InputError, RlprobeError, UnknownFormatError
from rlprobe.importers import open_runs
from rlprobe.importers.source import Source
from rlprobe.importers.trackers.mlflow import MLflow
from rlprobe.importers.trackers.trackio import Trackio
from rlprobe.store.run import Run


def points(run: Run, name: str) -> list[tuple[int, float]]:
    series = run.steps.series(name)
    return [] if series is None else list(zip(series.steps.tolist(), series.values, strict=True))


def trackio(path: Path, rows: list[tuple[str, str, int, object]], *, run_id: bool = True) -> Path:
    """A Trackio database; rows are (run id, run name, step, metrics)."""
    own = "run_id TEXT NOT NULL," if run_id else ""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            f"CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, {own} timestamp TEXT,"
            " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"
        )
        db.execute(f"CREATE TABLE configs ({own} run_name TEXT, config TEXT, created_at TEXT)")
        for run, name, step, metrics in rows:
            text = metrics if isinstance(metrics, str | bytes) else json.dumps(metrics)
            first = (run,) if run_id else ()
            marks = ", ".join("?" * (4 + run_id))
            db.execute(
                f"INSERT INTO metrics ({'run_id, ' if run_id else ''}timestamp, run_name, step,"
                f" metrics) VALUES ({marks})",
                (*first, "2026-01-01T00:00:00+00:00", name, step, text),
            )
        config = json.dumps({"beta": 0.1, "_Created": "x"}).encode()
        first = ("1",) if run_id else ()
        db.execute(
            f"INSERT INTO configs VALUES ({', '.join('?' * (3 + run_id))})",
            (*first, "a", config, ""),
        )
    return path


@pytest.mark.parametrize("run_id", [True, False])
def test_trackio_words_for_numbers_and_several_runs(tmp_path: Path, run_id: bool) -> None:
    path = trackio(
        tmp_path / "p.db",
        [
            ("1", "a", 0, b'{"loss":0.1,"reward":1}'),
            ("1", "a", 1, {"loss": "NaN", "reward": 2}),
            ("2", "b", 0, {"loss": 5.0}),
            ("1", "a", 2, {"loss": "Infinity"}),
            ("1", "a", 3, {"loss": "-Infinity", "table": {"_type": "trackio.table"}}),
        ],
        run_id=run_id,
    )
    first, second = open_runs(path)
    assert (first.info.id, second.info.id) == ("a", "b")
    assert first.info.settings == {"beta": 0.1}
    found = points(first, "loss")
    assert math.isnan(found[1][1])
    assert [found[0], *found[2:]] == [(0, 0.1), (2, math.inf), (3, -math.inf)]
    assert points(second, "loss") == [(0, 5.0)]
    assert first.info.source == "trackio"


def test_trackio_counts_the_trainers_step(tmp_path: Path) -> None:
    rows = [("1", "a", n, {"train/loss": 1.0, "train/global_step": 10 * n}) for n in range(3)]
    (run,) = open_runs(trackio(tmp_path / "p.db", list(rows)))
    assert run.steps.step.tolist() == [0, 10, 20]


def test_trackio_rows_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = trackio(
        tmp_path / "p.db",
        [("1", "a", 0, {"loss": 1.0}), ("1", "a", 1, "{torn"), ("1", "a", 2, "[1, 2]")],
    )
    (run,) = open_runs(path)
    assert "2 rows of a left out" in run.problems[0].message


def test_a_database_that_is_open_elsewhere_is_read_and_left_alone(tmp_path: Path) -> None:
    path = trackio(tmp_path / "p.db", [("1", "a", 0, {"loss": 1.0})])
    writer = sqlite3.connect(path)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute(
            "INSERT INTO metrics (run_id, run_name, step, metrics) VALUES ('1', 'a', 1, ?)",
            ('{"loss": 2.0}',),
        )
        writer.commit()
        before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
        (run,) = open_runs(path)
        assert points(run, "loss") == [(0, 1.0), (1, 2.0)], "the write-ahead log counts"
        assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before
    finally:
        writer.close()


def test_a_closed_database_in_wal_mode_gets_no_files_beside_it(tmp_path: Path) -> None:
    path = trackio(tmp_path / "p.db", [("1", "a", 0, {"loss": 1.0})])
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.db"]
    open_runs(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.db"]


def mlflow(path: Path, points_: list[tuple[str, str, float, int, int, int]]) -> Path:
    """An MLflow database; points are (run, key, value, timestamp, step, is_nan)."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name TEXT, status TEXT,"
            " end_time BIGINT, lifecycle_stage TEXT)"
        )
        db.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        db.execute(
            "CREATE TABLE metrics (key TEXT, value DOUBLE, timestamp BIGINT, run_uuid TEXT,"
            " step BIGINT, is_nan BOOLEAN)"
        )
        runs = [
            ("r1", "first", "FINISHED", 5000, "active"),
            ("r2", "second", "FAILED", 6000, "active"),
            ("r3", "gone", "FINISHED", 7000, "deleted"),
        ]
        db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", runs)
        db.executemany(
            "INSERT INTO params VALUES (?, ?, 'r1')",
            [("beta", "0.04"), ("n", "8"), ("name", "x"), ("flag", "True")],
        )
        db.executemany(
            "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
            [(key, value, at, run, step, nan) for run, key, value, at, step, nan in points_],
        )
    return path


MOST = 1.7976931348623157e308
POINTS = [
    ("r1", "loss", 0.5, 1000, 1, 0),
    ("r1", "loss", 0.0, 2000, 2, 1),
    ("r1", "loss", MOST, 3000, 3, 0),
    ("r1", "loss", -MOST, 4000, 4, 0),
    ("r1", "system/cpu", 50.0, 4000, 99, 0),
    ("r2", "loss", 9.0, 1000, 1, 0),
    ("r3", "loss", 7.0, 1000, 1, 0),
]


def test_mlflow_marks_become_numbers(tmp_path: Path) -> None:
    first, second = open_runs(mlflow(tmp_path / "mlflow.db", POINTS))
    assert (first.info.id, second.info.id) == ("first", "second"), "deleted runs are left out"
    found = points(first, "loss")
    assert math.isnan(found[1][1])
    assert [found[0], *found[2:]] == [(1, 0.5), (3, math.inf), (4, -math.inf)]
    assert first.steps.names == ("loss",), "the machine's own metrics have other steps"
    assert first.info.settings == {"beta": 0.04, "n": 8, "name": "x", "flag": True}
    assert first.events == ()
    assert [event.kind for event in second.events] == ["crash"]
    assert second.events[0].time == 6.0


def test_mlflow_a_resumed_run_shows_its_restart(tmp_path: Path) -> None:
    rows = [("r1", "loss", 1.0, 1000 + s, s, 0) for s in range(1, 6)]
    rows += [("r1", "loss", 2.0, 9000 + s, s, 0) for s in range(3, 8)]
    (run,) = open_runs(mlflow(tmp_path / "mlflow.db", rows[::-1]))
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 5), (3, 7)]


def mlflow_files(root: Path, name: str = "a", status: int = 3) -> Path:
    run = root / "123" / f"id-{name}"
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "params").mkdir()
    (root / "123" / "meta.yaml").write_text("name: experiment\n")
    (run / "meta.yaml").write_text(
        f"artifact_uri: x\nend_time: 6000\nlifecycle_stage: active\nrun_id: id-{name}\n"
        f"run_name: '{name}'\nstatus: {status}\ntags: []\n"
    )
    (run / "params" / "beta").write_text("0.04")
    (run / "metrics" / "train" / "loss").write_text(
        f"1000 0.5 1\n2000 nan 2\n3000 {MOST} 3 data 0f\nnonsense\n4000 -inf 4\n"
    )
    return run


def test_mlflow_file_stores(tmp_path: Path) -> None:
    root = tmp_path / "mlruns"
    run_folder = mlflow_files(root)
    mlflow_files(root, "b", status=4)
    first, second = open_runs(root)
    found = points(first, "loss")
    assert math.isnan(found[1][1])
    assert [found[0], *found[2:]] == [(1, 0.5), (3, math.inf), (4, -math.inf)]
    assert first.info.settings == {"beta": 0.04}
    assert "1 points" in first.problems[0].message
    assert [event.kind for event in second.events] == ["crash"]
    (alone,) = open_runs(run_folder)
    assert points(alone, "loss")[0] == (1, 0.5)


def test_foreign_damaged_and_hostile_databases(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as db, db:
        db.execute("CREATE TABLE trials (number INTEGER)")
    with pytest.raises(UnknownFormatError):
        open_runs(foreign)
    endless = tmp_path / "endless.db"
    with closing(sqlite3.connect(endless)) as db, db:
        db.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT 'a' AS run_name, i AS step, '{}' AS metrics FROM n"
        )
    with pytest.raises(UnknownFormatError):
        open_runs(endless)
    torn = tmp_path / "torn.db"
    torn.write_bytes(trackio(tmp_path / "p.db", [("1", "a", 0, {"loss": 1.0})]).read_bytes()[:5000])
    with pytest.raises(InputError, match="SQLite"):
        open_runs(torn)


@pytest.mark.parametrize("kind", ["trackio", "mlflow"])
def test_any_byte_of_a_database_may_be_wrong(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source.db"
    if kind == "trackio":
        trackio(source, [("1", "a", n, {"loss": 1.0}) for n in range(40)])
    else:
        mlflow(source, POINTS * 10)
    whole = source.read_bytes()
    importer = Trackio() if kind == "trackio" else MLflow()
    random_ = random.Random(3)
    path = tmp_path / "damaged.db"
    begun = time.monotonic()
    for round_ in range(250):
        data = bytearray(whole)
        for _ in range(random_.choice((1, 1, 5, 50))):
            data[random_.randrange(len(data))] = random_.randrange(256)
        if round_ % 5 == 0:
            del data[random_.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            readings = importer.read(Source(path))
            [reading.rows.columns() for reading in readings]
        except RlprobeError:
            continue
    assert time.monotonic() - begun < 60


def test_alerts_in_a_trackio_database_are_events(tmp_path: Path) -> None:
    path = trackio(tmp_path / "p.db", [("1", "a", 0, {"loss": 0.5}), ("1", "a", 1, {"loss": 1})])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE alerts (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name"
            " TEXT, title TEXT, text TEXT, level TEXT, step INTEGER, alert_id TEXT)"
        )
        db.execute(
            "INSERT INTO alerts VALUES (1, '1', '', 'a', 'KL is high', NULL, 'warn', 1, 'x')"
        )
    (run,) = open_runs(path)
    (event,) = run.events
    assert (event.kind, event.message, event.step) == ("alert", "KL is high", None)
