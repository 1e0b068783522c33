"""An empty path is an error with words: it never means the directory one happens to be in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.cli import main

VERBS = (
    ("gate", ""),
    ("gate", "runs", ""),
    ("scan", ""),
    ("show", "", "--step", "1"),
    ("query", "", "select 1"),
    ("ls", ""),
    ("compact", ""),
    ("import", "", "--run", "out"),
    ("import", "runs", "--run", ""),
    ("calibrate", ""),
    ("scan", "runs", "--config", ""),
    ("scan", "runs", "--output", ""),
)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(map(repr, words)))
def test_an_empty_path(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with Recorder(tmp_path / "runs") as recorder:  # which an empty path would find
        recorder.step(1, loss=1.0)
    assert main(words) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("rlprobe: Couldn't use '' as a path: it is empty\ntry: Give one")


def test_this_directory_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen: Callable[..., str]
) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.step(1, loss=1.0)
    monkeypatch.chdir(tmp_path)
    assert "steps" in screen("ls")
    assert "step 1" in screen("scan", ".")
