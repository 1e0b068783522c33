"""Findings and a policy -> a verdict and an exit code."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from rlprobe.config import GatePolicy, Waiver
from rlprobe.exit_codes import COULD_NOT_JUDGE, FAILED, PASSED, UNREADABLE
from rlprobe.findings import Finding, ScanReport

_JUDGED = ("fired", "clean")
_NAMED = 8  # findings of one incident that are named


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What a gate says of one scan: its findings at or above the bar.

    Attributes:
        failing: those that nothing excuses.
        waived: those that a waiver covers.
        resolved: those that a later attempt got past.
        doubts: why it could not be judged, or not in all that is required.
    """

    report: ScanReport
    failing: tuple[Finding, ...]
    waived: tuple[Finding, ...]
    resolved: tuple[Finding, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What a gate says of one or several scans.

    Attributes:
        exit_code: one of `rlprobe.exit_codes`; it goes with the verdict.
        reasons: why, one sentence each.
        runs: what it says of each, in the order of the scans.
        remarks: what else is to be known, one sentence each: doubts beside a failure, waivers that
            have ended or were not needed, runs that are still going.
    """

    exit_code: int
    verdict: Literal["pass", "fail", "not_judged"]
    reasons: tuple[str, ...]
    runs: tuple[RunVerdict, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[Finding, ...]:
        """Findings at or above the bar that nothing excuses, of all runs."""
        return tuple(chain.from_iterable(run.failing for run in self.runs))

    @property
    def waived(self) -> tuple[Finding, ...]:
        """Findings at or above the bar that a waiver covers."""
        return tuple(chain.from_iterable(run.waived for run in self.runs))

    @property
    def resolved(self) -> tuple[Finding, ...]:
        """Findings at or above the bar that a later attempt got past."""
        return tuple(chain.from_iterable(run.resolved for run in self.runs))


def judge(
    reports: Sequence[ScanReport],
    policy: GatePolicy,
    waivers: Sequence[Waiver] = (),
    today: datetime.date | None = None,
    unread: Sequence[str] = (),
) -> GateVerdict:
    """Judge scans by the project's policy.

    Every finding counts for itself: a waiver covers no other, not even what follows from it.

    Args:
        unread: paths that could not be read, and so were not judged.
    """
    today = today or datetime.datetime.now(tz=datetime.UTC).date()
    holding = [waiver for waiver in waivers if waiver.holds(today)]
    runs = tuple(_run(report, policy, holding) for report in reports)
    remarks = [*_about_waivers(waivers, reports, today), *_still_going(reports)]
    failures = tuple(chain.from_iterable(map(_failures, runs)))
    doubts = [f"'{path}' could not be read" for path in unread]
    doubts += chain.from_iterable(run.doubts for run in runs)
    if failures:
        return GateVerdict(FAILED, "fail", failures, runs, (*doubts, *remarks))
    if doubts:
        code = UNREADABLE if unread else COULD_NOT_JUDGE
        return GateVerdict(code, "not_judged", tuple(doubts), runs, tuple(remarks))
    return GateVerdict(PASSED, "pass", (), runs, tuple(remarks))


def _run(report: ScanReport, policy: GatePolicy, waivers: Sequence[Waiver]) -> RunVerdict:
    failing, waived, resolved = [], [], []
    for finding in report.findings:
        if policy.fail_on is None or finding.severity < policy.fail_on:
            continue
        if finding.resolved_by is not None and not policy.fail_on_resolved:
            resolved.append(finding)
        elif any(waiver.covers(finding) for waiver in waivers):
            waived.append(finding)
        else:
            failing.append(finding)
    doubts = tuple(_doubts(report, policy))
    return RunVerdict(report, tuple(failing), tuple(waived), tuple(resolved), doubts)


def _failures(run: RunVerdict) -> Iterator[str]:
    """One sentence for each incident of which something fails: all of that is named."""
    rest = {finding.key: finding for finding in run.failing}
    for incident in run.report.incidents:
        parts = [rest.pop(link.key) for link in incident.chain if link.key in rest]
        if parts:
            root = run.report.finding(incident.root)
            yield _sentence(parts, root, run.report.path)
    yield from (_sentence([finding], finding, run.report.path) for finding in rest.values())


def _sentence(parts: Sequence[Finding], root: Finding, path: str) -> str:
    words = [_named(finding) for finding in parts[:_NAMED]]
    words += [f"{len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
    if parts[0].key != root.key:
        return f"{', '.join(words)} in '{path}', after {_named(root)}"
    rest = f", with {', '.join(words[1:])}" if words[1:] else ""
    return f"{words[0]} in '{path}'{rest}"


def _named(finding: Finding) -> str:
    attempt = f" of attempt {finding.attempt}" if finding.attempt > 1 else ""
    return f"{finding.detector} at step {finding.first_bad_step:,}{attempt}"


def _doubts(report: ScanReport, policy: GatePolicy) -> Iterator[str]:
    if report.verdict == "not_judged":
        why = report.reason or "nothing could be judged in it"
        yield f"'{report.path}' was not judged: {why}"
    elif report.reason:
        yield f"'{report.path}' was not judged as a whole: {report.reason}"
    states = {entry.detector: entry for entry in report.coverage}
    for detector in policy.require:
        entry = states.get(detector)
        if entry is None or entry.state not in _JUDGED:
            why = entry.reason or entry.state if entry else "not selected"
            yield f"{detector} is required but could not judge '{report.path}': {why}"
    for entry in report.coverage:
        if entry.state == "failed":
            yield f"{entry.detector} failed on '{report.path}': {entry.reason}"


def _about_waivers(
    waivers: Iterable[Waiver], reports: Sequence[ScanReport], today: datetime.date
) -> Iterator[str]:
    for waiver in waivers:
        if not waiver.holds(today):
            yield f"the waiver of {waiver.what} ended on {waiver.until}: it covers nothing any more"
        elif not any(waiver.covers(item) for report in reports for item in report.findings):
            yield f"the waiver of {waiver.what} is not used: nothing of it was found"


def _still_going(reports: Iterable[ScanReport]) -> Iterator[str]:
    for report in reports:
        attempts = report.run.attempts
        if attempts and attempts[-1].ended == "running":
            last = report.run.last_step
            upto = "" if last is None else f": judged up to step {last:,}"
            yield f"'{report.path}' is still going{upto}"
