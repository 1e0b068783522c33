"""CSV and its relatives."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlprobe.importers import open_runs
from tests.importers.reading import log, points, read


def test_an_export_of_wandb(tmp_path: Path) -> None:
    text = (
        '"Step","a - b - train/loss","a - b - train/loss__MIN","a - b - train/loss__MAX"\n'
        '"4","0.5","0.25","0.75"\n"8","NaN","0.5","0.5"\n'
    )
    run = read(tmp_path, "wandb.csv", text)
    assert run.info.source == "csv"
    assert run.steps.names == ("loss",)
    (_, first), (step, second) = points(run, "loss")
    assert (first, step) == (0.5, 8)
    assert math.isnan(second)


def test_names_of_runs_may_hold_stamps_and_sentences(tmp_path: Path) -> None:
    name = "17/04/2025_22:06 2024-05-01 10:11:12 what we tried after the last one: 0.5 - loss"
    run = read(tmp_path, "wandb.csv", f'"Step","{name}"\n4,0.5\n8,0.25\n')
    assert points(run, "loss") == [(4, 0.5), (8, 0.25)]


@pytest.mark.parametrize("before", ["> ", "0: ", "[rank3]: "])
def test_a_table_behind_prefixes_is_the_consoles(tmp_path: Path, before: str) -> None:
    rows = ("step\tloss\tzorp", "10\t0.5\t3", "20\t0.25\t4")
    run = read(tmp_path, "train.log", "".join(f"{before}{row}\n" for row in rows))
    assert run.info.source == "console"
    assert points(run, "loss") == [(10, 0.5), (20, 0.25)]


def test_chatter_with_a_comma_heads_no_table(tmp_path: Path) -> None:
    text = "2024-05-01 10:11:12,345 INFO ready\nstep: 1, loss: 0.5\nstep: 2, loss: 0.25\n"
    run = read(tmp_path, "train.log", text)
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_an_export_of_several_runs(tmp_path: Path) -> None:
    text = '"Step","one - loss","two - loss","one - loss__MAX"\n1,0.5,,0.5\n2,0.25,0.75,\n'
    runs = open_runs(log(tmp_path, "wandb.csv", text))
    assert [(run.info.id, points(run, "loss")) for run in runs] == [
        ("one", [(1, 0.5), (2, 0.25)]),
        ("two", [(2, 0.75)]),
    ]


def test_progress_of_stable_baselines(tmp_path: Path) -> None:
    text = (
        "rollout/ep_rew_mean,time/total_timesteps,train/entropy_loss,train/explained_variance\n"
        "20.5,2048,,\n21.5,4096,-0.5,nan\n"
    )
    run = read(tmp_path, "progress.csv", text)
    assert run.info.framework == "sb3"
    assert points(run, "reward_mean") == [(2048, 20.5), (4096, 21.5)]
    assert points(run, "entropy") == [(4096, 0.5)]


def test_metrics_of_lightning_are_sparse(tmp_path: Path) -> None:
    text = "epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.75\n1,19,0.25,\n"
    run = read(tmp_path, "metrics.csv", text)
    assert points(run, "loss") == [(9, 0.5), (19, 0.25)]
    assert points(run, "eval/loss") == [(9, 0.75)]
    assert len(run.info.attempts) == 1


@pytest.mark.parametrize(
    "text",
    [
        "step\tloss\n1\t0.5\n2\t0.25\n",
        "step;loss\n1;0,5\n2;0,25\n",
        "# run\nstep,loss\r\n1,0.5\r\n2,0.25\r\n",
    ],
)
def test_delimiters_and_line_ends(tmp_path: Path, text: str) -> None:
    assert points(read(tmp_path, "run.csv", text), "loss") == [(1, 0.5), (2, 0.25)]


def test_bad_rows_are_named(tmp_path: Path) -> None:
    run = read(tmp_path, "run.csv", "step,loss\n1,0.5\n2\nx,1\n3,0.25")
    assert points(run, "loss") == [(1, 0.5), (3, 0.25)]
    assert [problem.message for problem in run.problems] == [
        "line 3 left out: not 2 cells",
        "line 4 left out: no step",
    ]


def test_a_table_without_steps_is_numbered(tmp_path: Path) -> None:
    run = read(tmp_path, "run.csv", "loss,reward\n0.5,1\n0.25,2\n")
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    assert run.info.notes == ("steps not logged: numbered by row",)


def test_an_export_may_have_runs_of_any_name_in_its_columns(tmp_path: Path) -> None:
    run = "17/04/2025_22:06:37_a-48n - lm_loss"
    text = f'"Step","{run}","{run}__MIN"\n"4","12.5","12.5"\n"52","9.25","9.25"\n'
    assert points(read(tmp_path, "export.csv", text), "loss") == [(4, 12.5), (52, 9.25)]
