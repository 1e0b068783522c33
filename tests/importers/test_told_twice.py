"""The same run told by several files of a directory; what became of the files that are of none."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from rlprobe.errors import UnknownFormatError
from rlprobe.importers import open_runs
from tests.importers import encoders
from tests.importers.reading import log, only, points


def state(folder: Path, last: int, name: str = "trainer_state.json") -> Path:
    history = [{"step": step, "loss": 1 / step} for step in range(1, last + 1)]
    return log(folder, name, json.dumps({"log_history": history}))


def launch(folder: Path, first: int, last: int, wall: float) -> Path:
    """What the Trainer's TensorBoard callback leaves of one launch."""
    path = folder / "events.out.tfevents.1.host.1.0"
    path.parent.mkdir(parents=True)
    points_ = ((step, encoders.plain("train/loss", 1 / step)) for step in range(first, last + 1))
    events = (encoders.event(step, value, wall=wall + step) for step, value in points_)
    return encoders.event_file(path, *events)


def console(last: int, *, off: float = 0.0) -> str:
    rows = ({"loss": round(1 / step + off, 4), "step": step} for step in range(1, last + 1))
    return "".join(f"{row}\n" for row in rows)


def test_a_state_and_its_tensorboard_files_are_one_run(tmp_path: Path) -> None:
    state(tmp_path / "out" / "checkpoint-6", 6)
    launch(tmp_path / "out" / "runs" / "Nov30_12-00-00_host", 1, 6, wall=1e9)
    run = only(tmp_path)
    assert run.info.source == "hf_trainer_state"
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3, 4, 5, 6]
    assert any("runs/Nov30_12-00-00_host tells the same run" in note for note in run.info.notes)


def test_what_was_logged_after_the_last_checkpoint_counts(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-6", 6)
    launch(tmp_path / "runs" / "Nov30_12-00-00_host", 3, 9, wall=1e9)
    run = only(tmp_path)
    assert [step for step, _ in points(run, "loss")] == list(range(1, 10))
    assert [(event.kind, event.step) for event in run.events] == [("checkpoint", 6)]
    assert len(run.info.attempts) == 1
    assert run.info.path == str(tmp_path)


def test_several_launches_are_attempts_in_order_of_time(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-6", 6)
    launch(tmp_path / "runs" / "Nov30_12-00-00_host", 1, 7, wall=1e9)
    launch(tmp_path / "runs" / "Dec01_08-00-00_host", 4, 9, wall=2e9)
    run = only(tmp_path)
    spans = [(attempt.first_step, attempt.last_step) for attempt in run.info.attempts]
    assert spans == [(1, 7), (4, 9)]


def test_launches_beside_checkpoints_alone_are_attempts_too(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    launch(tmp_path / "runs" / "Nov30_12-00-00_host", 1, 7, wall=1e9)
    launch(tmp_path / "runs" / "Dec01_08-00-00_host", 6, 9, wall=2e9)
    run = only(tmp_path)
    assert len(run.info.attempts) == 2
    assert [event.step for event in run.events] == [5]


def test_directories_of_runs_without_a_trainer_are_runs_of_their_own(tmp_path: Path) -> None:
    launch(tmp_path / "runs" / "Nov30_12-00-00_host", 1, 7, wall=1e9)
    launch(tmp_path / "runs" / "Dec01_08-00-00_host", 1, 7, wall=2e9)
    assert len(open_runs(tmp_path)) == 2


def test_a_console_log_that_agrees_with_the_state_ends_the_run(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-6", 6)
    died = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n'
    log(tmp_path, "train.log", console(9) + died)
    run = only(tmp_path)
    assert [step for step, _ in points(run, "loss")] == list(range(1, 10))
    assert points(run, "loss")[6] == (7, 0.1429)
    assert [event.kind for event in run.events] == ["checkpoint", "crash"]
    assert "steps 7-9 from train.log, which agrees with the rest" in run.info.notes


def test_one_that_does_not_agree_is_left_out_and_named(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-6", 6)
    log(tmp_path, "eval.log", console(9, off=0.5))
    run = only(tmp_path)
    assert len(points(run, "loss")) == 6
    assert any(note.startswith("eval.log tells the same run as") for note in run.info.notes)


# --- what each file was -----------------------------------------------------------------------


def test_files_of_no_run_are_named_by_kind(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", '{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}\n')
    log(tmp_path, "notes.txt", "remember the milk")
    log(tmp_path, "model-1.safetensors", "x")
    log(tmp_path, "model-2.safetensors", "x")
    log(tmp_path, "config.json", "{}")
    log(tmp_path, "look.ipynb", "{}")
    log(tmp_path, "broken.sqlite", b"SQLite format 3\0" + b"x" * 100)
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as archive:
        archive.writestr("a.jsonl", '{"step": 1, "loss": 1}\n')
    run = only(tmp_path)
    assert run.info.notes == (
        "not read: notes.txt: no metrics in it",
        "not read: old.zip: packed; give it by itself",
        "not read: look.ipynb: a notebook; give it by itself",
        "not read: 2 .safetensors, config.json: by the name",
    )
    assert [problem.path for problem in run.problems] == [str(tmp_path / "broken.sqlite")]


def test_a_file_that_looks_like_metrics_and_was_not_understood_is_a_problem(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", '{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}\n')
    log(tmp_path, "b.txt", "the final reward was 0.75 in the end\n")
    (problem,) = only(tmp_path).problems
    assert problem.path == str(tmp_path / "b.txt")
    assert 'line 1: "the final reward was 0.75' in problem.message


def test_where_nothing_is_a_log_the_error_says_what_there_is(tmp_path: Path) -> None:
    log(tmp_path, "notes.txt", "remember the milk")
    for number in range(7):
        log(tmp_path, f"b/{number}.txt", "nothing")
    log(tmp_path, "broken.sqlite", b"SQLite format 3\0" + b"x" * 100)
    log(tmp_path, "model.pt", "x")
    with pytest.raises(UnknownFormatError) as caught:
        open_runs(tmp_path)
    said = str(caught.value)
    assert "no log in it: broken.sqlite (Couldn't read" in said
    assert "b/3.txt and 3 other files: no metrics in it; .pt: by the name" in said


def test_many_files_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", '{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}\n')
    for number in range(30):
        log(tmp_path, f"{number}.sqlite", b"SQLite format 3\0" + b"x" * 100)
    problems = only(tmp_path).problems
    assert len(problems) == 21
    assert problems[-1].message == "10 more files could not be read"


# --- several loggers --------------------------------------------------------------------------


def loggers(folder: Path, *, scale: float = 1.0) -> None:
    """One run as RLlib leaves it: JSON with one row for each iteration, a table, and events."""
    rewards = [step / 3 for step in range(1, 13)]
    rows = [
        {"training_iteration": i, "episode_reward_mean": value, "timesteps_total": 400 * i}
        for i, value in enumerate(rewards, start=1)
    ]
    log(folder, "result.json", "".join(json.dumps(row) + "\n" for row in rows))
    table = [f"{row['training_iteration']},{row['episode_reward_mean'] * scale}" for row in rows]
    log(folder, "progress.csv", "\n".join(["training_iteration,episode_reward_mean", *table]))
    events = (
        encoders.event(400 * i, encoders.plain("ray/tune/episode_reward_mean", value * scale))
        for i, value in enumerate(rewards, start=1)
    )
    encoders.event_file(folder / "events.out.tfevents.1.host", *events)


def test_loggers_that_say_the_same_are_one_run(tmp_path: Path) -> None:
    loggers(tmp_path)
    run = only(tmp_path)
    assert run.info.id == "result.json"
    assert len(run.steps) == 12
    twice = [note for note in run.info.notes if "tells the same run as result.json" in note]
    assert len(twice) == 2


def test_loggers_that_differ_are_runs_of_their_own(tmp_path: Path) -> None:
    loggers(tmp_path, scale=1.1)
    ids = [run.info.id for run in open_runs(tmp_path)]
    assert len(ids) == 2  # the table and the events say the same
    assert "result.json" in ids


def test_of_the_console_beside_a_table_the_ending_is_kept(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1 / step, "grad_norm": step / 2} for step in range(1, 13)]
    log(tmp_path, "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    died = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n'
    log(tmp_path, "train.log", console(12) + died)
    run = only(tmp_path)
    assert run.info.source == "jsonl"
    assert [event.kind for event in run.events] == ["crash"]
