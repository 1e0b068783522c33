"""What a Python without a recorder spools is recorded as if it had one."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe.launcher.spools import Spools
from rlprobe.store.recording import Recording
from tests.launcher import processes

TRACKER = """
class SummaryWriter:
    def __init__(self, logdir):
        self.logdir = logdir
    def add_scalar(self, tag, value, global_step=None):
        pass
"""
TRAIN = """
import sys
from tensorboardX.writer import SummaryWriter
writer = SummaryWriter("logs")
for step in range(int(sys.argv[1])):
    writer.add_scalar("loss", 1 / (step + 1), step)
    writer.add_scalar("actor/grad_norm", float("nan"), step)
"""


def head(run_dir: Path, **more: Any) -> dict[str, Any]:
    basis = {"run_dir": str(run_dir), "pid": 1, "role": "trainer", "group": None}
    return {**basis, "environment": {}, "python": "3.8.1", **more}


def row(step: int, **values: float) -> dict[str, Any]:
    return {"source": "wandb.log", "step": step, "time": 0, "axes": True, "values": values}


def spooled(tmp_path: Path, *files: list[Any]) -> Spools:
    (tmp_path / "status").mkdir()
    for number, lines in enumerate(files):
        text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        (tmp_path / "status" / f"spool-{number}-1.jsonl").write_text(text)
    spools = Spools(tmp_path / "status", {"RLPROBE_LAUNCH": "one"})
    spools.finish()
    return spools


def test_rows_settings_axes_and_losses(tmp_path: Path) -> None:
    run = tmp_path / "run"
    spools = spooled(
        tmp_path,
        [
            head(run), {"axis": "opt"}, {"settings": {"lr": "0.1"}}, row(0, loss=1.0, opt=10),
            row(1, loss=2.0), "{torn\n", row(2, loss=3.0, opt=20),
            {"source": "wandb.summary", "summary": {"best": 1.0}}, {"lost": 4, "end": True},
            '{"cut',
        ],
    )  # fmt: skip
    recording = Recording(run)
    assert recording.steps.step.tolist() == [10, 20]
    assert recording.steps.load("loss")[0].tolist() == [2.0, 3.0]
    assert recording.info.settings["lr"] == "0.1"
    assert [event.data for event in recording.events if event.kind == "summary"] == [{"best": 1.0}]
    assert spools.lost == 5
    assert spools.failure == ""
    assert spools.sources == {str(run): {"wandb.log": None}}


def test_ranks_are_ranks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    spooled(
        tmp_path,
        *([head(run, environment=own), row(1, loss=float(own["RANK"]))] for own in ranks),
    )
    recording = Recording(run)
    assert len(recording.info.attempts) == 1
    assert recording.info.world_size == 2
    assert recording.steps.load("loss")[0].tolist() == [0.0]
    assert sorted(recording.ranks.rank.tolist()) == [0, 1]


def test_a_spool_that_is_none_costs_no_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    spools = spooled(tmp_path, [{"no": "head"}], [head(run), row(1, loss=1.0)])
    assert Recording(run).steps.step.tolist() == [1]
    assert "KeyError" in spools.failure


def test_a_python_without_rlprobe_is_recorded_from_the_inside(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    package = tmp_path / "site" / "tensorboardX"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "writer.py").write_text(TRACKER)
    (tmp_path / "train.py").write_text(TRAIN)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run(
        [*processes.RECORD, "--run", "run", str(python), "train.py", "50"],
        cwd=tmp_path,
        env={**processes.ENVIRONMENT, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    said = done.stderr.decode().splitlines()
    assert said == ["rlprobe: 50 rows from SummaryWriter.add_scalar; recorded in run"]
    steps = Recording(tmp_path / "run").steps
    assert steps.step.tolist() == list(range(50))
    assert steps.load("loss")[0].tolist() == [1 / (step + 1) for step in range(50)]
    values, logged = steps.load("grad_norm")  # verl's name, told by its keys
    assert logged.all()
    assert np.isnan(values).all()
