"""Directories: which files are one run, which are several, and what is never opened."""

from __future__ import annotations

import gzip
import json
import os
import socket
from pathlib import Path

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import directory, open_runs
from tests.importers.reading import log, only, points

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 1, in <module>\n'
    "RuntimeError: CUDA out of memory\n"
)


def rows(first: int, last: int, key: str = "loss") -> str:
    return "".join(json.dumps({"step": s, key: s / 4}) + "\n" for s in range(first, last + 1))


def test_files_of_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        log(tmp_path, f"metrics.rank{rank}.jsonl", rows(1, 3))
    run = only(tmp_path)
    assert sorted(run.ranks.series_by_rank("loss")) == [0, 1, 10]
    assert points(run, "loss") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert run.info.notes == ("metrics of the run: those of rank 0",)


RANKED = {
    "of a file": "metrics_rank{}.jsonl",
    "before the name": "rank{}-metrics.jsonl",
    "of nothing else": "rank_{}.jsonl",
    "after a dot": "log.rank{}.txt",
    "at the end": "log_rank{}.txt",
    "of a folder": "rank_{}/metrics.jsonl",
    "of a worker": "worker-{}/metrics.jsonl",
    "of a node": "node{}/metrics.jsonl",
    "of NeMo": "nemo_log_globalrank-{}_localrank-0.txt",
    "of torchrun": "none_k2x/attempt_0/{}/stdout.log",
    "of submitit": "4711_{}_log.out",
    "of a compressed file": "metrics_rank{}.jsonl.gz",
}


@pytest.mark.parametrize("name", RANKED.values(), ids=RANKED)
def test_the_rank_is_told_by_the_place(name: str, tmp_path: Path) -> None:
    for rank in range(3):
        text = "".join(f"step {step} | loss {rank + step / 4}\n" for step in (1, 2, 3))
        text = rows(1, 3).replace('"loss": 0', f'"loss": {rank}') if ".jsonl" in name else text
        data = gzip.compress(text.encode()) if name.endswith(".gz") else text
        log(tmp_path, name.format(rank), data)
    run = only(tmp_path)
    by_rank = run.ranks.series_by_rank("loss")
    assert {rank: values.values.tolist() for rank, values in by_rank.items()} == {
        rank: [rank + 0.25, rank + 0.5, rank + 0.75] for rank in range(3)
    }


def test_many_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in range(256):
        log(tmp_path, f"metrics_rank{rank}.jsonl", rows(1, 2))
    run = only(tmp_path)
    assert len(run.ranks.series_by_rank("loss")) == 256


def test_ranks_that_are_counted_on_each_node_are_counted_on(tmp_path: Path) -> None:
    for node in (0, 1):
        for rank in (0, 1):
            log(tmp_path, f"node_{node}/rank_{rank}.jsonl", rows(1, 2 + node))
    by_rank = only(tmp_path).ranks.series_by_rank("loss")
    assert {rank: len(values) for rank, values in by_rank.items()} == {0: 2, 1: 2, 2: 3, 3: 3}


def test_ranks_of_several_launches(tmp_path: Path) -> None:
    for launch in (0, 1):
        for rank in (0, 1):
            name = f"attempt_{launch}/{rank}/stdout.log"
            log(tmp_path, name, "".join(f"step {s} | loss 0.5\n" for s in range(1, 9 - launch)))
    run = only(tmp_path)
    assert [attempt.number for attempt in run.info.attempts] == [1, 2]
    assert sorted(zip(run.ranks.rank.tolist(), run.ranks.attempt.tolist(), strict=True)) == sorted(
        [(rank, 1) for rank in (0, 1) for _ in range(8)]
        + [(rank, 2) for rank in (0, 1) for _ in range(7)]
    )


def test_names_that_only_sound_like_ranks_are_others(tmp_path: Path) -> None:
    for name in ("frank1.jsonl", "frank2.jsonl"):
        log(tmp_path, name, rows(1, 2))
    assert len(open_runs(tmp_path)) == 2


def test_a_rank_without_metrics_tells_how_it_ended(tmp_path: Path) -> None:
    log(tmp_path, "attempt_0/0/stdout.log", "step 1 | loss 0.5\nstep 2 | loss 0.25\n")
    log(tmp_path, "attempt_0/3/stdout.log", "loading\n" + TRACEBACK)
    run = only(tmp_path)
    assert [(event.kind, event.rank) for event in run.events] == [("crash", 3)]
    assert run.events[0].data["kind"] == "cuda_out_of_memory"


# --- rotated logs, two outputs ----------------------------------------------------------------

ROTATED = {
    "numbered": ("t.log.2.gz", "t.log.1", "t.log"),
    "beyond nine": ("t.log.10", "t.log.9", "t.log"),
    "without the newest": ("t.log.3", "t.log.2", "t.log.1"),
    "dated": ("t.log.2026-11-29", "t.log.2026-11-30", "t.log"),
    "dated by logrotate": ("t.log-20261129.gz", "t.log-20261130", "t.log"),
    "dated before the suffix": ("t-20261129.log", "t-20261130.log", "t.log"),
    "by loguru": ("t.2026-11-29_08-00-00_120000.log", "t.2026-11-29_20-00-00_1.log", "t.log"),
}


@pytest.mark.parametrize("names", ROTATED.values(), ids=ROTATED)
def test_a_rotated_log_is_one_log_from_the_oldest_on(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    lines = [json.dumps({"loss": 1 / n, "grad_norm": n}) + "\n" for n in range(1, 31)]  # no steps
    for part, name in enumerate(names):
        data = "".join(lines[part * 10 : part * 10 + 10]).encode()
        log(tmp_path, name, gzip.compress(data) if name.endswith(".gz") else data)
    run = only(tmp_path)
    assert [value for _, value in points(run, "grad_norm")] == [float(n) for n in range(1, 31)]
    assert run.info.path == str(tmp_path / names[-1])
    assert len(run.info.attempts) == 1


def test_of_a_rotated_log_that_is_given_alone_the_rest_is_named(tmp_path: Path) -> None:
    log(tmp_path, "t.log.1.gz", gzip.compress(rows(1, 2).encode()))
    run = only(log(tmp_path, "t.log", rows(3, 4)))
    assert run.info.notes == (
        "older rows are in t.log.1.gz, which is not read: give the directory",
    )


def test_logs_with_dates_in_their_names_are_runs_of_their_own(tmp_path: Path) -> None:
    for name in (
        "exp-20261129.jsonl",
        "exp-20261130.jsonl",
        "run.0",
        "run.1",
        "b.log.0",
        "b.log.1",
    ):
        log(tmp_path, name, rows(1, 2))
    assert len(open_runs(tmp_path)) == 6


@pytest.mark.parametrize(
    ("out", "err"),
    [
        ("slurm-77.out", "slurm-77.err"),
        ("stdout.log", "stderr.log"),
        ("job.o77", "job.e77"),
        ("run.stdout", "run.stderr"),
    ],
)
def test_both_outputs_of_a_process_are_one_run(out: str, err: str, tmp_path: Path) -> None:
    log(tmp_path, out, "step 1 | loss 0.5\nstep 2 | loss 0.25\n")
    log(
        tmp_path,
        err,
        "warming up\nTraceback (most recent call last):\n  File 'a'\nValueError: bad\n",
    )
    run = only(tmp_path)
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]
    assert [event.kind for event in run.events] == ["crash"]
    assert run.info.path == str(tmp_path / out)


def test_metrics_may_stand_in_the_error_output(tmp_path: Path) -> None:
    log(tmp_path, "a.out", "hello\n")
    log(tmp_path, "a.err", "step 1 | loss 0.5\nstep 2 | loss 0.25\n")
    assert points(only(tmp_path), "loss") == [(1, 0.5), (2, 0.25)]


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


def test_pipes_sockets_and_devices_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        open_runs(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        open_runs("/dev/zero")
    server = socket.socket(socket.AF_UNIX)
    try:
        monkeypatch.chdir(tmp_path)  # a socket's path may not be long
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


def test_the_same_metrics_in_both_outputs_count_once(tmp_path: Path) -> None:
    text = "".join(f"step {step} | loss {step / 4} | grad_norm 1.0\n" for step in range(1, 5))
    log(tmp_path, "a.out", text)
    log(
        tmp_path,
        "a.err",
        "".join(f"step {step} | loss {step / 4}\n" for step in (1, 2)) + TRACEBACK,
    )
    run = only(tmp_path)
    assert points(run, "loss") == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert len(run.info.attempts) == 1
    assert run.info.notes == ("a.err tells the same run as a.out: not read once more",)
    assert [event.kind for event in run.events] == ["crash"]


def test_other_metrics_in_the_error_output_are_added(tmp_path: Path) -> None:
    log(tmp_path, "a.out", "".join(f"step {step} | loss 0.5\n" for step in (1, 2, 3)))
    log(tmp_path, "a.err", "".join(f"step {step} | reward 0.25\n" for step in (1, 2, 3)))
    run = only(tmp_path)
    assert len(points(run, "loss")) == len(points(run, "reward_mean")) == 3
    assert len(run.info.attempts) == 1


def test_the_error_output_of_a_rank_tells_of_its_end(tmp_path: Path) -> None:
    log(tmp_path, "attempt_0/0/stdout.log", "step 1 | loss 0.5\nstep 2 | loss 0.25\n")
    log(tmp_path, "attempt_0/0/stderr.log", "warming up\n")
    log(tmp_path, "attempt_0/1/stdout.log", "hello\n")
    log(tmp_path, "attempt_0/1/stderr.log", TRACEBACK)
    run = only(tmp_path)
    assert [(event.kind, event.rank) for event in run.events] == [("crash", 1)]


def test_pipes_where_a_store_has_files_do_not_hang(tmp_path: Path) -> None:
    run = tmp_path / "0" / "r1"
    (run / "metrics").mkdir(parents=True)
    for name in ("meta.yaml", "metrics/loss", "run-x.wandb", "run-x.swanlab"):
        os.mkfifo(run / name)
    log(tmp_path, "old/manifest.json", '{"schema_version": 1, "run_id": "a", "algorithm": "x"}')
    (tmp_path / "old" / "samples").mkdir()
    os.mkfifo(tmp_path / "old" / "samples" / "a.parquet")
    log(tmp_path, "a.jsonl", rows(1, 2))
    assert len(only(tmp_path).steps) == 2


def test_what_was_not_understood_names_its_file_where_a_run_has_several(tmp_path: Path) -> None:
    good = "".join(f'{{"step": {step}, "loss": 0.5}}\n' for step in range(1, 6))
    log(tmp_path, "run/metrics_rank0.jsonl", good)
    log(tmp_path, "run/metrics_rank1.jsonl", good.replace('"step": 3', '"step": 3:'))
    (run,) = open_runs(tmp_path / "run")
    (unread,) = run.info.unread
    assert unread.count == 1
    assert unread.examples == ((3, '{"step": 3:, "loss": 0.5}'),)
    assert unread.files == ("metrics_rank1.jsonl",)
    (alone,) = open_runs(tmp_path / "run" / "metrics_rank1.jsonl")
    assert alone.info.unread[0].files == ()
