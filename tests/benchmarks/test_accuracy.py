"""How the accuracy is measured: what counts as found, in time, early; knobs; beginnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import healthy, labels, left_out, suites
from benchmarks.accuracy.faults import FAULTS, Fault
from benchmarks.accuracy.scoring import Alarm, score, table
from rlprobe import catalog
from rlprobe.findings import Finding, Severity
from rlprobe.testing import run_of


def _finding(detector: str, step: int, **fields: Any) -> Finding:
    given = {
        "severity": Severity.WARNING,
        "confidence": 0.8,
        "last_bad_step": step,
        "state": "ongoing",
        "summary": "It is so.",
        "evidence": (),
        "remedies": (),
        **fields,
    }
    return Finding(detector=detector, first_bad_step=step, **given)


# --- the lab --------------------------------------------------------------------------------------

FAULT = Fault("swapped", ("KL_BLOWUP", "REGIME_CHANGE"))


def test_a_right_name_is_found_and_its_rows_are_counted() -> None:
    result = score("recording", FAULT, 0, 70, [Alarm("REGIME_CHANGE", 73), Alarm("LOSS_SPIKE", 71)])
    assert (result.detected, result.error) == (True, 3)
    assert result.extra == ("LOSS_SPIKE@71",)


def test_an_alarm_before_the_fault_is_false_and_finds_nothing() -> None:
    result = score("recording", FAULT, 0, 70, [Alarm("KL_BLOWUP", 60)])
    assert (result.detected, result.early) == (False, ("KL_BLOWUP@60",))
    assert "| recording | 0/1 | 0/1 | - | 1/1 | 0/0 |" in table([result])


def test_what_shows_late_is_on_time() -> None:
    slow = Fault("delayed", ("KL_BLOWUP",), slow=True)
    assert score("recording", slow, 0, 70, [Alarm("KL_BLOWUP", 110)]).error == 0


def test_nothing_may_be_said_of_a_run_that_changes_on_purpose() -> None:
    planned = next(fault for fault in FAULTS if fault.name == "planned_cap")
    assert planned.healthy
    assert score("recording", planned, 0, 70, []).detected
    assert not score("recording", planned, 0, 70, [Alarm("TRUNCATION", 90)]).detected


# --- labelled logs --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"step": 10 * row, "loss": 2.0 if row < 30 else 9.0} for row in range(1, 61)]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shared = {"raw": "log.jsonl", "norm": None, "scored": True, "ambiguity": "clear"}
    cases = [
        {
            "id": "lab-one",
            "source": "lab",
            "healthy": False,
            "expect": ["divergence"],
            "first_bad_step": 300,
            "logging_interval": 10,
            "tolerance_steps": 20,
        },
        {"id": "XY-02b", "source": "bugreport", "healthy": True, "expect": []},
    ]
    whole = [{"first_bad_step": None, **case, **shared} for case in cases]
    (tmp_path / "cases.json").write_text(json.dumps(whole))
    return tmp_path


def test_a_case_is_found_by_class_and_row(folder: Path) -> None:
    case, _ = labels.load(folder)
    assert case.found([_finding("DIVERGENCE", 320)])
    assert not case.found([_finding("DIVERGENCE", 330)])
    assert not case.found([_finding("KL_BLOWUP", 300)])
    assert case.found([_finding("REGIME_CHANGE", 300, metrics=("loss",))])
    assert not case.found([_finding("REGIME_CHANGE", 300, metrics=("lr",))])


def test_the_source_is_the_repository_the_report_or_the_name(folder: Path) -> None:
    assert [case.source for case in labels.load(folder)] == ["lab", "XY-02"]
    entry = {"id": "N-1", "url": "https://github.com/some/where/issues/3"}
    assert labels.source(entry) == "some/where"


def test_every_detector_has_a_class() -> None:
    named = {name.partition(":")[0] for name in labels.CLASSES} | {"REGIME_CHANGE"}
    unnamed = {"CHECKPOINT_GAP", "CRASH", "KV_CACHE_PRESSURE", "REPETITION_LOOP"}
    unnamed |= {"ROLLOUT_DEGENERATE", "THROUGHPUT_ROT"}
    assert set(catalog.load()) <= named | unnamed


def test_a_knob_is_chosen_where_it_helps_and_judged_elsewhere(folder: Path) -> None:
    here, there = np.array([True, False]), np.array([False, True])
    none = np.array([False, False])
    changed = (("ratio", 5.0),)
    quiet = left_out.Outcome(none, none)
    table = {
        "A": {left_out.DEFAULT: quiet, changed: left_out.Outcome(here, none)},
        "B": {left_out.DEFAULT: quiet, changed: left_out.Outcome(here, there)},
    }
    assert left_out.chosen(table, here) == {"A": changed, "B": left_out.DEFAULT}
    assert left_out.chosen(table, there) == {"A": left_out.DEFAULT, "B": left_out.DEFAULT}


def test_settings_change_one_knob_within_its_range() -> None:
    detector = catalog.load()["TRUNCATION"]
    settings = list(left_out.settings(detector))
    assert settings[0] == left_out.DEFAULT
    assert all(len(setting) == 1 for setting in settings[1:])
    knobs = {knob.name: knob for knob in detector.knobs()}
    for ((name, value),) in settings[1:]:
        assert knobs[name].minimum <= value <= knobs[name].maximum


# --- healthy runs ---------------------------------------------------------------------------------


def test_a_beginning_knows_nothing_of_the_rest() -> None:
    run = run_of(
        {
            "name": "eval starts late, the run crashes",
            "rows": 20,
            "columns": {"loss": {"level": 2}, "eval/loss": ["-"] * 15 + [1.0] * 5},
            "events": [{"kind": "crash", "step": 20}, {"kind": "checkpoint", "step": 5}],
            "attempts": [{"number": 1, "ended": "crashed", "first_step": 1, "last_step": 20}],
        }
    )
    part = healthy.Beginning(run, 10)
    assert part.steps.names == ("loss",)
    assert part.steps.step.tolist() == list(range(1, 11))
    assert [event.kind for event in part.events] == ["checkpoint"]
    assert [(it.ended, it.last_step) for it in part.info.attempts] == [("unknown", 10)]


def test_healthy_logs_are_counted_with_their_beginnings(folder: Path) -> None:
    paths = list(healthy.logs(folder))
    assert [path.name for path in paths] == ["log.jsonl"]
    report = healthy.report(paths, prefixes=5, seed=0)
    assert "1 healthy logs, 1 alarmed" in report  # it is not: the loss rises to 9


# --- suites ---------------------------------------------------------------------------------------


def test_a_suite_asks_for_the_name_and_the_first_third(tmp_path: Path) -> None:
    suite = suites.SUITES[0]
    rows = [{"step": step, "kl": 0.01 if step < 60 else 12.0} for step in range(200)]
    path = tmp_path / "kl_blowup-0.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = suites.judged(suite, path)
    assert (result.right, result.early) == (True, False)
    renamed = path.rename(tmp_path / "healthy-0.jsonl")
    assert not suites.judged(suite, renamed).right
    assert "| rldoctor 0.2.0 | 1/1 | 0/1 | 0/0 |" in suites.table([result])
