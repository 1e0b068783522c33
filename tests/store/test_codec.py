"""What is encoded is decoded equal: nothing logged and NaN kept apart, times to the microsecond."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe import redaction
from rlprobe.store import codec, from_run, metric_shards, shards
from rlprobe.store.frame import Frame, empty_frame, frame_of
from rlprobe.store.layout import ShardName
from rlprobe.store.recording import Recording
from rlprobe.store.run import RunInfo
from rlprobe.store.shard_file import ShardFile
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, Event, Rollout

# Lone surrogates cannot be stored; tests of their own.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
known = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
steps = st.integers(-(2**62) + 1, 2**62 - 1)
small = st.integers(-(2**31) + 1, 2**31 - 1)
doubles = st.floats()
times = st.just(math.nan) | st.integers(1, 4 * 10**15).map(lambda micros: micros / 1e6)
json_values = st.none() | st.booleans() | st.integers() | doubles | texts | st.lists(texts)

# What looks like a secret does not come back.
harmless = st.dictionaries(texts, json_values, max_size=3).filter(
    lambda data: redaction.settings(data) == data
)
events = st.builds(
    Event,
    kind=known,
    step=st.none() | steps,
    time=times,
    attempt=st.integers(1, 3),
    rank=small,
    message=texts.filter(lambda message: redaction.text(message) == message),
    data=harmless,
)
rollouts = st.builds(
    Rollout,
    step=st.integers(0, 3),
    group_id=known,
    sample_id=known,
    attempt=st.integers(1, 3),
    rank=small,
    prompt_id=texts,
    prompt=st.none() | texts,
    completion=st.none() | texts,
    reward=st.none() | doubles,
    reward_components=st.dictionaries(texts, doubles, max_size=3),
    advantage=st.none() | doubles,
    completion_length=st.none() | small,
    truncated=st.none() | st.booleans(),
    logprob_mean=st.none() | doubles,
    kl=st.none() | doubles,
    capture_reason=texts,
)
cells = st.none() | doubles
columns = st.integers(1, 6).flatmap(
    lambda size: st.dictionaries(
        known, st.lists(cells, min_size=size, max_size=size), min_size=1, max_size=4
    )
)


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals NaN and nothing else."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def through_parquet(table: str, rows: pa.Table) -> pa.Table:
    with TemporaryDirectory() as folder, written(folder, table, rows) as file:
        return file.read()


def written(folder: str, table: str, rows: pa.Table, attempt: int = 1) -> ShardFile:
    directory = Path(folder) / table
    directory.mkdir()
    return ShardFile(shards.write(directory, ShardName(attempt, 0, "w", 0, 0), rows))


@settings(max_examples=40, deadline=None)
@given(content=st.lists(events, max_size=6))
def test_events(content: list[Event]) -> None:
    stored = through_parquet("events", codec.rows("events", map(codec.event_row, content)))
    decoded = codec.events(stored)
    assert same([astuple(event) for event in decoded], [astuple(event) for event in content])


@settings(max_examples=40, deadline=None)
@given(content=st.lists(rollouts, max_size=6))
def test_rollouts(content: list[Rollout]) -> None:
    stored = through_parquet("samples", codec.rows("samples", map(codec.rollout_row, content)))
    decoded = codec.rollouts(stored)
    assert same([astuple(one) for one in decoded], [astuple(one) for one in content])


def frame_with(content: dict[str, list[float | None]], **keys: Any) -> Frame:
    size = len(next(iter(content.values())))
    packed = {
        name: (
            np.array([0.0 if cell is None else cell for cell in cells]),
            np.array([cell is not None for cell in cells]),
        )
        for name, cells in content.items()
    }
    return frame_of(np.arange(size, dtype=np.int64), packed, **keys)


def logged(frame: Frame) -> dict[str, list[float | None]]:
    read = {name: frame.load(name) for name in frame.names}
    return {
        name: [
            value if there else None
            for value, there in zip(values.tolist(), valid.tolist(), strict=True)
        ]
        for name, (values, valid) in read.items()
    }


@settings(max_examples=40, deadline=None)
@given(table=st.sampled_from(["steps", "ranks"]), content=columns, data=st.data())
def test_rows_of_metrics(
    table: str, content: dict[str, list[float | None]], data: st.DataObject
) -> None:
    size = len(next(iter(content.values())))
    ranks = st.lists(st.integers(0, 2**17), min_size=size, max_size=size)
    attempt = data.draw(st.integers(1, 10**9 - 1))
    keys = {
        "step": np.array(data.draw(st.lists(steps, min_size=size, max_size=size))),
        "attempt": np.full(size, attempt),
        "rank": np.array(data.draw(ranks)),
        "time": np.array(data.draw(st.lists(times, min_size=size, max_size=size))),
    }
    frame = frame_with(content)
    named = {codec.metric_name(table, name): frame.load(name) for name in frame.names}
    with TemporaryDirectory() as folder:
        rows = codec.metrics(table, keys, named)
        with written(folder, table, rows, attempt) as file:
            name = ShardName(attempt, 0, "w", 0, 0)
            remarks: list[str] = []
            shard = metric_shards.metric_shard(table, name, file, remarks.append)
            decoded = metric_shards.frame([shard])
            filled = {name: cells for name, cells in logged(decoded).items() if name in named}
    assert not remarks
    assert decoded.step.tolist() == keys["step"].tolist()
    assert decoded.attempt.tolist() == keys["attempt"].tolist()
    assert decoded.rank.tolist() == (keys["rank"].tolist() if table == "ranks" else [0] * size)
    assert same(decoded.time.tolist(), keys["time"].tolist())
    expected = {codec.metric_name(table, name): cells for name, cells in content.items()}
    assert same(filled, expected)


@settings(max_examples=15, deadline=None)
@given(
    noted=st.lists(events, max_size=4),
    sampled=st.lists(rollouts, max_size=6, unique_by=lambda rollout: rollout.sample_id),
)
def test_a_run_that_becomes_a_recording_is_the_same_run(
    noted: list[Event], sampled: list[Rollout]
) -> None:
    info = RunInfo("log", "id", "jsonl", attempts=tuple(map(Attempt, (1, 2, 3))))
    run = TableRun(info, empty_frame(), events=noted, rollouts=sampled)
    with TemporaryDirectory() as folder:
        from_run.write(run, Path(folder) / "run")
        recording = Recording(Path(folder) / "run")
        back = [one for step in recording.sample_steps() for one in recording.rollouts(step)]
        assert same(sorted(map(repr, back)), sorted(map(repr, sampled)))
        assert same(sorted(map(repr, recording.events)), sorted(map(repr, noted)))
        assert not recording.problems


def test_names_of_keys_are_no_names_of_metrics() -> None:
    assert codec.metric_name("steps", "time") == "user/time"
    assert codec.metric_name("steps", "rank") == "rank"
    assert codec.metric_name("ranks", "rank") == "user/rank"
    assert codec.metric_name("steps", "tokens_seen") == "tokens_seen"


def test_what_no_column_can_hold() -> None:
    torn, huge = "a\ud800b", 2**40
    rollout = Rollout(
        1, torn, torn, prompt=torn, completion_length=huge, reward_components={torn: 1}
    )
    (back,) = codec.rollouts(codec.rows("samples", [codec.rollout_row(rollout)]))
    assert back.group_id == back.sample_id == back.prompt == "a\\ud800b"
    assert back.reward_components == {"a\\ud800b": 1.0}
    assert back.completion_length is None
    event = Event(torn, 1, message=torn, data={"at": Path("x"), torn: torn})
    (noted,) = codec.events(codec.rows("events", [codec.event_row(event)]))
    assert (noted.kind, noted.message) == ("a\\ud800b", "a\\ud800b")
    assert noted.data == {"at": "x", torn: torn}


@pytest.mark.parametrize("moment", [math.nan, math.inf, -math.inf, 1e300, 0.0])
def test_a_time_that_is_not_known(moment: float) -> None:
    (back,) = codec.events(codec.rows("events", [codec.event_row(Event("e", 1, time=moment))]))
    assert math.isnan(back.time)


@pytest.mark.parametrize(
    ("stored", "data"), [("[1]", {"value": [1]}), ("{torn", {}), (None, {}), ("", {})]
)
def test_data_of_an_event_that_is_no_object(stored: str | None, data: dict[str, Any]) -> None:
    row = {**codec.event_row(Event("e", 1)), "data": stored}
    (back,) = codec.events(codec.rows("events", [row]))
    assert back.data == data


def test_neither_way_loads_pandas() -> None:
    code = """
import sys
from rlprobe.store import codec
from rlprobe.values import Event, Rollout
codec.events(codec.rows("events", [codec.event_row(Event("e", 1, time=2.0))]))
codec.rollouts(codec.rows("samples", [codec.rollout_row(Rollout(1, "g", "s"))]))
print([name for name in ("pandas", "duckdb", "scipy") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
