"""Documents are read whole, and what is left of them is counted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.importers.documents.csv_table import CSVTable
from rlprobe.importers.documents.json_document import JSONDocument
from rlprobe.importers.documents.jsonl import JSONLines
from rlprobe.importers.source import Source
from rlprobe.values import Unread
from tests.importers.reading import log, points, read


def unread(path: Path) -> list[Unread]:
    source = Source(path)
    importer = next(it for it in (JSONLines(), JSONDocument(), CSVTable()) if it.recognises(source))
    return [piece for reading in importer.read(Source(path)) for piece in reading.unread]


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("end", ["\r", "\r\r\n", "\n\r"])
def test_line_ends_of_a_table(tmp_path: Path, end: str) -> None:
    text = end.join(["step,loss", *(f"{step},{step / 8}" for step in range(1, 9))])
    run = read(tmp_path, "run.csv", text)
    assert points(run, "loss") == [(step, step / 8) for step in range(1, 9)]


def test_a_header_that_comes_again_and_grows(tmp_path: Path) -> None:
    text = (
        "train/value_loss,time/total_timesteps\n0.5,256\n"
        "train/value_loss,time/total_timesteps,rollout/ep_rew_mean\n0.25,512,-7\n"
        "train/value_loss,time/total_timesteps,rollout/ep_rew_mean\n0.125,768,-6\n"
    )
    run = read(tmp_path, "progress", text)
    assert points(run, "value_loss") == [(256, 0.5), (512, 0.25), (768, 0.125)]
    assert points(run, "reward_mean") == [(512, -7.0), (768, -6.0)]


def test_episodes_of_a_monitor(tmp_path: Path) -> None:
    text = '#{"t_start": 1.5, "env_id": "Pole-v1"}\nr,l,t\n9.5,12,0.5\n11.0,14,1.0\n'
    run = read(tmp_path, "0.monitor.csv", text)
    assert run.info.framework == "monitor"
    assert points(run, "reward_mean") == [(1, 9.5), (2, 11.0)]
    assert points(run, "completion_length_mean") == [(1, 12.0), (2, 14.0)]


def test_decimal_commas_and_thousands(tmp_path: Path) -> None:
    run = read(tmp_path, "a.csv", "step;loss\n1.000;0,5\n1.250;0,25\n")
    assert points(run, "loss") == [(1000, 0.5), (1250, 0.25)]
    run = read(tmp_path, "b.csv", 'step,loss\n"1,000",0.5\n"1,250",0.25\n')
    assert points(run, "loss") == [(1000, 0.5), (1250, 0.25)]
    run = read(tmp_path, "c.csv", 'step,loss\n10,"0,5"\n20,"0,25"\n')
    assert points(run, "loss") == [(10, 0.5), (20, 0.25)]


def test_a_number_that_can_be_read_in_two_ways_is_not_read(tmp_path: Path) -> None:
    path = log(tmp_path, "a.csv", "step;loss;lr\n1;0,5;0.25\n2;1,250;0.5\n3;0,75;0.5\n")
    (run,) = open_runs(path)
    assert points(run, "loss") == [(1, 0.5), (3, 0.75)]
    (cell,) = unread(path)
    assert (cell.thing, cell.count, cell.examples) == ("cell", 1, ((3, "loss: 1,250"),))


def test_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    path = log(tmp_path, "run.csv", "step,loss,lr\n-,nats,-\n1,0.5,1\n2,0.5\n3,0.5,2,7\n4,0.25,3")
    assert unread(path) == [Unread("row", 2, 4, ((4, "2,0.5"), (5, "3,0.5,2,7")))]
    (run,) = open_runs(path)
    assert points(run, "loss") == [(1, 0.5), (4, 0.25)]


def test_a_number_cut_at_the_end_is_not_read(tmp_path: Path) -> None:
    path = log(tmp_path, "run.csv", "step,lr\n1,2.5e-05\n2,2.5e-05\n3,2.5e-0")
    (run,) = open_runs(path)
    assert points(run, "lr") == [(1, 2.5e-05), (2, 2.5e-05)]
    assert unread(path)[0].examples == ((4, "3,2.5e-0"),)


def test_a_header_in_a_comment_and_cells_of_several_lines(tmp_path: Path) -> None:
    run = read(tmp_path, "a.csv", "# made by hand\n# step,loss\n1,0.5\n2,0.25\n")
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    run = read(tmp_path, "b.csv", 'step,note,loss\n1,"two\nlines",0.5\n2,"",0.25\n')
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_values_of_lightning_by_step_and_by_epoch(tmp_path: Path) -> None:
    text = (
        "epoch,step,train_loss_step,train_loss_epoch,val_loss_epoch,val_loss_step\n"
        "0,9,0.5,,,\n0,19,0.25,,,\n0,19,,0.375,0.75,\n0,20,,,,8.0\n"
    )
    run = read(tmp_path, "metrics.csv", text)
    assert points(run, "loss") == [(9, 0.5), (19, 0.25)]
    assert points(run, "eval/loss") == [(19, 0.75)]
    assert points(run, "train_loss_epoch") == [(19, 0.375)]
    run = read(tmp_path, "epochs.csv", "step,train_loss_epoch\n9,0.5\n19,0.25\n")
    assert points(run, "loss") == [(9, 0.5), (19, 0.25)]


def test_columns_below_an_object(tmp_path: Path) -> None:
    document = {
        "progress": {
            "iterations": [0, 1, 2],
            "rewards": {"mean": [1, 2, 4]},
            "losses": [3, None, 1],
        },
        "eval": {"iterations": [0, 2], "reward": [5, 6]},
        "odd": [7, 8, 9, 10],
        "summary": {"best_reward": 4, "step": 3},
    }
    path = log(tmp_path, "history.json", json.dumps(document))
    (run,) = open_runs(path)
    assert run.steps.step.tolist() == [0, 1, 2]
    assert points(run, "reward_mean") == [(0, 1.0), (1, 2.0), (2, 4.0)]
    assert points(run, "loss") == [(0, 3.0), (2, 1.0)]
    assert points(run, "eval/reward_mean") == [(0, 5.0), (2, 6.0)]
    assert unread(path) == [Unread("column", 1, 4, ((1, "odd: [7, 8, 9, …] (4 values)"),))]


def test_columns_of_keras_have_no_steps(tmp_path: Path) -> None:
    run = read(tmp_path, "history.json", json.dumps({"loss": [3, 2, 1], "val_loss": [4, 3, 3]}))
    assert points(run, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert points(run, "eval/loss") == [(1, 4.0), (2, 3.0), (3, 3.0)]
    assert run.info.notes == ("steps not logged: numbered by row",)


def test_objects_that_repeat_their_columns_are_runs(tmp_path: Path) -> None:
    document = {name: {"steps": [5, 10], "reward": [1, k]} for k, name in enumerate(("a", "b"), 2)}
    runs = open_runs(log(tmp_path, "seeds.json", json.dumps(document)))
    assert [(run.info.id, points(run, "reward_mean")[-1]) for run in runs] == [
        ("a", (10, 2.0)),
        ("b", (10, 3.0)),
    ]


def test_lists_of_rows_of_training_and_evaluation(tmp_path: Path) -> None:
    document = {
        "train": [{"step": s, "loss": s / 4} for s in (1, 2, 3)],
        "eval": [{"step": 2, "loss": 9}],
        "parts": [{"from": 0, "loss": 1}, {"from": 2, "loss": 2}],
    }
    path = log(tmp_path, "run.json", json.dumps(document))
    (run,) = open_runs(path)
    assert points(run, "loss") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert points(run, "eval/loss") == [(2, 9.0)]
    assert [(piece.thing, piece.count) for piece in unread(path)] == [("row", 2)]


def test_a_data_frame_by_columns_has_its_steps_in_one_of_them(tmp_path: Path) -> None:
    frame = {"step": {"0": 10, "1": 20}, "loss": {"0": 0.5, "1": 0.25}}
    assert points(read(tmp_path, "frame.json", json.dumps(frame)), "loss") == [
        (10, 0.5),
        (20, 0.25),
    ]


def test_results_of_rllib(tmp_path: Path) -> None:
    rows = [
        {
            "training_iteration": number,
            "timesteps_total": 100 * number,
            "episode_reward_mean": math.nan if number == 1 else 2.0 * number,
            "info": {"learner": {"shared": {"learner_stats": {"entropy": 0.5, "kl": 0.25}}}},
            "config": {"lr": 0.5, "entropy_coeff": 0.125},
        }
        for number in (1, 2, 3)
    ]
    run = read(tmp_path, "result.json", lines(*rows))
    assert run.info.framework == "rllib"
    assert points(run, "reward_mean") == [(2, 4.0), (3, 6.0)]
    assert points(run, "entropy") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert points(run, "approx_kl") == [(1, 0.25), (2, 0.25), (3, 0.25)]
    assert points(run, "timesteps_total")[-1] == (3, 300.0)
    assert not [name for name in run.steps.names if "config" in name]


def test_rows_of_several_kinds(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(1, 5):
        rows += [{"step": step, "loss": 1.0 / step}, {"gpu/util": 50.0 + step}]
    rows += [{"step": 4, "mode": "eval", "loss": 7.0}, {"event": 3, "score": 1.0}]
    run = read(tmp_path, "run.jsonl", lines(*rows))
    assert points(run, "loss") == [(1, 1.0), (2, 0.5), (3, 1.0 / 3), (4, 0.25)]
    assert points(run, "eval/loss") == [(4, 7.0)]
    assert points(run, "gpu/util") == [(1, 51.0), (2, 52.0), (3, 53.0), (4, 54.0)]
    assert run.info.notes == (
        "1 rows without `step` left out",
        "4 rows without a step: at the step before",
    )


def test_cells_and_lines_of_json_that_were_not_understood(tmp_path: Path) -> None:
    text = (
        lines({"step": 1, "loss": 0.5, "speed": "1.5k"}, {"step": 2, "loss": 0.25}) + '{"step": 3'
    )
    path = log(tmp_path, "run.jsonl", text)
    assert unread(path) == [
        Unread("row", 1, 3, ((3, '{"step": 3'),)),
        Unread("cell", 1, 3, ((1, "speed: 1.5k"),)),
    ]


ROWS = [{"step": step, "loss": step / 4, "n/samples": 32 * step} for step in (1, 2, 3)]
COLUMNS = {"step": [1, 2, 3], "loss": [0.25, 0.5, 0.75], "n": {"samples": [32, 64, 96]}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(*ROWS)),
        ("a.csv", "step,loss,n/samples\n1,0.25,32\n2,0.5,64\n3,0.75,96\n"),
        ("a.json", json.dumps(COLUMNS)),
        ("b.json", json.dumps(ROWS)),
    ],
)
def test_another_counter_numbers_the_rows(tmp_path: Path, name: str, text: str) -> None:
    path = log(tmp_path, name, text)
    (run,) = open_runs(path)
    assert points(run, "n/samples") == [(1, 32.0), (2, 64.0), (3, 96.0)]
    (run,) = open_runs(path, "samples")
    assert points(run, "loss") == [(32, 0.25), (64, 0.5), (96, 0.75)]
    assert points(run, "step") == [(32, 1.0), (64, 2.0), (96, 3.0)]
    with pytest.raises(InputError, match="no such counter") as error:
        open_runs(path, "tokens")
    assert "'n/samples', 'step'" in str(error.value.hint)


def test_rows_of_one_value_name_their_metric(tmp_path: Path) -> None:
    text = "run,tag,step,value\na,loss,1,0.5\na,kl,1,0.25\na,loss,2,0.125\nb,loss,1,4\n"
    runs = open_runs(log(tmp_path, "scalars.csv", text))
    assert [(run.info.id, points(run, "loss"), points(run, "kl_mean")) for run in runs] == [
        ("a", [(1, 0.5), (2, 0.125)], [(1, 0.25)]),
        ("b", [(1, 4.0)], []),
    ]
    rows = [
        {"key": key, "step": step, "value": step / 2} for step in (1, 2) for key in ("loss", "x")
    ]
    for name, written in (("a.jsonl", lines(*rows)), ("a.json", json.dumps(rows))):
        run = read(tmp_path, name, written)
        assert points(run, "loss") == [(1, 0.5), (2, 1.0)]
        assert points(run, "x") == [(1, 0.5), (2, 1.0)]


def test_blank_cells_at_both_ends_are_no_frame(tmp_path: Path) -> None:
    run = read(tmp_path, "a.csv", "kl|step|loss\n1|1|2\n|2|\n|3|4\n|4|\n3|5|\n")
    assert points(run, "loss") == [(1, 2.0), (3, 4.0)]
    assert points(run, "kl_mean") == [(1, 1.0), (5, 3.0)]


def test_the_step_is_found_below_a_header_that_grew_at_its_front(tmp_path: Path) -> None:
    text = "loss,Step\n0.5,0\n" + "".join(f"kl,loss,Step\n7,0.5,{step}\n" for step in (10, 20))
    run = read(tmp_path, "a.csv", text)
    assert points(run, "loss") == [(0, 0.5), (10, 0.5), (20, 0.5)]
    assert points(run, "kl_mean") == [(10, 7.0), (20, 7.0)]


@pytest.mark.parametrize("key", ["{}", "epoch_{}", "Step {}"])
def test_rows_under_their_step(tmp_path: Path, key: str) -> None:
    document = {"log": {key.format(step): {"loss": step / 4, "kl": 0.5} for step in (3, 10)}}
    run = read(tmp_path, "run.json", json.dumps(document))
    assert points(run, "loss") == [(3, 0.75), (10, 2.5)]


def test_columns_without_steps_below_an_object(tmp_path: Path) -> None:
    document = {"history": {"loss": [3, 2], "val_loss": [4, 5]}, "name": "a"}
    run = read(tmp_path, "run.json", json.dumps(document))
    assert points(run, "loss") == [(1, 3.0), (2, 2.0)]
    assert points(run, "eval/loss") == [(1, 4.0), (2, 5.0)]


def test_results_whose_rows_are_longer_than_the_head(tmp_path: Path) -> None:
    rows = [
        {"episode_reward_mean": 1.5 * n, "hist_stats": [7] * 40_000, "training_iteration": n}
        for n in (1, 2, 3)
    ]
    run = read(tmp_path, "result.json", lines(*rows))
    assert run.info.source == "jsonl"
    assert points(run, "reward_mean") == [(1, 1.5), (2, 3.0), (3, 4.5)]


def test_an_evaluation_that_counts_its_own_batches_is_no_restart(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"env_info": "linux", "seed": 3}]
    for epoch in (1, 2, 3):
        rows += [
            {"mode": "train", "epoch": epoch, "iter": i, "loss": epoch + i / 64}
            for i in (8, 16, 24)
        ]
        rows.append({"mode": "val", "epoch": epoch, "iter": 5, "bbox_mAP": epoch / 8})
    for name, text in (("run.log.json", lines(*rows)), ("run.json", json.dumps(rows))):
        run = read(tmp_path, name, text)
        assert len(run.info.attempts) == 1
        assert [step for step, _ in points(run, "loss")] == [8, 16, 24, 32, 40, 48, 56, 64, 72]
        assert points(run, "eval/bbox_mAP") == [(24, 0.125), (48, 0.25), (72, 0.375)]


def test_rows_of_several_runs_that_name_theirs(tmp_path: Path) -> None:
    named = [(run, step) for step in (1, 2) for run in ("a", "bb")]
    rows = [{"run": run, "step": step, "loss": step / len(run)} for run, step in named]
    table = "".join(f"{row['run']},{row['step']},{row['loss']}\n" for row in rows)
    for name, text in (("a.jsonl", lines(*rows)), ("a.csv", "run,step,loss\n" + table)):
        runs = open_runs(log(tmp_path, name, text))
        assert [(run.info.id, points(run, "loss")) for run in runs] == [
            ("a", [(1, 1.0), (2, 2.0)]),
            ("bb", [(1, 0.5), (2, 1.0)]),
        ]
    later = [{"run_id": f"{step // 3}", "step": step, "loss": 1.0} for step in range(1, 6)]
    assert len(open_runs(log(tmp_path, "resumed.jsonl", lines(*later)))) == 1


def test_rows_of_an_evaluation_in_a_table(tmp_path: Path) -> None:
    text = "epoch,phase,loss,acc\n1,train,0.5,0.25\n1,val,0.75,0.125\n2,train,0.25,1\n2,val,3,1\n"
    run = read(tmp_path, "log.csv", text)
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    assert points(run, "eval/loss") == [(1, 0.75), (2, 3.0)]
    assert points(run, "eval/acc") == [(1, 0.125), (2, 1.0)]
