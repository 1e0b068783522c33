"""Calibration: quiet on what it learnt from, and honest about runs it did not see."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlprobe import catalog
from rlprobe.config import Config
from rlprobe.report import calibration_text
from rlprobe.scan.calibration import _changes, calibrate
from rlprobe.scan.engine import scan
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun


def healthy(seed: int, *, spiky: bool) -> TableRun:
    """A run of a team whose gradient norm honestly spikes now and then."""
    random = np.random.default_rng(seed)
    norm = np.exp(random.normal(0, 0.1, 400))
    if spiky:
        for first in range(50, 400, 60):
            norm[first : first + 12 : 3] *= 14
    valid = np.ones(400, dtype=np.bool_)
    info = RunInfo(path=f"run{seed}", id=f"run{seed}", source="test")
    return TableRun(info, frame_of(np.arange(1, 401), {"grad_norm": (norm, valid)}))


SELECT = Config(select=("GRAD_PATHOLOGY",))


def test_the_smallest_change_that_is_quiet() -> None:
    runs = [healthy(seed, spiky=True) for seed in range(4)]
    (learnt,) = calibrate(runs, SELECT)
    assert (learnt.detector, learnt.before, learnt.judged) == ("GRAD_PATHOLOGY", 4, 4)
    assert learnt.knobs
    assert learnt.after == 0
    assert learnt.expected <= 1
    config = replace(SELECT, knobs={learnt.detector: dict(learnt.knobs)})
    assert all(scan(run, config).verdict in {"pass", "not_judged"} for run in runs)


def test_a_knob_that_counts_is_only_tried_with_whole_numbers() -> None:
    tried = list(_changes(catalog.get("DIVERGENCE"), {}))
    rows = [change["rows"] for change in tried if "rows" in change]
    assert len(rows) > 3
    assert all(isinstance(value, int) and value >= 2 for value in rows), rows
    assert any(isinstance(change.get("rise"), float) for change in tried)


def test_runs_without_alarms_teach_nothing() -> None:
    assert calibrate([healthy(seed, spiky=False) for seed in range(3)], SELECT) == []


def test_the_written_file_is_a_valid_configuration() -> None:
    learnt = calibrate([healthy(seed, spiky=True) for seed in range(3)], SELECT)
    text = calibration_text.toml(learnt, 3)
    config = Config.parse(tomllib.loads(text), Path("learnt.toml"))
    assert config.knobs["GRAD_PATHOLOGY"] == dict(learnt[0].knobs)
    assert "alarms on 3 of 3 runs before, 0 after" in text
