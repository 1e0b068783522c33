"""Rollouts: TRL's Parquet, verl's JSON Lines and their kind; and what they tell of each step."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlprobe.errors import InputError, RlprobeError, UnknownFormatError
from rlprobe.importers import open_runs
from rlprobe.importers.documents.parquet import MetricsParquet
from rlprobe.importers.source import Source
from rlprobe.importers.trainers.completions import Completions
from rlprobe.store.run import Run


def only(path: Path) -> Run:
    (run,) = open_runs(path)
    return run


def points(run: Run, name: str) -> list[tuple[int, float]]:
    series = run.steps.series(name)
    return [] if series is None else list(zip(series.steps.tolist(), series.values, strict=True))


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trl(folder: Path, step: int, rewards: list[float | None], **more: list[Any]) -> Path:
    """What TRL writes for one step: two prompts, as many completions of each."""
    half = len(rewards) // 2
    columns: dict[str, Any] = {
        "step": pa.array([step] * len(rewards), pa.int64()),
        "prompt": ["1+1="] * half + ["2+2="] * half,
        "completion": [f"c{index}" for index in range(len(rewards))],
        "accuracy": pa.array(rewards, pa.float64()),
        **more,
        "advantage": pa.array([0.5] * len(rewards), pa.float64()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"completions_{step:05d}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_trl_groups_rewards_and_metrics(tmp_path: Path) -> None:
    run = only(trl(tmp_path, 10, [1.0, 1.0 + 7.5e-9, 0.0, 1.0]))
    assert run.info.source == "rollouts"
    assert run.sample_steps() == (10,)
    first, second, third, fourth = run.rollouts(10)
    assert first.group_id == second.group_id
    assert third.group_id == fourth.group_id != first.group_id
    assert first.prompt == "1+1="
    assert first.prompt_id == second.prompt_id
    assert (fourth.completion, fourth.reward, fourth.advantage) == ("c3", 1.0, 0.5)
    assert fourth.reward_components == {"accuracy": 1.0}
    assert points(run, "reward_mean")[0][1] == pytest.approx(0.75)
    assert points(run, "zero_variance_group_fraction") == [(10, 0.5)], "equal up to rounding"
    assert points(run, "reward_group_std_mean")[0][1] == pytest.approx(0.25)
    assert points(run, "reward_component/accuracy")[0][1] == pytest.approx(0.75)
    assert points(run, "completion_characters_mean") == [(10, 2.0)]
    assert "completion_length_mean" not in run.steps.names, "characters are no tokens"


def test_trl_several_functions_add_up_and_a_null_does_not_count(tmp_path: Path) -> None:
    form = pa.array([0.5, None, float("nan"), 0.5], pa.float64())
    run = only(trl(tmp_path, 1, [1.0, 1.0, 0.0, 0.0], form=form, attempt=["a"] * 4))
    rewards = [rollout.reward for rollout in run.rollouts(1)]
    assert rewards[:2] == [1.5, 1.0]
    assert rewards[2] is not None
    assert math.isnan(rewards[2]), "a NaN is a value"
    assert any("sum of the reward functions" in note for note in run.info.notes)


def test_conversations_are_kept_as_json(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": "hé"}]] * 2
    table = pa.table({"step": [1, 1], "prompt": messages, "completion": messages, "r": [0.0, 1.0]})
    path = tmp_path / "completions_00001.parquet"
    pq.write_table(table, path)
    (first, second) = only(path).rollouts(1)
    assert json.loads(first.prompt or "") == messages[0]
    assert first.group_id == second.group_id


def test_verl_dumps(tmp_path: Path) -> None:
    rows = [
        {
            "input": "p",
            "output": "long" * n,
            "gts": "4",
            "score": float(n % 2),
            "step": 3,
            "acc": True,
        }
        for n in range(4)
    ]
    run = only(lines(tmp_path / "3.jsonl", rows))
    assert points(run, "reward_mean") == [(3, 0.5)]
    assert {rollout.group_id for rollout in run.rollouts(3)} == {"3.s3.g0"}


def test_a_shuffled_batch_is_grouped_by_prompt(tmp_path: Path) -> None:
    rows = [{"prompt": p, "completion": "c", "reward": 1.0, "step": 1} for p in "abbaab"]
    run = only(lines(tmp_path / "x.jsonl", rows))
    groups = [rollout.group_id for rollout in run.rollouts(1)]
    assert sorted(groups) == ["x.s1.g0"] * 3 + ["x.s1.g1"] * 3


def test_neighbours_with_one_prompt_are_groups_of_their_own(tmp_path: Path) -> None:
    rows = [{"prompt": p, "completion": "c", "reward": 1.0, "step": 1} for p in "aabbaa"]
    groups = {rollout.group_id for rollout in only(lines(tmp_path / "x.jsonl", rows)).rollouts(1)}
    assert len(groups) == 3


def test_named_groups_tokens_and_truncation(tmp_path: Path) -> None:
    row = {"prompt": "p", "completion": "cc", "reward": 1, "step": 2, "completion_length": 40}
    rows = [
        {**row, "group": 1, "truncated": True},
        {**row, "group": 2, "finish_reason": "stop"},
    ]
    run = only(lines(tmp_path / "x.jsonl", rows))
    first, second = run.rollouts(2)
    assert first.group_id != second.group_id
    assert (first.truncated, second.truncated) == (True, False)
    assert points(run, "completion_length_mean") == [(2, 40.0)]
    assert points(run, "truncation_rate") == [(2, 0.5)]
    assert "completion_characters_mean" not in run.steps.names


def test_columns_of_rollouts_in_one_line(tmp_path: Path) -> None:
    row = {"step": ["5", "5"], "prompt": ["a", "a"], "completion": ["x", "y"], "reward": [0.0, 1.0]}
    run = only(lines(tmp_path / "completions.jsonl", [row]))
    assert [rollout.reward for rollout in run.rollouts(5)] == [0.0, 1.0]


def test_bad_lines_and_missing_steps_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", [{"prompt": "p", "completion": "c", "reward": 1.0}])
    path.write_text(path.read_text() + '{"torn": \n[1]\n')
    run = only(path)
    assert [problem.message.split(" left out")[0] for problem in run.problems] == [
        "line 2",
        "line 3",
    ]
    assert any("without a step" in note for note in run.info.notes)


def test_long_texts_are_shortened(tmp_path: Path) -> None:
    row = {"prompt": "p", "completion": "a" * 50_000 + "end", "reward": 1.0, "step": 1}
    run = only(lines(tmp_path / "x.jsonl", [row, row]))
    text = run.rollouts(1)[0].completion or ""
    assert len(text) < 17_000
    assert text.endswith("end")
    assert points(run, "completion_characters_mean") == [(1, 50_003.0)]


def test_metrics_rows_are_no_rollouts(tmp_path: Path) -> None:
    rows = [{"step": 1, "input": 3, "output": 4, "loss": 1.0}]
    assert only(lines(tmp_path / "x.jsonl", rows)).info.source == "jsonl"


def test_rollouts_beside_metrics_are_one_run(tmp_path: Path) -> None:
    history = [{"step": s, "loss": 0.5, "reward": 0.25} for s in (10, 20)]
    (tmp_path / "checkpoint-20").mkdir()
    state = tmp_path / "checkpoint-20" / "trainer_state.json"
    state.write_text(json.dumps({"log_history": history, "global_step": 20}))
    for step in (10, 20):
        trl(tmp_path / "completions", step, [1.0, 1.0, 0.0, 1.0])
    run = only(tmp_path)
    assert run.sample_steps() == (10, 20)
    assert points(run, "reward_mean") == [(10, 0.25), (20, 0.25)], "the run's own counts"
    assert points(run, "zero_variance_group_fraction") == [(10, 0.5), (20, 0.5)]
    assert len(run.info.attempts) == 1


def test_a_torn_file_among_others(tmp_path: Path) -> None:
    good = trl(tmp_path / "completions", 1, [1.0, 0.0])
    torn = trl(tmp_path / "completions", 2, [1.0, 0.0])
    torn.write_bytes(torn.read_bytes()[:-20])
    assert only(good).sample_steps() == (1,)
    with pytest.raises(InputError, match="Parquet"):
        open_runs(torn)


def test_wandb_history_exports(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    columns = {
        "_step": pa.array([0, 1, 2, 3], pa.int64()),
        "_timestamp": pa.array([1.0, 2.0, 3.0, 4.0]),
        "train/global_step": pa.array([10, None, 20, 30], pa.int64()),
        "train/loss": pa.array([0.5, None, math.nan, math.inf], pa.float64()),
        "half": pa.array([1.0, 2.0, None, None], pa.float32()),
        "text": ["a", "b", "c", "d"],
        "flag": [True, False, True, None],
    }
    pq.write_table(pa.table(columns), path)
    run = only(path)
    assert run.info.source == "parquet"
    assert run.steps.step.tolist() == [10, 20, 30]
    found = points(run, "loss")
    assert found[0] == (10, 0.5)
    assert math.isnan(found[1][1])
    assert found[2] == (30, math.inf)
    assert points(run, "half") == [(10, 2.0)], "the row without a step belongs to the one before"
    assert "text" not in run.steps.names


def test_foreign_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"name": ["a"], "city": ["b"]}), path)
    with pytest.raises(UnknownFormatError):
        open_runs(path)


def test_a_parquet_file_of_countless_rows(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    schema = pa.schema([("step", pa.int64()), ("loss", pa.float64())])
    chunk = pa.table(
        {"step": pa.nulls(1 << 22, pa.int64()), "loss": pa.nulls(1 << 22, pa.float64())}
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(13):
            writer.write_table(chunk)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"54,525,952 rows in .* more than is read"):
        MetricsParquet().read(Source(path))


def test_one_long_text_over_and_over_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "completions_00001.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["x" * 1_000_000])
    table = pa.table({"step": [1] * 20_000, "prompt": text, "completion": text})
    pq.write_table(table, path, compression="zstd")
    begun = time.monotonic()
    (reading,) = Completions().read(Source(path))
    assert len(reading.rollouts) == 20_000
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("importer", [Completions(), MetricsParquet()], ids=lambda item: item.name)
def test_any_byte_of_a_parquet_file_may_be_wrong(tmp_path: Path, importer: Any) -> None:
    whole = trl(tmp_path, 1, [1.0, 0.0, 1.0, 1.0]).read_bytes()
    random_ = random.Random(4)
    path = tmp_path / "completions_00002.parquet"
    begun = time.monotonic()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(RlprobeError):
            importer.read(Source(path))
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(random_.choice((1, 1, 4))):
            data[random_.randrange(4, len(data))] = random_.randrange(256)
        path.write_bytes(data)
        try:
            importer.read(Source(path))
        except RlprobeError:
            continue
    assert time.monotonic() - begun < 60


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ROW = st.fixed_dictionaries(
    {"prompt": JSON, "completion": JSON},
    optional=dict.fromkeys(
        ("reward", "rewards", "step", "group", "advantage", "completion_length", "acc"), JSON
    ),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(ROW, min_size=1, max_size=4))
def test_rollouts_of_any_content(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = lines(tmp_path / "x.jsonl", rows)
    try:
        (reading,) = Completions().read(Source(path))
    except RlprobeError:
        return
    assert all(rollout.completion is not None for rollout in reading.rollouts)
    reading.rows.columns()
