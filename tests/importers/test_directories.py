"""Directories: which files are one run, which are several, and what is never opened."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import directory, open_runs
from tests.importers.reading import log, only, points


def rows(first: int, last: int, key: str = "loss") -> str:
    return "".join(json.dumps({"step": s, key: s / 4}) + "\n" for s in range(first, last + 1))


def test_files_of_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        log(tmp_path, f"metrics.rank{rank}.jsonl", rows(1, 3))
    run = only(tmp_path)
    assert sorted(run.ranks.series_by_rank("loss")) == [0, 1, 10]
    assert len(run.steps) == 0


def test_files_of_attempts_are_one_run(tmp_path: Path) -> None:
    log(tmp_path, "attempt_1/metrics.jsonl", rows(1, 5))
    log(tmp_path, "attempt_2/metrics.jsonl", rows(4, 8))
    run = only(tmp_path)
    assert [(a.first_step, a.last_step) for a in run.info.attempts] == [(1, 5), (4, 8)]


def test_trainer_and_orchestrator_are_one_run_and_one_launch(tmp_path: Path) -> None:
    log(tmp_path, "out/trainer/metrics.jsonl", rows(0, 5, "loss/mean"))
    log(tmp_path, "out/orchestrator/metrics.jsonl", rows(0, 5, "reward/mean"))
    run = only(tmp_path)
    assert len(run.info.attempts) == 1
    assert len(points(run, "loss")) == len(points(run, "reward_mean")) == 6


def test_other_files_are_runs_of_their_own(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", rows(1, 2))
    log(tmp_path, "b/run.log", "step 1 | loss 0.5\n")
    log(tmp_path, "config.json", '{"step": 1, "loss": 1}')
    log(tmp_path, "notes.txt", "nothing to see")
    assert [run.info.id for run in open_runs(tmp_path)] == ["a.jsonl", "b/run.log"]


def test_beside_a_trainer_state_logs_tell_the_same_run(tmp_path: Path) -> None:
    state = json.dumps({"log_history": [{"step": 1, "loss": 0.5}]})
    log(tmp_path, "trainer_state.json", state)
    log(tmp_path, "checkpoint-1/trainer_state.json", state)
    log(tmp_path, "train.log", "step 1 | loss 0.5\n")
    run = only(tmp_path)
    assert run.info.source == "hf_trainer_state"


def test_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    for number in (9, 10):
        history = [{"step": step, "loss": 0.5} for step in range(1, number + 1)]
        log(
            tmp_path,
            f"checkpoint-{number}/trainer_state.json",
            json.dumps({"log_history": history}),
        )
    assert len(only(tmp_path).steps) == 10


def test_loops_and_unreadable_places_are_passed_over(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", rows(1, 2))
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert len(only(tmp_path).steps) == 2


def test_only_so_many_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_FILES", 5)
    for number in range(9):
        log(tmp_path, f"{number}.jsonl", rows(1, 1))
    assert len(open_runs(tmp_path)) == 5


def test_pipes_sockets_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        open_runs(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        open_runs("/dev/zero")
    server = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(tmp_path)  # a socket's path may not be long
        server.bind("socket")
        with pytest.raises(InputError, match="not a regular file"):
            open_runs("socket")
    finally:
        server.close()


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_impossible_names(name: str) -> None:
    with pytest.raises(InputError, match="Couldn't find"):
        open_runs(name)


def test_exported_histories_of_many_runs_lie_in_one_directory(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        log(tmp_path, f"{name}.json", json.dumps({"log_history": [{"step": 1, "loss": 0.5}]}))
    log(tmp_path, "d.log", "step 1 | loss 0.5\n")
    assert len(open_runs(tmp_path)) == 4
