"""--step-key: another counter numbers the rows, in every verb that opens logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlprobe.cli import main
from rlprobe.exit_codes import PASSED, UNREADABLE

LOG = "".join(
    json.dumps({"step": step, "loss": 1 / step, "samples": 32 * step}) + "\n"
    for step in range(1, 9)
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.jsonl"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("verb", ["scan", "gate"])
def test_judged_by_samples(log: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, log, "--format", "json", "--step-key", "samples"])
    report = json.loads(capsys.readouterr().out)
    run = (report["runs"][0] if "runs" in report else report)["run"]
    assert (run["first_step"], run["last_step"]) == (32, 256)
    assert "step read from samples" in run["notes"]


def test_asked_and_shown_by_samples(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", log, "select max(step) from steps", "--step-key", "samples"]) == PASSED
    assert "256" in capsys.readouterr().out
    assert main(["show", log, "--step", "64", "--step-key", "samples", "--all"]) == PASSED
    assert "0.5" in capsys.readouterr().out


def test_imported_by_samples(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(tmp_path / "recording")
    assert main(["import", log, "--run", recording, "--step-key", "samples"]) == PASSED
    assert main(["query", recording, "select min(step) from steps"]) == PASSED
    assert "32" in capsys.readouterr().out


def test_a_wrong_key_says_which_counters_there_are(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", log, "--step-key", "tokens"]) == UNREADABLE
    said = capsys.readouterr().err
    assert "'tokens'" in said
    assert "'samples', 'step'" in said
