"""The stores of other flight recorders: each is one run, with all that it holds."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan
from tests.importers.reading import is_nan, log, only, points


def table(path: Path, columns: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- rlprobe 0.1.0 ----------------------------------------------------------------------------


def manifest(folder: Path, run_id: str = "first", **more: Any) -> Path:
    facts = {"schema_version": 1, "run_id": run_id, "algorithm": "grpo", "world_size": 1}
    log(folder, "manifest.json", json.dumps(facts | more, indent=2))
    return folder


def recording(folder: Path, steps: int = 6) -> Path:
    """As its writer leaves it: one wide table, events, and a shard of samples."""
    manifest(folder, trainer_config={"beta": 0.04}, model_name="tiny")
    numbers = list(range(steps))
    table(
        folder / "steps.parquet",
        {
            "step": numbers,
            "timestamp": [1e9 + step for step in numbers],
            "rank": [0] * steps,
            "reward_mean": [step / 8 for step in numbers],
            "loss": [0.5, None, float("nan"), 0.25, 0.125, 0.0],
            "lr": [1e-6] * steps,
            "kl_positional": [[step / 2, step / 4] for step in numbers],
            "adv_zero_frac": [0.25] * steps,
            "completion_len_mean": [float(100 + step) for step in numbers],
            "reward_component.format": [1.0] * steps,
            "extra.my_metric": [None, *(2.0 * step for step in numbers[1:])],
        },
    )
    events = (
        {"timestamp": 1e9, "kind": "checkpoint", "step": 3, "message": "ckpt-3", "data": {}},
        {"timestamp": 1e9, "kind": "lr_change", "step": 4, "rank": 0, "message": "", "data": {}},
        {"timestamp": 1e9, "kind": "nan_detected", "step": 2, "message": "3 NaN", "data": {}},
        {"timestamp": 1e9, "kind": "crash", "message": "RuntimeError: CUDA out of memory. Tried"},
    )
    log(folder, "events.jsonl", lines(*events) + '{"timestamp": 1, "ki')
    table(
        folder / "samples" / "shard-00000.parquet",
        {
            "step": [2, 2],
            "sample_id": ["2_0", "2_1"],
            "rank": [0, 0],
            "group_id": ["g", "g"],
            "prompt_text": ["2+2?", "2+2?"],
            "completion_text": ["4", "5"],
            "reward_total": [1.0, 0.0],
            "reward_component.format": [1.0, None],
            "advantage": [0.5, -0.5],
            "kl_contribution": [0.25, 0.125],
            "completion_len": [7, 9],
            "truncated": [False, True],
            "capture_reason": ["top_k", "bottom_k"],
        },
    )
    return folder


def test_a_recording_of_the_first_rlprobe_is_one_run(tmp_path: Path) -> None:
    run = only(recording(tmp_path / "old"))
    assert (run.info.id, run.info.framework, run.info.algorithm) == ("first", "rlprobe_0_1", "grpo")
    assert run.info.settings["beta"] == 0.04
    assert run.info.path == str(tmp_path / "old")
    assert points(run, "reward_mean") == [(step, step / 8) for step in range(6)]
    assert points(run, "completion_length_mean")[-1] == (5, 105.0)
    assert points(run, "reward_component/format")[0] == (0, 1.0)
    assert points(run, "my_metric") == [(step, 2.0 * step) for step in range(1, 6)]
    assert points(run, "kl_positional/1")[2] == (2, 0.5)
    loss = points(run, "loss")
    assert [step for step, _ in loss] == [0, 2, 3, 4, 5]
    assert is_nan(loss[1][1])


def test_its_events_and_rollouts_come_along(tmp_path: Path) -> None:
    run = only(recording(tmp_path))
    kinds = [(event.kind, event.step) for event in run.events]
    assert kinds == [("nan_detected", 2), ("checkpoint", 3), ("lr_changed", 4), ("crash", None)]
    assert run.events[-1].data["kind"] == "cuda_out_of_memory"
    assert [problem.path for problem in run.problems] == [str(tmp_path / "events.jsonl")]
    first, second = run.rollouts(2)
    assert (first.prompt, first.completion, first.reward, first.kl) == ("2+2?", "4", 1.0, 0.25)
    assert (first.group_id, first.reward_components) == ("g", {"format": 1.0})
    assert (second.truncated, second.completion_length, second.advantage) == (True, 9, -0.5)
    found = {finding.detector for finding in scan(run).findings}
    assert {"CRASH", "GRAD_PATHOLOGY"} <= found


def test_a_directory_of_its_recordings(tmp_path: Path) -> None:
    for name in ("a", "b"):
        manifest(recording(tmp_path / name), run_id=name)
    assert [run.info.id for run in open_runs(tmp_path)] == ["a", "b"]


def test_its_ranks_are_ranks(tmp_path: Path) -> None:
    recording(tmp_path)
    recording(tmp_path / "rank-001")
    run = only(tmp_path)
    assert len(run.steps) == 6
    assert sorted(run.ranks.series_by_rank("reward_mean")) == [1]
    assert len(run.rollouts(2)) == 4


def test_parts_of_one_that_was_killed_are_read_and_none_twice(tmp_path: Path) -> None:
    manifest(tmp_path)
    rows = {"step": [1, 2], "timestamp": [1.0, 2.0], "loss": [4.0, 3.0]}
    table(tmp_path / "steps" / "part-00000.parquet", rows)
    more = {"step": [3], "timestamp": [3.0], "loss": [2.0], "grad_norm": [0.5]}
    table(tmp_path / "steps" / "part-00001.parquet", more)
    assert points(only(tmp_path), "loss") == [(1, 4.0), (2, 3.0), (3, 2.0)]
    table(tmp_path / "steps.parquet", rows)  # killed while it took them up
    run = only(tmp_path)
    assert points(run, "loss") == [(1, 4.0), (2, 3.0), (3, 2.0)]
    assert len(run.info.attempts) == 1


def test_what_its_callback_left_out_was_not_finite(tmp_path: Path) -> None:
    """It dropped NaN; names that it could not keep had their slashes replaced."""
    manifest(tmp_path)
    log(tmp_path, "events.jsonl", lines({"timestamp": 1.0, "kind": "train_begin", "step": 0}))
    table(
        tmp_path / "steps.parquet",
        {
            "step": list(range(5)),
            "lr": [1e-6] * 4 + [None],
            "loss": [1.0, None, 0.5, 0.25, None],
            "extra.clip_ratio.low_mean": [0.125] * 5,
            "extra.epoch": [0.5] * 5,
        },
    )
    run = only(tmp_path)
    loss = points(run, "loss")
    assert [step for step, _ in loss] == [0, 1, 2, 3]
    assert is_nan(loss[1][1])
    assert points(run, "clip_fraction_low")[0] == (0, 0.125)
    assert "`loss` is missing in 1 rows: it was not finite there" in run.info.notes
    assert run.events[0].kind == "run_started"


@pytest.mark.parametrize("message", ["signal 15", "KeyboardInterrupt: "])
def test_one_that_was_stopped_did_not_crash(message: str, tmp_path: Path) -> None:
    recording(tmp_path)
    log(tmp_path, "events.jsonl", lines({"timestamp": 1.0, "kind": "crash", "message": message}))
    assert [event.kind for event in only(tmp_path).events] == ["halted"]


def test_damage_to_a_recording_of_it_is_told(tmp_path: Path) -> None:
    recording(tmp_path)
    log(tmp_path, "samples/shard-00001.parquet", b"PAR1 but no more")
    run = only(tmp_path)
    assert len(run.steps) == 6
    assert any("shard-00001" in problem.path for problem in run.problems)
    log(tmp_path, "manifest.json", '{"schema_version": 1}')
    log(tmp_path / "empty", "manifest.json", '{"schema_version": 1}')
    with pytest.raises(InputError):
        open_runs(tmp_path / "empty")


# --- rlwatch ----------------------------------------------------------------------------------


def rlwatch(path: Path, *, first_schema: bool = False) -> Path:
    """A database as rlwatch makes it; version 1 of its schema has no gradient norm."""
    with closing(sqlite3.connect(path)) as db, db:
        norm = "" if first_schema else ", grad_norm REAL"
        db.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL,"
            " step INTEGER NOT NULL, timestamp REAL NOT NULL, entropy REAL, kl_divergence REAL,"
            f" reward_mean REAL, reward_std REAL, loss REAL, learning_rate REAL{norm},"
            " extra_json TEXT)"
        )
        db.execute(
            "CREATE TABLE alerts (id INTEGER PRIMARY KEY, run_id TEXT, step INTEGER, timestamp"
            " REAL, detector TEXT, severity TEXT, message TEXT, metric_values_json TEXT)"
        )
        db.execute("CREATE TABLE runs (run_id TEXT PRIMARY KEY, framework TEXT, started_at REAL)")
        db.execute("INSERT INTO runs VALUES ('a', 'trl', 1.0)")
        for step in range(20):
            loss = None if step == 7 else 1 / (step + 1)
            values = ["a", step, 1e9 + step, 2.0, step / 100, step / 20, 0.25, loss, 1e-6]
            values += [] if first_schema else [0.5]
            extra = json.dumps({"mine": step, "loss": "no"}) if step else None
            marks = ", ".join("?" * (len(values) + 1))
            db.execute(f"INSERT INTO metrics VALUES (NULL, {marks})", (*values, extra))
        db.execute("INSERT INTO metrics (run_id, step, timestamp, loss) VALUES ('b', 1, 1.0, 0.5)")
        db.execute(
            "INSERT INTO alerts VALUES (1, 'a', 7, 1e9, 'loss_nan', 'critical', 'Loss is NaN', '')"
        )
    return path


@pytest.mark.parametrize("first_schema", [False, True])
def test_an_rlwatch_database_holds_runs(first_schema: bool, tmp_path: Path) -> None:
    first, second = open_runs(rlwatch(tmp_path / "metrics.db", first_schema=first_schema))
    assert (first.info.id, first.info.source, second.info.id) == ("a", "rlwatch", "b")
    assert points(first, "kl_mean")[3] == (3, 0.03)
    assert points(first, "lr")[0] == (0, 1e-6)
    assert points(first, "mine") == [(step, float(step)) for step in range(1, 20)]
    assert points(first, "grad_norm")[:1] == ([] if first_schema else [(0, 0.5)])
    loss = points(first, "loss")
    assert len(loss) == 20
    assert [step for step, value in loss if is_nan(value)] == [7]
    assert [(event.kind, event.step) for event in first.events] == [("alert", 7)]
    assert points(second, "loss") == [(1, 0.5)]


def test_a_loss_that_is_rarely_logged_is_not_taken_for_nan(tmp_path: Path) -> None:
    path = rlwatch(tmp_path / "metrics.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE metrics SET loss = NULL WHERE step % 2 = 1")
    loss = points(open_runs(path)[0], "loss")
    assert [step for step, value in loss if is_nan(value)] == [7]  # the alert says so
    assert len(loss) == 11


# --- trainscope -------------------------------------------------------------------------------


def stream(path: Path, *batches: Mapping[str, Any], whole: bool = False) -> Path:
    """An Arrow stream as trainscope appends to it, or a file as its first versions wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = [pa.table(dict(batch)) for batch in batches]
    new = pa.ipc.new_file if whole else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, new(file, tables[0].schema) as writer:
        for one in tables:
            writer.write_table(one)
    return path


def trainscope(folder: Path, *, whole: bool = False, scale: float = 1.0) -> Path:
    log(folder, "meta.json", json.dumps({"model_name": "tiny", "model_config": {"layers": 2}}))
    batches = []
    for numbers in (range(5), range(5, 10)):
        batch = {
            "step": list(numbers),
            "loss": [float("nan") if step == 7 else scale / (step + 1) for step in numbers],
            "grad_norm_before_clip": [2.0] * 5,
            "lr": [1e-4] * 5,
            "step_time_ms": [250.0 if step else 0.0 for step in numbers],
            "cuda_memory_mb": [0.0] * 5,
            "is_spike": [False] * 5,
        }
        batches.append(batch)
    stream(folder / "global.arrow", *batches, whole=whole)
    layer = {"step": [6, 7], "grad_nan_inf_ratio": [0.0, 0.5], "grad_l2_norm": [1.0, 1.0]}
    stream(folder / "layers" / "h.0%2Fattn.arrow", layer)
    plugin = {"step": [3], "plugin": ["mine"], "metric": ["skew"], "value": [0.75]}
    stream(folder / "plugin_metrics.arrow", plugin)
    return folder


@pytest.mark.parametrize("whole", [False, True])
def test_a_trainscope_run_is_one_run(whole: bool, tmp_path: Path) -> None:
    run = only(trainscope(tmp_path / "demo", whole=whole))
    assert (run.info.source, run.info.id) == ("trainscope", "demo")
    assert run.info.settings == {"layers": 2, "model_name": "tiny"}
    loss = points(run, "loss")
    assert [step for step, _ in loss] == list(range(10))
    assert is_nan(loss[7][1])
    assert points(run, "grad_norm")[0] == (0, 2.0)
    assert points(run, "step_time") == [(step, 0.25) for step in range(1, 10)]
    assert points(run, "memory_allocated") == []
    assert points(run, "mine/skew") == [(3, 0.75)]
    (event,) = run.events
    assert (event.kind, event.step, event.data["names"]) == ("nan_detected", 7, ["h.0/attn"])


def test_its_ranks_are_one_run_too(tmp_path: Path) -> None:
    for rank in (0, 1):
        trainscope(tmp_path / f"demo_rank{rank}", scale=1.0 + rank)
    run = only(tmp_path)
    by_rank = run.ranks.series_by_rank("loss")
    assert {rank: values.values[0] for rank, values in by_rank.items()} == {0: 1.0, 1: 2.0}
    assert sorted(event.rank for event in run.events) == [0, 1]


def test_a_stream_that_was_cut_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = trainscope(tmp_path) / "global.arrow"
    path.write_bytes(path.read_bytes()[:-200])
    run = only(tmp_path)
    assert len(points(run, "grad_norm")) == 5
    assert "cut off" in run.problems[0].message
    path.write_bytes(b"no arrow at all")
    with pytest.raises(InputError):
        open_runs(tmp_path)


# --- martingale -------------------------------------------------------------------------------


def bits(value: float) -> str:
    return f"f32:{struct.pack('>f', value).hex()}"


def martingale(path: Path) -> Path:
    """Two steps of two groups of two; the trainer's log probabilities are off by `OFF`."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE llm_revisions (digest TEXT PRIMARY KEY, step INTEGER)")
        db.execute(
            "CREATE TABLE sequences (actor_id INTEGER, sequence_index INTEGER, digest TEXT,"
            " record_json TEXT, created_at REAL)"
        )
        db.execute(
            "CREATE TABLE scores (sequence_digest TEXT, position INTEGER,"
            " train_revision_digest TEXT, record_json TEXT)"
        )
        for step in (10, 11, 12):
            db.execute("INSERT INTO llm_revisions VALUES (?, ?)", (f"r{step}", step))
        for number in range(8):
            sampled, group, digest = 10 + number // 4, number // 2, f"s{number}"
            tokens = [
                {"revision_digest": f"r{sampled}", "logprob_bits": bits(-0.5), "position": place}
                for place in range(2 + number % 2)
            ]
            record: dict[str, Any] = {
                "digest": digest,
                "prompt_digest": f"p{group}",
                "reward_bits": bits(float(number % 2)),
                "tokens": tokens,
            }
            values = (0, number, digest, json.dumps(record), 1.0)
            db.execute("INSERT INTO sequences VALUES (?, ?, ?, ?, ?)", values)
            for place in range(len(tokens)):
                score = json.dumps({"logprob_bits": bits(-0.5 + OFF[place])})
                values_ = (digest, place, f"r{sampled + 1}", score)
                db.execute("INSERT INTO scores VALUES (?, ?, ?, ?)", values_)
        db.execute("INSERT INTO sequences VALUES (0, 99, 'x', '{\"tokens\": 1}', 1.0)")
        again = json.dumps(record | {"digest": "again", "replay": {}, "reward_bits": bits(9.0)})
        db.execute("INSERT INTO sequences VALUES (0, 98, 'again', ?, 1.0)", (again,))
    return path


OFF = (0.25, -0.25, 0.5)


def test_token_records_of_martingale_tell_of_steps(tmp_path: Path) -> None:
    run = only(martingale(tmp_path / "tokens.db"))
    assert run.info.source == "martingale"
    assert points(run, "reward_mean") == [(11, 0.5), (12, 0.5)]
    assert points(run, "reward_group_std_mean") == [(11, 0.5), (12, 0.5)]
    assert points(run, "completion_length_mean") == [(11, 2.5), (12, 2.5)]
    apart = [OFF[0], OFF[1]] * 4 + [OFF[2]] * 2
    weights = [math.exp(value) for value in apart]
    expected = {
        "logprob_diff_mean": sum(map(abs, apart)) / 10,
        "logprob_diff_max": 0.5,
        "is_ratio_mean": sum(weights) / 10,
        "mismatch_kl": sum(w - 1 - d for w, d in zip(weights, apart, strict=True)) / 10,
        "staleness_mean": 1.0,
    }
    for name, value in expected.items():
        steps, values = zip(*points(run, name), strict=True)
        assert steps == (11, 12), name
        assert values == pytest.approx([value, value]), name
    assert [rollout.reward for rollout in run.rollouts(11)] == [0.0, 1.0, 0.0, 1.0]
    assert len({rollout.group_id for rollout in run.rollouts(11)}) == 2
    assert [problem.message for problem in run.problems] == ["1 rows left out: not readable"]


def test_records_that_no_trainer_scored_are_at_the_step_that_sampled_them(tmp_path: Path) -> None:
    path = martingale(tmp_path / "tokens.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE scores")
    assert points(only(path), "reward_mean") == [(10, 0.5), (11, 0.5)]


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_to_a_store_is_no_crash(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    recording(tmp_path / "a")
    trainscope(tmp_path / "b")
    rlwatch(tmp_path / "c.db")
    martingale(tmp_path / "d.db")
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for path in chance.sample(files, 4):
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(12)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(bytes(content[: chance.randrange(len(content) // 2, len(content) + 1)]))
    try:
        runs = open_runs(tmp_path)
    except InputError:
        return
    for run in runs:
        assert run.info.id
        assert len(run.steps) or run.sample_steps() or run.events
