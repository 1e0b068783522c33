"""`rlprobe record`: whose options are whose, and what its exit code says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlprobe.cli import main, record
from rlprobe.store.recording import Recording

ROW = "print('step %d | loss 0.5 | grad_norm %s' % (step, norm))"
HEALTHY = f"for step in range(1, 60): norm = 0.8; {ROW}"
SICK = f"for step in range(1, 60): norm = 0.8 if step < 40 else 'nan'; {ROW}"
SILENT = "pass"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "show.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([], ["--lr", "3"]),
        (["--"], ["--lr", "3"]),
        (["--run", "x"], ["--run", "y"]),
        (["--run", "x", "--"], ["--run", "y"]),
        ([], ["--help"]),
        ([], ["--fail-on", "sometimes"]),
        ([], ["--", "--scan"]),
        (["--scan", "--"], ["--", "-h"]),
    ],
)
def test_options_after_the_first_word_are_the_commands(
    capfd: pytest.CaptureFixture[str], ours: list[str], theirs: list[str]
) -> None:
    assert main(["record", *ours, sys.executable, "show.py", *theirs]) == 0
    assert json.loads(capfd.readouterr().out) == theirs
    (run,) = [Path("x")] if "x" in ours else Path("runs").iterdir()
    assert Recording(run).info.attempts[-1].ended == "completed"


@pytest.mark.parametrize("words", [[], ["--"], ["--lr", "3", "true"], ["--fail-on", "x", "true"]])
def test_without_a_command_or_with_unknown_options_nothing_runs(
    capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["record", *words]) == 2
    assert capfd.readouterr().err.startswith("rlprobe: ")
    assert not Path("runs").exists()


def test_help_is_ours_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--help"]) == 0
    assert "--fail-on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [
        (HEALTHY, ["--fail-on", "critical"], 0),
        (SICK, ["--fail-on", "critical"], 1),
        (SICK, ["--fail-on", "never"], 0),
        (SICK, ["--scan"], 0),
        (SILENT, ["--fail-on", "critical"], 3),
        (SILENT, ["--scan"], 0),
        (f"{SICK}\nraise SystemExit(7)", ["--fail-on", "critical"], 7),
    ],
)
def test_a_command_that_succeeded_exits_as_its_scan(
    capfd: pytest.CaptureFixture[str], code: str, options: list[str], expected: int
) -> None:
    assert main(["record", "--run", "run", *options, sys.executable, "-c", code]) == expected
    captured = capfd.readouterr()
    assert "scan" not in captured.out
    assert "run   " in captured.err
    if "--fail-on" in options and expected != 7:
        assert main(["scan", "run", *options]) == expected


def test_whatever_goes_wrong_in_the_scan_the_commands_code_is_not_lost(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("ouch")

    monkeypatch.setattr("rlprobe.cli.scanning.scan_all", fail)
    assert main(["record", "--scan", "true"]) == 0
    assert main(["record", "--fail-on", "critical", "true"]) == 3
    assert main(["record", "--fail-on", "critical", "false"]) == 1
    assert "internal error: ValueError: ouch" in capfd.readouterr().err


def test_a_recording_that_cannot_be_read_is_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert record.scan_after([Path("nowhere")], "critical") == 2
    assert not capfd.readouterr().out


TWO_TRAININGS = """
import os
from pathlib import Path
from rlprobe import Recorder
from rlprobe.recorder import launch
place = Path(os.environ["RLPROBE_RUN"])
for number, bad in ((1, False), (2, True)):
    run_dir = place if number == 1 else place.with_name(f"{place.name}-{number}")
    with Recorder(run_dir) as recorder:
        for step in range(1, 60):
            norm = float("nan") if bad and step > 40 else 0.8
            recorder.step(step, loss=0.5, grad_norm=norm)
    launch.announce(run_dir)
"""


def test_every_training_of_a_command_is_judged(capfd: pytest.CaptureFixture[str]) -> None:
    """A second one has a directory of its own beside the first: its failure fails the command."""
    words = ["--run", "run", "--fail-on", "critical", sys.executable, "-c", TWO_TRAININGS]
    assert main(["record", *words]) == 1
    said = capfd.readouterr().err
    assert "GRAD_PATHOLOGY" in said
    assert "run-2" in said
