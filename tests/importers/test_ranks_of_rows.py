"""Rows of several ranks in one log, told apart by a column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from rlprobe.store.run import Run
from tests.importers.reading import points, read


def of_rows(folder: Path, rows: Iterable[Mapping[str, object]]) -> Run:
    return read(folder, "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def rows_of_ranks(key: str = "rank") -> list[dict[str, float]]:
    return [
        {"step": step, key: rank, "loss": step + rank / 8, "grad_norm": 1.0}
        for step in range(1, 6)
        for rank in range(4)
    ]


@pytest.mark.parametrize("key", ["rank", "local_rank", "global_rank", "process_index", "Rank"])
def test_rows_of_ranks_are_theirs(tmp_path: Path, key: str) -> None:
    run = of_rows(tmp_path, rows_of_ranks(key))
    assert points(run, "loss") == [(step, step) for step in range(1, 6)]
    by_rank = run.ranks.series_by_rank("loss")
    assert sorted(by_rank) == [0, 1, 2, 3]
    assert by_rank[2].values.tolist() == [step + 0.25 for step in range(1, 6)]
    assert by_rank[2].steps.tolist() == [1, 2, 3, 4, 5]
    assert run.steps.names == ("grad_norm", "loss")
    assert f"metrics of the run: those of rank 0, of 4 ranks (`{key}`)" in run.info.notes
    assert len(run.info.attempts) == 1


def test_rank_after_rank_is_no_relaunch(tmp_path: Path) -> None:
    rows = sorted(rows_of_ranks(), key=lambda row: row["rank"])
    run = of_rows(tmp_path, rows)
    assert len(run.info.attempts) == 1
    assert points(run, "loss") == [(step, step) for step in range(1, 6)]
    assert run.ranks.series_by_rank("loss")[3].values[-1] == 5.375


def test_a_table_tells_ranks_too(tmp_path: Path) -> None:
    lines = ["step,rank,loss"]
    lines += [f"{step},{rank},{step + rank}" for step in range(1, 6) for rank in range(2)]
    run = read(tmp_path, "metrics.csv", "\n".join(lines))
    assert points(run, "loss") == [(step, step) for step in range(1, 6)]
    assert run.ranks.series_by_rank("loss")[1].values.tolist() == [2, 3, 4, 5, 6]


def test_the_rank_of_all_ranks_is_better_than_that_of_a_node(tmp_path: Path) -> None:
    rows = [{**row, "local_rank": row["rank"] % 2} for row in rows_of_ranks()]
    run = of_rows(tmp_path, rows)
    assert sorted(run.ranks.series_by_rank("loss")) == [0, 1, 2, 3]


def test_rows_of_no_rank_and_what_one_rank_alone_tells_are_the_run_s(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    for row in rows_of_ranks():
        rows.append({**row, "queue": 7.0} if row["rank"] == 2 else row)
        rows += [{"step": row["step"], "eval/accuracy": 0.5}] if row["rank"] == 3 else []
    run = of_rows(tmp_path, rows)
    assert points(run, "loss") == [(step, step) for step in range(1, 6)]
    assert points(run, "queue") == [(step, 7.0) for step in range(1, 6)]
    assert points(run, "eval/accuracy") == [(step, 0.5) for step in range(1, 6)]
    assert sorted(run.ranks.series_by_rank("queue")) == [2]


@pytest.mark.parametrize(
    "ranks",
    [
        [0, 0, 0, 0, 0, 0],  # the one that logs
        [8, 8, 8, 8, 8, 8],  # a setting
        [3, 1, 7, 2, 5, 4],  # a metric
    ],
)
def test_a_number_that_does_not_repeat_steps_tells_no_ranks(
    tmp_path: Path, ranks: list[int]
) -> None:
    rows = [
        {"step": step, "rank": rank, "loss": float(step)}
        for step, rank in enumerate(ranks, start=1)
    ]
    run = of_rows(tmp_path, rows)
    assert points(run, "loss") == [(step, step) for step in range(1, 7)]
    assert not len(run.ranks)
    assert points(run, "rank") == list(enumerate(ranks, start=1))
