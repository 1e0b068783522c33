"""The progress bar: nothing where it is quick or nobody looks, a bar that ends where it is slow."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rlprobe.cli import progress
from rlprobe.importers import open_runs
from rlprobe.importers.listening import heard_by
from tests.importers.reading import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def many(folder: Path) -> Path:
    rows = "".join(f'{{"step": {step}, "loss": 0.5}}\n' for step in range(60_000))
    return log(folder, "long.jsonl", rows * 12)


def shown(path: Path, monkeypatch: pytest.MonkeyPatch, quick: float, stderr: io.StringIO) -> str:
    monkeypatch.setattr(progress, "_QUICK", quick)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress.reading():
        open_runs(path)
    return stderr.getvalue()


def test_a_bar_on_a_terminal_once_it_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = many(tmp_path)
    assert "long.jsonl" in shown(path, monkeypatch, 0, Terminal())
    assert shown(path, monkeypatch, 1e9, Terminal()) == ""
    assert shown(path, monkeypatch, 0, io.StringIO()) == ""


def test_what_is_read_is_told_up_to_the_whole(tmp_path: Path) -> None:
    path = many(tmp_path)
    told: list[tuple[Path, int, int]] = []
    with heard_by(lambda *what: told.append(what)):
        open_runs(path)
    size = path.stat().st_size
    assert told[-1] == (path, size, size)
