"""THROUGHPUT_ROT: what counts as a rise that goes on over the run."""

from __future__ import annotations

from rlprobe import catalog
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.testing import run_of


def findings_of(*changes: dict[str, float]) -> list[Finding]:
    times = {"level": 10, "set": list(changes)}
    run = run_of({"name": "steps", "rows": 200, "columns": {"step_time": times}})
    return list(catalog.load()["THROUGHPUT_ROT"]().scan(Context(run)))


def test_equal_blocks_before_a_slow_one_are_no_rise() -> None:
    assert not findings_of({"from": 185, "value": 20})


def test_two_levels_up_are_a_rise() -> None:
    assert findings_of({"from": 70, "value": 14}, {"from": 140, "value": 20})
