"""`rlprobe query --format csv`: nothing in it moves a cursor; by option, nothing is computed."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rlprobe import Recorder
from rlprobe.cli import main

HARM = "\x1b]0;title\x07\x1b[2J\u202e\x9b31m\r\x00"
SHOWN = r"\x1b]0;title\x07\x1b[2J\u202e\x9b31m\r\x00"
TEXT = 'two\nlines\tand, a "comma"'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "run", signals=False) as recorder:
        recorder.step(1, loss=-1.0)
        recorder.event("mark", f"{HARM}{TEXT}")
        recorder.event("=mark", "-5")
    return tmp_path / "run"


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def asked(capsys: pytest.CaptureFixture[str], run: Path, statement: str, *more: str) -> str:
    assert main(["query", str(run), statement, "--format", "csv", *more]) == 0
    return capsys.readouterr().out


MESSAGE = "select message from events where kind = 'mark'"


def test_control_characters_are_escapes_and_line_breaks_remain(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cells(asked(capsys, run, MESSAGE)) == [["message"], [f"{SHOWN}{TEXT}"]]
    name = asked(capsys, run, f'select 1 as "{HARM[:-1]}"')
    assert cells(name)[0] == [SHOWN[:-4]]


def test_raw_is_every_character(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cells(asked(capsys, run, MESSAGE, "--raw"))[1] == [f"{HARM}{TEXT}"]


def test_a_file_holds_every_character(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.with_name("out.csv")
    asked(capsys, run, MESSAGE, "--output", str(file))
    with file.open(newline="", encoding="utf-8") as text:
        assert cells(text.read())[1] == [f"{HARM}{TEXT}"]


def test_formulas_are_disarmed_by_option(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement = (
        "select '=1+1' as \"=a\", '+1' as b, '-1' as c, '@x' as d, -1.5 as e, 'a=1' as f, "
        "chr(9) || '=1' as g"
    )
    plain = cells(asked(capsys, run, statement))
    assert plain == [
        ["=a", "b", "c", "d", "e", "f", "g"],
        ["=1+1", "+1", "-1", "@x", "-1.5", "a=1", "\t=1"],
    ]
    disarmed = cells(asked(capsys, run, statement, "--no-formulas"))
    assert disarmed == [
        ["'=a", "b", "c", "d", "e", "f", "g"],
        ["'=1+1", "'+1", "'-1", "'@x", "-1.5", "a=1", "'\t=1"],
    ]


def test_nothing_raw_reaches_a_terminal(run: Path) -> None:
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "rlprobe", "query", str(run), MESSAGE, "--format", "csv"]
    subprocess.run(words, stdout=follower, stderr=follower, check=True, timeout=60)
    os.close(follower)
    said = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert b"two" in said
    assert not {b"\x1b", b"\x07", b"\x9b", b"\x00", "\u202e".encode()} & {
        said[n : n + w] for n in range(len(said)) for w in (1, 3)
    }
