"""`rlprobe import`: what a log says is what its recording says."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe.cli import main
from rlprobe.errors import UsageError
from rlprobe.importers import open_runs
from rlprobe.importers.joining import joined
from rlprobe.store import from_run
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.recording import Recording
from rlprobe.store.run import Run, RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, Event, Problem, Rollout
from tests.importers import encoders as enc


def column(*values: float | None) -> tuple[Any, Any]:
    numbers = np.array([math.nan if value is None else value for value in values])
    return numbers, np.array([value is not None for value in values])


def frame(step: list[int], columns: dict[str, Any], **more: Any) -> Frame:
    return frame_of(np.array(step, dtype=np.int64), columns, **more)


INFO = RunInfo(
    path="/logs/x",
    id="x",
    source="some_format",
    framework="trl",
    algorithm="GRPO",
    model="m",
    world_size=4,
    settings={"beta": 0.04, "nan": math.nan},
    attempts=(Attempt(1, 1, 3, ended="crashed", started=12.5), Attempt(2, 2, 4)),
    notes=("assumed something",),
)


def example() -> TableRun:
    attempts = np.array([1, 1, 1, 2, 2, 2], dtype=np.int64)
    steps = frame(
        [1, 2, 3, 2, 3, 4],
        {
            "reward_mean": column(0.1, math.nan, math.inf, None, -math.inf, 1 / 3),
            "tokens_seen": column(1, 2, 3, 4, 5, None),
            "time": column(9, None, None, None, None, 8),
            "odd \udc80": column(1, 1, 1, 1, 1, 1),
        },
        attempt=attempts,
        time=np.array([100.0, 101.5, math.nan, 103.0, 104.0, 105.0]),
    )
    ranks = frame(
        [1, 1],
        {"grad_norm": column(1.0, math.nan)},
        rank=np.array([0, 3], dtype=np.int64),
    )
    events = [
        Event("checkpoint", 2, time=50.0, message="saved", data={"path": "p"}),
        Event("crash", None, attempt=2, rank=3, data={"value": math.nan, "odd": Path("p")}),
    ]
    rollouts = [
        Rollout(
            step=2,
            group_id="g",
            sample_id=f"s{index}",
            attempt=2,
            rank=1,
            prompt_id="id",
            prompt="p\udc80",
            completion=None,
            reward=math.nan if index else 0.5,
            reward_components={"a": 1.0, "b": math.nan},
            advantage=-1.5,
            completion_length=7,
            truncated=bool(index),
            logprob_mean=-0.25,
            kl=0.125,
            capture_reason="log",
        )
        for index in range(2)
    ]
    problems = [Problem("x.jsonl", "line 3 left out")]
    return TableRun(INFO, steps, ranks=ranks, events=events, rollouts=rollouts, problems=problems)


def same_columns(ours: Frame, theirs: Frame, names: dict[str, str]) -> None:
    assert sorted(ours.names) == sorted(names.values())
    for name, stored in names.items():
        values, valid = theirs.load(name)
        read, present = ours.load(stored)
        assert present.tolist() == valid.tolist()
        np.testing.assert_array_equal(read[valid], values[valid])


def test_everything_that_a_run_knows_is_kept(tmp_path: Path) -> None:
    run = example()
    from_run.write(run, tmp_path / "run")
    recording = Recording(tmp_path / "run")
    assert recording.problems == ()
    read, given = recording.steps, run.steps
    names = {name: name for name in given.names if name not in {"time", "odd \udc80"}}
    same_columns(read, given, {**names, "time": "user/time", "odd \udc80": "odd \\udc80"})
    for field in ("step", "attempt", "time"):
        np.testing.assert_array_equal(getattr(read, field), getattr(given, field))
    same_columns(recording.ranks, run.ranks, {"grad_norm": "grad_norm"})
    assert recording.ranks.rank.tolist() == [0, 3]
    info = recording.info
    for name in ("id", "source", "framework", "algorithm", "model", "world_size", "records_end"):
        assert getattr(info, name) == getattr(INFO, name)
    assert info.settings["beta"] == 0.04
    assert info.notes == ("assumed something", "x.jsonl: line 3 left out")
    first, second = info.attempts
    assert (first.ended, first.started, first.first_step) == ("crashed", 12.5, 1)
    assert (second.ended, math.isnan(second.started), second.last_step) == ("unknown", True, 4)
    by_kind = {event.kind: event for event in recording.events}
    checkpoint, crash = by_kind["checkpoint"], by_kind["crash"]
    assert checkpoint == run.events[0]
    assert (crash.step, crash.attempt, crash.rank, math.isnan(crash.time)) == (None, 2, 3, True)
    assert crash.data["odd"] == "p"
    good, bad = recording.rollouts(2)
    assert (good.prompt, good.completion, good.reward) == ("p\\udc80", None, 0.5)
    assert bad.reward is not None
    assert math.isnan(bad.reward)
    assert good.reward_components["a"] == 1.0
    assert math.isnan(good.reward_components["b"])
    plain = ("attempt", "rank", "prompt_id", "advantage", "completion_length", "truncated", "kl")
    for name in plain:
        assert getattr(good, name) == getattr(run.rollouts(2)[0], name)


def test_large_runs_come_in_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_run, "_ROWS", 10)
    monkeypatch.setattr(from_run, "_ROLLOUTS", 4)
    size = 95
    rollouts = [Rollout(s, "g", f"{s}.{n}") for s in range(10) for n in range(3)]
    run = TableRun(
        RunInfo(path="x", id="x", source="s", attempts=(Attempt(1),)),
        frame(list(range(size)), {"loss": column(*map(float, range(size)))}),
        rollouts=rollouts,
    )
    from_run.write(run, tmp_path / "run")
    recording = Recording(tmp_path / "run")
    series = recording.steps.series("loss")
    assert series is not None
    assert series.values.tolist() == list(range(size))
    assert sum(len(recording.rollouts(step)) for step in range(10)) == 30
    assert len(list((tmp_path / "run" / "steps").iterdir())) == 10


def test_a_directory_with_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        from_run.write(example(), tmp_path / "full")
    (tmp_path / "empty").mkdir()
    from_run.write(example(), tmp_path / "empty")
    assert Recording(tmp_path / "empty").steps.names
    with pytest.raises(UsageError, match="not empty"):
        from_run.write(example(), tmp_path / "full" / "file")


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlprobe.store.shards.write", fail)
    with pytest.raises(UsageError, match="No space left"):
        from_run.write(example(), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def log(path: Path, steps: range, value: float = 0.5, **more: float) -> Path:
    rows = [
        {"step": s, "loss": value, "reward": math.nan if s == 25 else value, "kl": 0.01 * s, **more}
        for s in steps
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scanned(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["scan", str(path), "--format", "json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_scan_says_the_same_of_the_log_and_of_its_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path / "log.jsonl", range(1, 60))
    path.write_text(path.read_text() + "{torn")
    assert main(["import", str(path), "--run", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "59 rows, 3 metrics (from jsonl)" in said.out
    assert "left out" in said.err
    direct, through = scanned(path, capsys), scanned(tmp_path / "run", capsys)
    assert direct["findings"], "the NaN is found"
    for key in ("findings", "incidents", "coverage", "verdict", "unmapped_metrics"):
        assert through[key] == direct[key], key
    for key in ("id", "source", "framework", "first_step", "last_step", "rows"):
        assert through["run"].get(key) == direct["run"].get(key), key
    assert [note for note in through["run"]["notes"] if "left out" in note]


def test_restarts_in_tensorboard_files_survive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, steps in enumerate((range(1, 31), range(20, 61)), start=1):
        events = [
            enc.event(
                s, enc.plain("kl", 0.01), enc.plain("loss", math.nan), wall=1e9 + number * 1e3
            )
            for s in steps
        ]
        enc.event_file(tmp_path / "tb" / f"events.out.tfevents.{number}", *events)
    main(["import", str(tmp_path / "tb"), "--run", str(tmp_path / "run")])
    capsys.readouterr()
    direct, through = scanned(tmp_path / "tb", capsys), scanned(tmp_path / "run", capsys)
    assert through["findings"] == direct["findings"] != []
    spans = [(a.first_step, a.last_step) for a in Recording(tmp_path / "run").info.attempts]
    assert spans == [(1, 30), (20, 60)]


def test_several_logs_are_parts_of_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = log(tmp_path / "1.jsonl", range(1, 6))
    second = log(tmp_path / "2.jsonl", range(6, 9), extra=1.0)
    third = log(tmp_path / "3.jsonl", range(4, 10), 0.75)
    rollouts = tmp_path / "rollouts.jsonl"
    rows = [
        {"step": s, "prompt": "p", "completion": "c", "reward": float(n)}
        for s in (2, 9, 12)
        for n in range(2)
    ]
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = [str(path) for path in (first, rollouts, second, third)]
    assert main(["import", *paths, "--run", str(tmp_path / "run")]) == 0
    assert "2 attempts, rollouts of 3 steps" in capsys.readouterr().out
    run = Recording(tmp_path / "run")
    spans = [(a.first_step, a.last_step) for a in run.info.attempts]
    assert spans == [(1, 8), (4, 12)], "the second goes on, the third goes back"
    assert {s: {r.attempt for r in run.rollouts(s)} for s in run.sample_steps()} == {
        2: {1},
        9: {2},
        12: {2},
    }
    spread = run.steps.series("reward_group_std_mean")
    assert spread is not None
    assert (spread.steps.tolist(), spread.values.tolist()) == ([2, 9, 12], [0.5] * 3)
    own = run.steps.series("reward_mean")
    assert own is not None
    assert set(own.values.tolist()) == {0.5, 0.75}, "the run's own metrics are left as they are"


def test_joined_rollouts_alone(tmp_path: Path) -> None:
    runs: list[Run] = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps({"step": 1, "prompt": "p", "completion": "c", "reward": 1}))
        runs += open_runs(path)
    whole = joined(runs)
    assert [rollout.sample_id for rollout in whole.rollouts(1)] == ["a.s1.0", "b.s1.0"]


def test_a_store_of_several_runs_becomes_several_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "project.db"
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("CREATE TABLE metrics (run_name TEXT, step INTEGER, metrics TEXT)")
        rows = [(name, step, '{"loss": 1.0}') for name in ("a/b", "c") for step in range(3)]
        db.executemany("INSERT INTO metrics VALUES (?, ?, ?)", rows)
    assert main(["import", str(store), "--run", str(tmp_path / "runs")]) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a_b", "c"]
    assert len(open_runs(tmp_path / "runs")) == 2
    other = log(tmp_path / "x.jsonl", range(3))
    assert main(["import", str(store), str(other), "--run", str(tmp_path / "y")]) == 2
    assert "holds 2 runs" in capsys.readouterr().err


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "x.jsonl", range(3))
    assert main(["import", str(path)]) == 2
    assert main(["import", str(tmp_path / "none"), "--run", str(tmp_path / "r")]) == 2
    assert main(["import", str(path), "--run", str(path)]) == 2
    assert "Couldn't import into" in capsys.readouterr().err
