"""JSON documents that hold a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from tests.importers.reading import log, points, read


def document(folder: Path, content: Any, indent: int | None = None) -> Any:
    return read(folder, "metrics.json", json.dumps(content, indent=indent))


@pytest.mark.parametrize("indent", [None, 2])
def test_golden_values_of_megatron(tmp_path: Path, indent: int | None) -> None:
    golden = {
        "lm loss": {"start_step": 1, "end_step": 10, "values": {"1": 10.5, "5": 9.5, "10": "nan"}},
        "num-zeros": {"values": {"1": 7, "5": 8}},
    }
    run = document(tmp_path, golden, indent)
    assert run.info.source == "json"
    assert points(run, "loss") == [(1, 10.5), (5, 9.5)], "the text nan is padding"


def test_nemo_rl_with_percent_sentinels_and_other_axes(tmp_path: Path) -> None:
    steps = {str(step): float(step) for step in range(1, 5)}
    run = document(
        tmp_path,
        {
            "train/loss": steps,
            "train/reward": steps,
            "train/baseline_reward/pct_mixed": {"1": 25.0, "2": 0.0, "3": 100.0, "4": 50.0},
            "train/baseline_reward/pct_1": dict.fromkeys(steps, 12.5),
            "train/probs_ratio_max": {"1": 1.5, "2": -1.0, "3": 1.25, "4": -1.0},
            "train/natural_termination_rate": dict.fromkeys(steps, 0.75),
            "validation/accuracy": {"0": 0.25, "4": 0.5},
            "ray/node.0.gpu.0.util": {str(second): 1.0 for second in range(0, 900, 10)},
        },
    )
    assert run.info.framework == "nemo_rl"
    zero = "zero_variance_group_fraction"
    assert points(run, zero) == [(1, 0.75), (2, 1.0), (3, 0.0), (4, 0.5)]
    assert points(run, "group_all_pass_fraction")[0] == (1, 0.125)
    assert points(run, "ratio_max") == [(1, 1.5), (3, 1.25)], "-1 is not measured"
    assert points(run, "truncation_rate")[0] == (1, 0.25)
    assert points(run, "eval/accuracy") == [(0, 0.25), (4, 0.5)]
    assert run.steps.step.tolist() == [0, 1, 2, 3, 4]
    assert "another step axis" in run.info.notes[0]


def test_rows_under_some_key(tmp_path: Path) -> None:
    rows = [{"step": 2, "loss": 0.5}, {"step": 4, "loss": 0.25, "x": None}]
    run = document(tmp_path, {"run": {"name": "a", "history": rows}, "tags": [{"a": "b"}]})
    assert points(run, "loss") == [(2, 0.5), (4, 0.25)]


def test_rows_without_steps_are_numbered(tmp_path: Path) -> None:
    run = document(tmp_path, [{"loss": 0.5}, {"loss": 0.25}, "text"])
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    assert run.info.notes == ("steps not logged: numbered by row",)
    assert [problem.message for problem in run.problems] == ["row 2 left out: not an object"]


def test_columns(tmp_path: Path) -> None:
    run = document(tmp_path, {"step": [1, 2], "loss": [0.5, 0.25], "name": "a"})
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_metrics_with_lists_of_steps(tmp_path: Path) -> None:
    run = document(tmp_path, {"loss": {"step": [1, 2], "value": [0.5, 0.25]}, "lr": {"value": 1}})
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_exports_of_tensorboard_are_named_by_their_file(tmp_path: Path) -> None:
    run = read(tmp_path, "run-a-tag-train_loss.json", "[[1.5, 1, 0.5], [2.5, 2, 0.25]]")
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    text = "Wall time,Step,Value\n1.5,1,0.5\n2.5,2,0.25\n"
    run = read(tmp_path, "run-a-tag-train_loss.csv", text)
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_one_row(tmp_path: Path) -> None:
    run = document(tmp_path, {"step": 7, "train/gen_kl_error": 0.5, "train/probs_ratio": 1.0}, 1)
    assert points(run, "mismatch_kl") == [(7, 0.5)]


def test_a_document_that_was_cut_is_read_up_to_the_cut(tmp_path: Path) -> None:
    state = json.dumps({"log_history": [{"step": s, "loss": s / 4} for s in (1, 2, 3)]}, indent=2)
    run = read(tmp_path, "trainer_state.json", state[: state.index('"step": 3')])
    assert points(run, "loss") == [(1, 0.25), (2, 0.5)]
    assert "as JSON" in run.problems[0].message


@pytest.mark.parametrize("content", [{"a": {"b": 1}}, [1, 2], {"text": "x"}, [], {}, [[[]]]])
def test_other_documents_hold_no_run(tmp_path: Path, content: Any) -> None:
    with pytest.raises(InputError, match=r"no (rows with steps|metrics)"):
        open_runs(log(tmp_path, "other.json", json.dumps(content, indent=1)))
