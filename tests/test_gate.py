"""The gate: only roots count, waivers end, and what could not be judged does not pass."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from rlprobe.config import GatePolicy, Waiver
from rlprobe.findings import (
    Coverage,
    Evidence,
    Finding,
    Incident,
    Link,
    RunSummary,
    ScanReport,
    Severity,
)
from rlprobe.gate import judge

TODAY = datetime.date(2026, 6, 1)


def report(*roots: tuple[str, Severity], coverage: Sequence[Coverage] = ()) -> ScanReport:
    findings = tuple(
        Finding(
            detector=name,
            severity=severity,
            confidence=1.0,
            first_bad_step=7,
            last_bad_step=9,
            state="ongoing",
            summary="x",
            evidence=(Evidence("loss", 7, 1.0),),
            remedies=("y",),
        )
        for name, severity in roots
    )
    incidents = tuple(
        Incident(f.key, f.severity, (Link(f.key, f.detector, 7, 0),), 6, None, False, "story")
        for f in findings
    )
    run = RunSummary("id", "recording", None, None, 1, 9, 9, (), 0)
    clean = tuple(coverage) or (Coverage("QUIET", "clean"),)
    return ScanReport("run", run, "fail" if roots else "pass", findings, incidents, clean)


def test_findings_at_the_bar_fail_and_below_it_pass() -> None:
    sick = report(("A", Severity.WARNING))
    assert judge([sick], GatePolicy(Severity.CRITICAL)).exit_code == 0
    verdict = judge([sick], GatePolicy(Severity.WARNING))
    assert (verdict.exit_code, verdict.reasons) == (1, ("A at step 7 in 'run'",))
    assert judge([sick], GatePolicy(None)).exit_code == 0


def test_one_sick_run_of_several_fails() -> None:
    runs = [report(), report(("A", Severity.CRITICAL))]
    assert judge(runs, GatePolicy()).verdict == "fail"


def test_a_waiver_holds_until_its_day() -> None:
    sick = [report(("A", Severity.CRITICAL))]
    waivers = [Waiver("A", "known", until=TODAY)]
    waived = judge(sick, GatePolicy(), waivers, TODAY)
    assert (waived.exit_code, [f.detector for f in waived.waived]) == (0, ["A"])
    tomorrow = TODAY + datetime.timedelta(days=1)
    assert judge(sick, GatePolicy(), waivers, tomorrow).exit_code == 1


def test_required_coverage_that_is_missing_does_not_pass() -> None:
    policy = GatePolicy(require=("KL_BLOWUP",))
    gap = report(coverage=[Coverage("KL_BLOWUP", "not_checked", "no kl_mean logged")])
    verdict = judge([gap], policy)
    assert verdict.exit_code == 3
    assert "no kl_mean logged" in verdict.reasons[0]
    assert judge([report(coverage=[Coverage("KL_BLOWUP", "clean")])], policy).exit_code == 0


def test_a_failed_detector_does_not_pass() -> None:
    broken = report(coverage=[Coverage("A", "failed", "ZeroDivisionError"), Coverage("B", "clean")])
    assert judge([broken], GatePolicy()).exit_code == 3
