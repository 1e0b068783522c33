"""The gate: each finding counts for itself, what is said and the exit code agree."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

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
    Verdict,
)
from rlprobe.gate import GateVerdict, judge
from rlprobe.report.reporter import Layout, reporter
from rlprobe.values import Attempt

TODAY = datetime.date(2026, 6, 1)
YESTERDAY = TODAY - datetime.timedelta(days=1)
INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
CLEAN = Coverage("QUIET", "clean")


def finding(detector: str, severity: Severity, first: int = 7, last: int = 9) -> Finding:
    return Finding(
        detector=detector,
        severity=severity,
        confidence=1.0,
        first_bad_step=first,
        last_bad_step=last,
        state="ongoing",
        summary="x",
        evidence=(Evidence("loss", first, 1.0),),
        remedies=("y",),
        attempt=1,
    )


def report(
    *chains: Sequence[Finding],
    coverage: Sequence[Coverage] = (CLEAN,),
    ended: str = "completed",
    path: str = "run",
) -> ScanReport:
    """A report with one incident per chain of findings."""
    incidents = []
    for chain in chains:
        links = tuple(Link(f.key, f.detector, f.first_bad_step, 0) for f in chain)
        worst = max(f.severity for f in chain)
        incidents.append(Incident(chain[0].key, worst, links, 6, None, False, "story", 1))
    findings = tuple(itertools.chain.from_iterable(chains))
    left = [f.severity for f in findings if f.resolved_by is None]
    verdicts: Mapping[Severity, Verdict] = {INFO: "pass", WARNING: "warn", CRITICAL: "fail"}
    verdict = verdicts[max(left, default=INFO)] if coverage else "not_judged"
    attempts = (Attempt(1, 1, 9, ended),)
    run = RunSummary("id", "recording", None, None, 1, 9, 9, attempts, 0)
    return ScanReport(path, run, verdict, findings, tuple(incidents), tuple(coverage))


def test_findings_at_the_bar_fail_and_below_it_pass() -> None:
    sick = report([finding("A", WARNING)])
    assert judge([sick], GatePolicy(CRITICAL)).exit_code == 0
    verdict = judge([sick], GatePolicy(WARNING))
    assert (verdict.exit_code, verdict.reasons) == (1, ("A at step 7 in 'run'",))
    assert judge([sick], GatePolicy(None)).exit_code == 0


def test_one_sick_run_of_several_fails_and_is_named() -> None:
    runs = [report(path="one"), report([finding("A", CRITICAL)], path="two")]
    verdict = judge(runs, GatePolicy())
    assert (verdict.verdict, verdict.reasons) == ("fail", ("A at step 7 in 'two'",))
    assert [len(run.failing) for run in verdict.runs] == [0, 1]


def test_a_waiver_holds_until_its_day() -> None:
    sick = [report([finding("A", CRITICAL)])]
    waivers = [Waiver("A", "known", until=TODAY)]
    waived = judge(sick, GatePolicy(), waivers, TODAY)
    assert (waived.exit_code, [f.detector for f in waived.waived]) == (0, ["A"])
    late = judge(sick, GatePolicy(), waivers, TODAY + datetime.timedelta(days=1))
    assert late.exit_code == 1
    assert late.remarks == ("the waiver of A ended on 2026-06-01: it covers nothing any more",)


def test_a_waiver_of_the_root_passes_nothing_that_follows_from_it() -> None:
    chain = [finding("A", WARNING), finding("NAN", CRITICAL, 8), finding("B", CRITICAL, 9)]
    verdict = judge([report(chain)], GatePolicy(), [Waiver("A", "known")], TODAY)
    assert verdict.exit_code == 1
    assert verdict.reasons == ("NAN at step 8, B at step 9 in 'run', after A at step 7",)
    both = [Waiver("A", "known"), Waiver("NAN", "known"), Waiver("B", "known")]
    assert judge([report(chain)], GatePolicy(), both[:2], TODAY).exit_code == 1
    assert judge([report(chain)], GatePolicy(), both, TODAY).exit_code == 0
    named = judge([report(chain)], GatePolicy(WARNING), (), TODAY).reasons
    assert named == ("A at step 7 in 'run', with NAN at step 8, B at step 9",)


def test_a_waiver_of_some_steps_or_of_a_variant_covers_no_others() -> None:
    early, late = finding("A", CRITICAL, 7, 9), finding("A", CRITICAL, 50, 60)
    waivers = [Waiver("A", "known", steps=(5, 10))]
    verdict = judge([report([early], [late])], GatePolicy(), waivers, TODAY)
    assert (verdict.exit_code, verdict.failing, verdict.waived) == (1, (late,), (early,))
    lasting = replace(early, last_bad_step=11)
    assert judge([report([lasting])], GatePolicy(), waivers, TODAY).exit_code == 1
    waivers = [Waiver("A", "known", variant="start")]
    assert judge([report([early])], GatePolicy(), waivers, TODAY).exit_code == 1
    start = replace(early, variant="start")
    assert judge([report([start])], GatePolicy(), waivers, TODAY).exit_code == 0


def test_what_is_resolved_fails_only_where_the_policy_says_so() -> None:
    past = replace(finding("A", CRITICAL), resolved_by=2)
    verdict = judge([report([past])], GatePolicy(), (), TODAY)
    assert (verdict.exit_code, verdict.resolved) == (0, (past,))
    assert judge([report([past])], GatePolicy(fail_on_resolved=True), (), TODAY).exit_code == 1


def test_required_coverage_that_is_missing_does_not_pass_and_is_said_beside_a_failure() -> None:
    policy = GatePolicy(require=("KL_BLOWUP",))
    gap = [Coverage("KL_BLOWUP", "not_checked", "no kl_mean logged"), CLEAN]
    verdict = judge([report(coverage=gap)], policy)
    assert verdict.exit_code == 3
    assert "no kl_mean logged" in verdict.reasons[0]
    assert judge([report(coverage=[Coverage("KL_BLOWUP", "clean")])], policy).exit_code == 0
    failing = judge([report([finding("A", CRITICAL)], coverage=gap)], policy)
    assert failing.exit_code == 1
    assert "no kl_mean logged" in failing.remarks[0]


def test_a_failed_detector_does_not_pass() -> None:
    broken = report(coverage=[Coverage("A", "failed", "ZeroDivisionError"), Coverage("B", "clean")])
    assert judge([broken], GatePolicy()).exit_code == 3


def test_a_path_that_could_not_be_read_does_not_pass() -> None:
    verdict = judge([report()], GatePolicy(), unread=["gone"])
    assert (verdict.exit_code, verdict.verdict) == (2, "not_judged")
    sick = judge([report([finding("A", CRITICAL)])], GatePolicy(), unread=["gone"])
    assert (sick.exit_code, sick.remarks) == (1, ("'gone' could not be read",))


CHAINS: Mapping[str, Sequence[Finding]] = {
    "healthy": [],
    "info": [finding("A", INFO)],
    "warning": [finding("A", WARNING)],
    "critical": [finding("A", CRITICAL)],
    "below": [finding("A", WARNING), finding("NAN", CRITICAL, 8)],
    "resolved": [replace(finding("A", CRITICAL), resolved_by=2)],
    "partly": [replace(finding("A", CRITICAL), resolved_by=2), finding("NAN", CRITICAL, 8)],
}
WAIVERS: Mapping[str, Sequence[Waiver]] = {
    "none": [],
    "holds": [Waiver("A", "known")],
    "ended": [Waiver("A", "known", until=YESTERDAY)],
    "unused": [Waiver("OTHER", "known")],
    "elsewhere": [Waiver("A", "known", steps=(1, 3))],
}
REQUIRE = {"none": (), "met": ("QUIET",), "unmet": ("KL_BLOWUP",)}
FAIL_ON = {"critical": CRITICAL, "warning": WARNING, "info": INFO, "never": None}
WORDS = {0: "GATE PASS", 1: "GATE FAIL", 2: "GATE NOT JUDGED", 3: "GATE NOT JUDGED"}
TABLE = list(itertools.product(CHAINS, WAIVERS, REQUIRE, ["completed", "running"], FAIL_ON))


def expected(chain: str, waivers: str, require: str, fail_on: str) -> int:
    bar = FAIL_ON[fail_on]
    for item in CHAINS[chain]:
        excused = item.resolved_by is not None or (item.detector == "A" and waivers == "holds")
        if bar is not None and item.severity >= bar and not excused:
            return 1
    return 3 if require == "unmet" else 0


@pytest.mark.parametrize("fail_on", FAIL_ON)
def test_the_word_and_the_exit_code_agree_in_every_case(fail_on: str) -> None:
    for chain, waivers, require, ended, bar in TABLE:
        if bar != fail_on:
            continue
        case = (chain, waivers, require, ended, bar)
        chains = [CHAINS[chain]] if CHAINS[chain] else []
        policy = GatePolicy(FAIL_ON[fail_on], REQUIRE[require])
        judged = judge([report(*chains, ended=ended)], policy, WAIVERS[waivers], TODAY)
        assert judged.exit_code == expected(chain, waivers, require, fail_on), case
        _agree(report(*chains, ended=ended), judged)
        lines = [*judged.reasons, *judged.remarks]
        assert any("still going" in line for line in lines) == (ended == "running"), case
        assert any("ended on" in line for line in lines) == (waivers == "ended"), case
        unused = waivers in {"unused", "elsewhere"} or (waivers == "holds" and chain == "healthy")
        assert any("not used" in line for line in lines) == unused, case
        assert any("is required" in line for line in lines) == (require == "unmet"), case
        assert bool(judged.reasons) == (judged.exit_code != 0), case


def _agree(sick: ScanReport, judged: GateVerdict) -> None:
    screen = reporter("text", Layout(quiet=True)).render([sick], judged)
    assert screen.splitlines()[0] == WORDS[judged.exit_code]
    comment = reporter("markdown", Layout(quiet=True)).render([sick], judged)
    assert comment.splitlines()[0] == f"## {WORDS[judged.exit_code].capitalize()}"
    document = json.loads(reporter("json", Layout()).render([sick], judged))["gate"]
    assert document["exit_code"] == judged.exit_code
    words = {0: "pass", 1: "fail", 2: "not_judged", 3: "not_judged"}
    assert document["verdict"] == words[judged.exit_code]
    assert len(document["by_run"]) == 1
