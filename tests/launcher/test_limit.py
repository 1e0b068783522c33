"""A disk that hangs costs the recording, and not the command."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rlprobe.launcher import command, run
from rlprobe.launcher.limit import DiskHangsError, within
from rlprobe.store import manifest


def test_a_result_and_an_error_come_through() -> None:
    assert within(5, lambda: 3, print) == 3
    with pytest.raises(ValueError, match="mine"):
        within(5, lambda: int("mine"), print)


def test_what_comes_too_late_is_given_back() -> None:
    answer, given = threading.Event(), threading.Event()
    with pytest.raises(DiskHangsError, match=r"0\.01 seconds"):
        within(0.01, lambda: answer.wait(30), lambda _: given.set())
    answer.set()
    assert given.wait(30)


def test_the_command_runs_where_the_disk_hangs_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(command, "_DISK_SECONDS", 0.05)
    monkeypatch.setattr(manifest, "prepare", lambda *_: answer.wait(30))
    code, run_dir = run(["sh", "-c", "echo trained; exit 4"], tmp_path / "run")
    answer.set()
    assert (code, run_dir) == (4, [])
    out, err = capfd.readouterr()
    assert out == "trained\n"
    assert "the disk has not answered for 0.05 seconds; the command runs unrecorded" in err


def test_the_exit_code_comes_where_the_disk_hangs_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(command, "_PASS_SECONDS", 0.5)
    monkeypatch.setattr(command.Launcher, "_record_end", lambda *_: answer.wait(30))
    code, _ = run(["sh", "-c", "echo trained; exit 4"], tmp_path / "run")
    answer.set()
    assert code == 4
    assert "Couldn't record how it ended: the disk has not answered" in capfd.readouterr().err
