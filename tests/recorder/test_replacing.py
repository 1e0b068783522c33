"""Rows that take the place of what a recorder has written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from rlprobe.recorder import Recorder, replacing
from rlprobe.store import codec, layout
from rlprobe.store.recording import Recording


def rows(steps: list[int], losses: list[float]) -> pa.Table:
    size = len(steps)
    keys = {"step": np.array(steps), "attempt": np.ones(size), "time": np.full(size, 1e9)}
    return codec.metrics("steps", keys, {"loss": (np.array(losses), np.ones(size, np.bool_))})


def losses(run_dir: Path) -> dict[int, float]:
    series = Recording(run_dir).steps.series("loss")
    assert series is not None
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_rows_of_all_flushes_are_replaced_and_others_stay(tmp_path: Path) -> None:
    with Recorder(tmp_path) as earlier:
        earlier.step(1, loss=9.0)
    recorder = Recorder(tmp_path)
    for step in (10, 20, 30):
        recorder.step(step, loss=1.0)
        recorder.flush()
    recorder.step(40, loss=1.0)  # not written yet
    assert replacing.replace(recorder, {"steps": rows([11, 21], [0.5, 0.25])})
    assert losses(tmp_path) == {1: 9.0, 11: 0.5, 21: 0.25}
    recorder.step(50, loss=2.0)
    recorder.close()
    assert losses(tmp_path) == {1: 9.0, 11: 0.5, 21: 0.25, 50: 2.0}
    assert not Recording(tmp_path).problems


def test_what_a_kill_leaves_between_is_read_once(tmp_path: Path) -> None:
    """The new shard covers the old ones: a reader that finds both takes the new one."""
    recorder = Recorder(tmp_path)
    for step in (10, 20):
        recorder.step(step, loss=1.0)
        recorder.flush()
    steps = tmp_path / "steps"
    before = {path.name: path.read_bytes() for path in steps.iterdir()}
    replacing.replace(recorder, {"steps": rows([11], [0.5])})
    recorder.close()
    for name, content in before.items():
        (steps / name).write_bytes(content)
    assert len(layout.list_shards(steps)) == 3
    assert losses(tmp_path) == {11: 0.5}


def test_the_end_names_the_last_step_of_what_is_there(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.step(10, loss=1.0)
    replacing.replace(recorder, {"steps": rows([7], [0.5])})
    recorder.close()
    (ended,) = [one for one in Recording(tmp_path).events if one.kind == "run_ended"]
    assert ended.step == 7
