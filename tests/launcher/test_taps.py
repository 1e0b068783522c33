"""Taps of other packages, and the last line of `rlprobe record`, with processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlprobe.store.recording import Recording
from tests.launcher import processes

TRACKER = "class Logger:\n    def log(self, data):\n        return len(data)\n"
TAP = """
from rlprobe.taps.hub import HUB
from rlprobe.taps.streams import Stream
from rlprobe.taps.wrapping import tap

def install(module):
    tap(module.Logger, "log", look, "acme.log")

def look(logger, data):
    HUB.row("acme.log", Stream("acme", 1), data)
"""
TRAIN = """
import time
from acme.tracking import Logger
logger = Logger()
for step in range({rows}):
    assert logger.log({{"loss": 1.0 / (step + 1), "reward": float(step)}}) == 2
    time.sleep({pause})
print("done")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "acme").mkdir(parents=True)
    (folder / "acme" / "__init__.py").touch()
    (folder / "acme" / "tracking.py").write_text(TRACKER)
    (folder / "acme_rlprobe.py").write_text(TAP)
    info = folder / "acme_rlprobe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rlprobe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlprobe.taps]\nacme.tracking = acme_rlprobe:install\n")
    return folder


def record(
    tmp_path: Path, site: Path, *options: str, rows: int, pause: float = 0.0
) -> tuple[str, list[str]]:
    """What the command printed, and what we said."""
    (tmp_path / "train.py").write_text(TRAIN.format(rows=rows, pause=pause))
    done = subprocess.run(
        [*processes.RECORD, "--run", "run", *options, sys.executable, "train.py"],
        cwd=tmp_path,
        env={**processes.ENVIRONMENT, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout, done.stderr.splitlines()


def test_another_package_is_tapped_by_its_entry_point(tmp_path: Path, site: Path) -> None:
    printed, said = record(tmp_path, site, rows=12)
    assert printed == "done\n"
    assert said == ["rlprobe: 12 rows from acme.log; recorded in run"]
    steps = Recording(tmp_path / "run").steps
    assert steps.step.tolist() == list(range(12))
    assert steps.load("reward_mean")[0].tolist() == [float(step) for step in range(12)]


def test_where_nothing_was_recorded_that_is_said_loudly(tmp_path: Path, site: Path) -> None:
    _, said = record(tmp_path, site, rows=0)
    assert len(said) == 2
    assert said[1].startswith(
        "rlprobe: 0 rows recorded in run: no Hugging Face Trainer was trained"
    )
    assert "log with a tracker (wandb.log, SummaryWriter, ...)" in said[1]
    assert "`rlprobe doctor -- COMMAND` tells beforehand" in said[1]


def test_what_is_recorded_is_said_meanwhile_on_request(tmp_path: Path, site: Path) -> None:
    _, said = record(tmp_path, site, "--say-every", "0.5", rows=30, pause=0.1)
    meanwhile = [line for line in said if "so far" in line]
    assert len(meanwhile) >= 3
    assert re.fullmatch(r"rlprobe: \d+ rows so far, the last one of step \d+", meanwhile[-1]), (
        meanwhile
    )


def test_a_directory_that_is_named_in_another_way_is_one(tmp_path: Path, site: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to("there")
    for run in ("there/../run", "here/run"):
        _, said = record(tmp_path, site, "--run", run, rows=5)
        assert len(said) == 1
        assert said[0].startswith("rlprobe: 5 rows from acme.log; recorded in ")
