"""SwanLab run files of both versions, and run directories."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from tests.importers import encoders
from tests.importers.reading import is_nan, log, only, points


def file(*more: bytes) -> bytes:
    start = encoders.bytes_field(1, "project") + encoders.bytes_field(4, "trial 3")
    records = [encoders.swanlab_record(10, start)]
    for step in range(0, 60, 10):
        loss = math.nan if step == 30 else step / 64
        records.append(encoders.swanlab_scalar("train/loss", step, loss))
        records.append(encoders.swanlab_scalar("train/reward", step, step / 8))
    return encoders.swanlab_bytes([*records, *more])


def test_a_run_file(tmp_path: Path) -> None:
    run = only(log(tmp_path, "run-x.swanlab", file()))
    assert (run.info.source, run.info.id) == ("swanlab", "trial 3")
    loss = points(run, "loss")
    assert [step for step, _ in loss] == [0, 10, 20, 30, 40, 50]
    assert loss[:3] == [(0, 0.0), (10, 10 / 64), (20, 20 / 64)]
    assert is_nan(loss[3][1])
    assert points(run, "reward_mean")[-1] == (50, 6.25)
    assert not run.problems


def test_a_run_directory_is_one_run(tmp_path: Path) -> None:
    log(tmp_path, "run-1-x/run-x.swanlab", file())
    log(tmp_path, "run-1-x/logs/1/1000.log", '{"index": 0, "data": 0.5}\n{"index": 1, "data": 1}\n')
    log(tmp_path, "run-1-x/files/swanlab-metadata.json", "{}")
    run = only(tmp_path)
    assert len(run.steps) == 6
    assert run.info.path == str(tmp_path / "run-1-x")


@pytest.mark.parametrize(
    ("state", "kinds"), [(0, []), (1, []), (2, ["crash"]), (3, ["halted"]), (9, [])]
)
def test_how_it_ended(state: int, kinds: list[str], tmp_path: Path) -> None:
    line = encoders.swanlab_record(16, encoders.bytes_field(1, "torch.OutOfMemoryError: CUDA out"))
    end = encoders.number_field(1, state) + encoders.bytes_field(2, "Traceback …\nValueError: no")
    run = only(log(tmp_path, "a.swanlab", file(line, encoders.swanlab_record(11, end))))
    assert [event.kind for event in run.events] == kinds
    if kinds:
        assert run.events[0].data["kind"] == "cuda_out_of_memory"
        assert run.events[0].data["exception"] == "ValueError: no"


def old(kind: str, **data: Any) -> bytes:
    return (json.dumps({"model_type": kind, "data": data}) + "\n").encode()


def test_files_of_older_versions(tmp_path: Path) -> None:
    records = [
        old("Header", backup_type="DEFAULT"),
        old("Experiment", id="x", name="old one"),
        *(
            old("Scalar", metric={"data": value, "index": step}, key="loss", step=step, epoch=1)
            for step, value in ((1, 0.5), (2, "NaN"), (3, 0.25))
        ),
        old("Scalar", metric={"data": None}, key="loss", step=4, epoch=1),
        old("Log", message="CUDA out of memory", level="ERROR"),
        old("Footer", success=False),
    ]
    run = only(log(tmp_path, "backup.swanlab", encoders.swanlab_bytes(records, version=1)))
    assert run.info.id == "old one"
    assert [step for step, _ in points(run, "loss")] == [1, 2, 3]
    assert is_nan(points(run, "loss")[1][1])
    assert [event.kind for event in run.events] == ["crash"]
    assert len(run.problems) == 1


def test_torn_and_empty_files(tmp_path: Path) -> None:
    whole = file()
    run = only(log(tmp_path, "a.swanlab", whole[: len(whole) * 2 // 3]))
    assert 2 < len(run.steps) < 6
    assert "cut off" in run.problems[0].message
    with pytest.raises(InputError, match="no scalars"):
        open_runs(log(tmp_path, "b.swanlab", encoders.swanlab_bytes([])))
