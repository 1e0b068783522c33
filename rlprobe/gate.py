"""Findings and a policy -> a verdict and an exit code."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlprobe.config import GatePolicy, Waiver
from rlprobe.exit_codes import COULD_NOT_JUDGE, FAILED, PASSED
from rlprobe.findings import Finding, Incident, ScanReport

_JUDGED = ("fired", "clean")


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate says of one or several scans.

    Attributes:
        exit_code: PASSED, FAILED or COULD_NOT_JUDGE of `rlprobe.exit_codes`.
        reasons: why, one sentence each.
        failing: roots of the incidents at or above the bar that no waiver covers.
        waived: those that a waiver covers.
    """

    exit_code: int
    verdict: Literal["pass", "fail", "not_judged"]
    reasons: tuple[str, ...]
    failing: tuple[Finding, ...]
    waived: tuple[Finding, ...] = ()


def judge(
    reports: Sequence[ScanReport],
    policy: GatePolicy,
    waivers: Sequence[Waiver] = (),
    today: datetime.date | None = None,
) -> GateVerdict:
    """Judge scans by the project's policy.

    Incidents count, each once and by the worst of its chain; a waiver covers the incidents of its
    root.
    """
    today = today or datetime.datetime.now(tz=datetime.UTC).date()
    waived_ids = {waiver.detector for waiver in waivers if waiver.holds(today)}
    at_bar = [
        (report, report.finding(incident.root))
        for report in reports
        for incident in report.incidents
        if _counts(incident, policy)
    ]
    failing = tuple(root for _, root in at_bar if root.detector not in waived_ids)
    waived = tuple(root for _, root in at_bar if root.detector in waived_ids)
    reasons = tuple(
        f"{root.detector} at step {root.first_bad_step:,} in '{report.path}'"
        for report, root in at_bar
        if root.detector not in waived_ids
    )
    if failing:
        return GateVerdict(FAILED, "fail", reasons, failing, waived)
    doubts = tuple(doubt for report in reports for doubt in _doubts(report, policy))
    if doubts:
        return GateVerdict(COULD_NOT_JUDGE, "not_judged", doubts, (), waived)
    return GateVerdict(PASSED, "pass", (), (), waived)


def _counts(incident: Incident, policy: GatePolicy) -> bool:
    return policy.fail_on is not None and incident.severity >= policy.fail_on


def _doubts(report: ScanReport, policy: GatePolicy) -> list[str]:
    doubts = []
    if report.verdict == "not_judged":
        doubts.append(f"nothing could be judged in '{report.path}'")
    states = {entry.detector: entry for entry in report.coverage}
    for detector in policy.require:
        entry = states.get(detector)
        if entry is None or entry.state not in _JUDGED:
            why = entry.reason or entry.state if entry else "not selected"
            doubts.append(f"{detector} is required but could not judge '{report.path}': {why}")
    doubts.extend(
        f"{entry.detector} failed on '{report.path}': {entry.reason}"
        for entry in report.coverage
        if entry.state == "failed"
    )
    return doubts
