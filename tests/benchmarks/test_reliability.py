"""The campaigns notice what they look for, and the page of promises is what they counted."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.reliability import inputs, kills, promises
from benchmarks.reliability.campaigns import CAMPAIGNS
from rlprobe.importers.documents.jsonl import JSONLines
from rlprobe.recorder.recorder import Recorder
from tests.importers import hostile


def test_the_page_is_what_was_counted() -> None:
    page = promises.page(CAMPAIGNS, promises.load())
    assert promises.PAGE.read_text(encoding="utf-8") == page
    assert set(promises.load()) <= {campaign.name for campaign in CAMPAIGNS}


def test_a_broken_promise_is_in_the_page() -> None:
    page = promises.page(CAMPAIGNS, {"kill-recorder": {kills.HELD: 1998, kills.LOST: 2}})
    assert "| 2,000 | 2 |" in page


def test_inputs_go_by_seeds() -> None:
    assert hostile.made(7) == hostile.made(7)
    assert len({hostile.made(seed)[0] for seed in range(300)}) == len(hostile.FORMATS) + 2


def test_harmed_inputs_are_read_or_refused() -> None:
    bad = [item for item in inputs.attempts(0, 400) if item.outcome not in inputs.GOOD]
    assert not bad


def test_a_fault_of_a_reader_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(JSONLines, "read", failing)
    seed = next(seed for seed in range(100) if hostile.kind_of(seed, "jsonl"))
    assert inputs.attempt(seed, tmp_path / "in").outcome == inputs.FAULTY


def test_what_a_killed_recorder_promised_is_there() -> None:
    assert kills.campaign("recorder", 6) == {kills.HELD: 6}


def test_a_killed_merge_loses_nothing() -> None:
    assert kills.campaign("compact", 4) == {kills.HELD: 4}


def test_a_lost_row_is_noticed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        recorder.step(0, loss=1.0)
        recorder.nan_detected(0)
    assert kills.judged(tmp_path / "run", kills.Promises({0}, 1)) == kills.HELD
    assert kills.judged(tmp_path / "run", kills.Promises({0}, 2)).startswith(kills.LOST)
    assert kills.judged(tmp_path / "run", kills.Promises({1}, 1)).startswith(kills.LOST)
    shard = Random(0).choice(sorted((tmp_path / "run" / "steps").iterdir()))
    shard.write_bytes(shard.read_bytes()[:-7])
    assert kills.judged(tmp_path / "run", kills.Promises()).startswith(kills.UNREADABLE)
