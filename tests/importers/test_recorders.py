"""The stores of other flight recorders: each is one run, with all that it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
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
    assert kinds == [("checkpoint", 3), ("lr_changed", 4), ("nan_detected", 2), ("crash", None)]
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
