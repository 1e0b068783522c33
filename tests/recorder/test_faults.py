"""Faults of the machine under a recorder: clocks, deleted directories, disks that take nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlprobe import Recorder
from rlprobe.errors import InputError
from rlprobe.recorder import clock, last_words, process
from rlprobe.store import files
from rlprobe.store.recording import Recording


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


# --- clocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-365 * 86_400.0, 365 * 86_400.0])
def test_a_clock_that_jumps_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    begin = time.time()
    recorder = Recorder(tmp_path / "run", signals=False, flush_seconds=60)
    recorder.step(1, loss=1.0)
    recorder.checkpoint(1, "ckpt")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    recorder.nan_detected(2, "loss")
    recorder.step(2, loss=1.0)
    monkeypatch.undo()
    recorder.close()
    run = Recording(tmp_path / "run")
    kinds = [event.kind for event in run.events]
    assert kinds == ["run_started", "checkpoint", "nan_detected", "run_ended"]
    times = [*(event.time for event in run.events), *run.steps.time.tolist()]
    assert all(begin - 1 <= moment <= time.time() + 1 for moment in times)


@pytest.mark.parametrize("moment", [float("nan"), 1e300, -1e300, 1.7e9, 0.0])
def test_a_moment_that_cannot_be_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    recorder = Recorder(tmp_path / "run", signals=False, flush_seconds=60)
    recorder.checkpoint(1, "ckpt")
    with monkeypatch.context() as patched:
        patched.setattr(process, "_now", lambda: moment)
        recorder.event("odd")
    recorder.event("last")
    recorder.close()
    run = Recording(tmp_path / "run")
    kinds = [event.kind for event in run.events]
    assert kinds == ["run_started", "checkpoint", "odd", "last", "run_ended"]
    assert all(abs(event.time - time.time()) < 60 for event in run.events)


def test_a_suspended_machine_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = [0.0]
    monkeypatch.setattr(clock, "_asleep", lambda: suspended[0])
    watch = clock.Clock()
    begin = time.monotonic()
    watch.look()
    before = watch.time_of("events", begin)
    suspended[0] = 3600.0
    watch.look()
    assert watch.time_of("events", begin) == before + 3600


def test_the_events_of_a_later_attempt_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    for jump in (0.0, -86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        with Recorder(tmp_path / "run", signals=False):
            pass
    events = Recording(tmp_path / "run").events
    assert [event.attempt for event in events] == [1, 1, 2, 2]


# --- a deleted directory ----------------------------------------------------------------------


def test_a_deleted_directory_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60, algorithm="GRPO", config={"a": 1})
    for step in range(10):
        recorder.step(step, loss=1.0)
    recorder.flush()
    shutil.rmtree(path)
    for step in range(10, 30):
        recorder.step(step, loss=1.0)
    with pytest.warns(RuntimeWarning, match="was deleted; it is made again"):
        assert recorder.nan_detected(20, "loss") is True
    assert Recording(path).info.attempts[0].ended == "running"
    recorder.describe(config={"b": 2})
    recorder.close()
    run = Recording(path)
    assert run.steps.step.tolist() == list(range(10, 30))
    assert run.info.attempts[0].ended == "completed"
    assert (run.info.algorithm, run.info.settings) == ("GRPO", {"a": 1, "b": 2})
    assert run.problems == ()
    assert "10 deleted steps rows" in run.info.health
    dropped = next(event for event in run.events if event.kind == "recorder_dropped")
    assert dropped.data["deleted_steps_rows"] == 10


@pytest.mark.parametrize("table", ["steps", "attempts", "events"])
def test_a_deleted_folder_costs_what_was_in_it(tmp_path: Path, table: str) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60)
    recorder.step(0, loss=1.0)
    recorder.flush()
    shutil.rmtree(path / table)
    recorder.step(1, loss=1.0)
    recorder.close()
    run = Recording(path)
    assert run.steps.step.tolist() == ([1] if table == "steps" else [0, 1])
    assert run.info.attempts[0].ended == "completed"
    assert ("1 deleted steps rows" in run.info.health) == (table == "steps")


def test_a_directory_deleted_before_the_end_still_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60)
    recorder.step(0, loss=1.0)
    recorder.finish()
    shutil.rmtree(path)
    recorder.close()
    assert Recording(path).info.attempts[0].ended == "completed"


# --- losses that cannot be told in the recording ----------------------------------------------


def test_losses_are_told_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60)
    recorder.step(0, loss=1.0)
    recorder.flush()
    with monkeypatch.context() as patched:
        patched.setattr(files, "commit", refuse)  # no new file; an old one can be overwritten
        recorder.step(1, loss=1.0)
        with pytest.warns(RuntimeWarning, match="not all of the recording .* 1 dropped steps rows"):
            recorder.close()
    run = Recording(path)
    assert run.steps.step.tolist() == [0]
    assert run.info.attempts[0].ended == "completed"
    assert "1 dropped steps rows" in run.info.health
    with Recorder(path, signals=False):
        pass
    assert "1 dropped steps rows" in Recording(path).info.health, "told twice"


@pytest.mark.parametrize("same_process", [True, False])
def test_losses_that_cannot_be_told_reach_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, same_process: bool
) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60)
    with monkeypatch.context() as patched:
        patched.setattr(files, "commit", refuse)
        patched.setattr(files, "overwrite", refuse)
        recorder.step(1, loss=1.0)
        recorder.close()
    assert Recording(path).info.health == ""
    if same_process:
        Recorder(path, signals=False).close()
    else:
        code = "import sys; from rlprobe import Recorder; Recorder(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    run = Recording(path)
    assert "1 dropped steps rows" in run.info.health
    told = next(event for event in run.events if event.kind == "recorder_dropped")
    assert told.data["dropped_steps_rows"] == 1
    assert "attempt 1" in told.message
    Recorder(path, signals=False).close()
    assert Recording(path).info.health == run.info.health, "told twice"


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"attempt": "x", "counts": 3}', b'{"counts": {"a": "b"}}']
)
def test_odd_last_words_are_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run"
    folder = last_words._folder()
    folder.mkdir(mode=0o700)
    words = folder / f"{last_words._prefix(path, 0)}1-abc.json"
    words.write_bytes(content)
    Recorder(path, signals=False).close()
    assert Recording(path).info.health == ""
    assert not words.exists()


def test_a_folder_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    folder = last_words._folder()
    folder.mkdir()
    folder.chmod(0o777)
    words = folder / f"{last_words._prefix(path, 0)}1-abc.json"
    words.write_text(json.dumps({"attempt": 1, "counts": {"dropped_steps_rows": 9}}))
    Recorder(path, signals=False).close()
    assert Recording(path).info.health == ""
    assert words.exists()


def test_last_words_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_MOST_FILES", 3)
    for number in range(6):
        last_words.leave(tmp_path / str(number), 1, 0, {"dropped_steps_rows": 1})
        time.sleep(0.01)
    assert len(list(last_words._folder().iterdir())) == 3
    assert last_words.collect(tmp_path / "5", 0) == [(1, {"dropped_steps_rows": 1})]
    assert last_words.collect(tmp_path / "0", 0) == []


@pytest.mark.parametrize("failing", ["commit", "create_exclusive"])
def test_a_disk_that_is_full_at_the_start_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(files, failing, refuse)
    with pytest.raises(InputError, match=r"Couldn't record into .*: No space left"):
        Recorder(tmp_path / "run", signals=False)


def flaky(real: Callable[..., Any], every: int) -> Callable[..., Any]:
    calls = [0]

    def call(*given: Any) -> Any:
        calls[0] += 1
        result = real(*given)
        if calls[0] % every == 0:
            raise OSError(5, "Input/output error")
        return result

    return call


@pytest.mark.parametrize("what", ["fsync", "replace"])
def test_errors_now_and_then_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path, signals=False, flush_seconds=60)
    with monkeypatch.context() as patched:
        if what == "fsync":
            patched.setattr(os, "fsync", flaky(os.fsync, 3))
        else:
            patched.setattr(Path, "replace", flaky(Path.replace, 3))
        for step in range(60):
            recorder.step(step, loss=1.0)
            recorder.event("mine", step=step)
            if step % 3 == 0:
                recorder.flush()
    recorder.close()
    run = Recording(path)
    assert run.steps.step.tolist() == list(range(60))
    assert [event.step for event in run.events if event.kind == "mine"] == list(range(60))
    assert not list(path.rglob("*.tmp"))
    assert "write failures" in run.info.health
