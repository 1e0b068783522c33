"""The engine: who could judge, who failed, and what the verdict is allowed to say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from rlprobe import catalog
from rlprobe.config import Config
from rlprobe.detector import Detector, Event, Evidence, Finding, Inconclusive, RunContext, Severity
from rlprobe.errors import EmptyRunError
from rlprobe.findings import Coverage, ScanReport
from rlprobe.scan.engine import scan
from rlprobe.store.frame import frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt


def run_of(
    columns: Mapping[str, Sequence[float]],
    events: Sequence[Event] = (),
    attempts: Sequence[Attempt] = (),
) -> TableRun:
    size = len(next(iter(columns.values()))) if columns else 0
    data = {
        name: (np.array(values, dtype=np.float64), np.ones(size, dtype=np.bool_))
        for name, values in columns.items()
    }
    steps = np.arange(1, size + 1)
    info = RunInfo(path="here", id="x", source="test", attempts=tuple(attempts))
    return TableRun(info, frame_of(steps, data), events=events)


def finding(detector: str, first: int, last: int, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        detector=detector,
        severity=severity,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=last,
        state="recovered",
        summary=f"{detector} happened",
        evidence=(Evidence("loss", first, 1.0),),
        remedies=("do something",),
    )


class Root(Detector):
    """A root."""

    id = "ROOT"
    severity = Severity.WARNING
    needs = (("loss",),)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        yield finding("ROOT", 3, 6)


class Middle(Detector):
    """Comes of the root."""

    id = "MIDDLE"
    severity = Severity.WARNING
    needs = (("not_logged",),)
    caused_by = ("ROOT",)


class Effect(Detector):
    """Comes of the middle, and so of the root where the middle was not seen."""

    id = "EFFECT"
    severity = Severity.CRITICAL
    needs = (("loss",),)
    caused_by = ("MIDDLE",)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        yield finding("EFFECT", 5, 9, Severity.CRITICAL)
        yield finding("EFFECT", 90, 95)


class Doubtful(Detector):
    """Yields a fact, then cannot judge."""

    id = "DOUBTFUL"
    severity = Severity.INFO

    def scan(self, run: RunContext) -> Iterator[Finding]:
        if math.isnan(run.setting("nothing") or math.nan):
            raise Inconclusive("2 points, needs 20")
        yield finding("DOUBTFUL", 1, 1)


class Broken(Detector):
    """Fails."""

    id = "BROKEN"
    severity = Severity.INFO

    def scan(self, run: RunContext) -> Iterator[Finding]:
        yield finding("BROKEN", 2, 2, Severity.INFO)
        raise ZeroDivisionError("by a spread of 0")


class Quiet(Detector):
    """Finds nothing."""

    id = "QUIET"
    severity = Severity.INFO
    needs = (("loss",), ("samples",))

    def scan(self, run: RunContext) -> Iterator[Finding]:
        yield from ()


def scanned(
    monkeypatch: pytest.MonkeyPatch, *detectors: type[Detector], run: TableRun | None = None
) -> ScanReport:
    monkeypatch.setattr(catalog, "load", lambda folders=(): {d.id: d for d in detectors})
    return scan(run or run_of({"loss": [1.0] * 100}), Config())


def coverage(report: ScanReport) -> dict[str, Coverage]:
    return {entry.detector: entry for entry in report.coverage}


def test_coverage_says_what_became_of_each_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    report = scanned(monkeypatch, Root, Middle, Doubtful, Broken, Quiet)
    states = {name: entry.state for name, entry in coverage(report).items()}
    assert states == {
        "ROOT": "fired",
        "MIDDLE": "not_checked",
        "DOUBTFUL": "inconclusive",
        "BROKEN": "failed",
        "QUIET": "clean",
    }
    assert coverage(report)["MIDDLE"].reason == "no not_logged logged"
    assert coverage(report)["DOUBTFUL"].reason == "2 points, needs 20"
    assert coverage(report)["BROKEN"].reason == "ZeroDivisionError: by a spread of 0"


def test_a_failing_detector_keeps_its_findings_and_hurts_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = scanned(monkeypatch, Broken, Root)
    assert [item.detector for item in report.findings] == ["BROKEN", "ROOT"]


def test_a_run_in_which_nothing_could_be_checked_is_not_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert scanned(monkeypatch, Middle, Doubtful).verdict == "not_judged"
    assert scanned(monkeypatch, Middle, Quiet).verdict == "pass"
    monkeypatch.setattr(Quiet, "facts_only", True)
    assert scanned(monkeypatch, Quiet).verdict == "not_judged"


def test_causes_are_linked_across_what_was_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    report = scanned(monkeypatch, Effect, Root, Middle)
    by_step = {item.first_bad_step: item for item in report.findings}
    assert by_step[5].caused_by == by_step[3].key
    assert by_step[90].caused_by is None, "long after the cause was over"
    first, second = report.incidents
    assert first.root == by_step[3].key
    assert [(link.detector, link.lead) for link in first.chain] == [("ROOT", 0), ("EFFECT", 2)]
    assert first.severity is Severity.CRITICAL
    assert first.last_good_step == 2
    assert second.root == by_step[90].key
    assert report.verdict == "fail"
    assert "From step 3: ROOT happened. 2 steps later: EFFECT happened." in first.story


def test_findings_carry_what_is_drawn_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    report = scanned(monkeypatch, Effect, Root)
    assert all(item.excerpt and item.excerpt.metric == "loss" for item in report.findings)
    assert all(item.onset_logged for item in report.findings)


def checkpoint(step: int, **data: object) -> Event:
    return Event("checkpoint", step, data={"path": f"ckpt-{step}", **data})


def test_the_restore_point_is_the_last_checkpoint_strictly_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [checkpoint(1), checkpoint(2, has=["model"], lacks=["rng"]), checkpoint(3)]
    run = run_of({"loss": [1.0] * 100}, events)
    restore = scanned(monkeypatch, Root, run=run).incidents[0].restore
    assert restore is not None
    assert (restore.step, restore.path, restore.lacks) == (2, "ckpt-2", ("rng",))
    assert scanned(monkeypatch, Root).incidents[0].restore is None


def test_a_run_without_anything_is_refused() -> None:
    with pytest.raises(EmptyRunError, match="'here'"):
        scan(run_of({}))


def test_the_catalogue_itself_on_a_healthy_and_a_sick_run(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    norm = np.exp(random.normal(0, 0.1, 200))
    healthy = scan(run_of({"grad_norm": norm.tolist(), "loss": norm.tolist()}))
    assert healthy.verdict == "pass"
    norm[120:] = np.nan
    sick = scan(run_of({"grad_norm": norm.tolist(), "loss": norm.tolist()}, [checkpoint(100)]))
    assert sick.verdict == "fail"
    root = sick.roots()[0]
    assert (root.detector, root.first_bad_step) == ("NONFINITE_METRIC", 121)  # forward first
    assert sick.incidents[0].restore is not None
    assert sick.incidents[0].restore.step == 100
