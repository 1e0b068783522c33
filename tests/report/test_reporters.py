"""The three formats of a scan: what they say, and that nothing in a run can act on a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from rlprobe import schema
from rlprobe.errors import UsageError
from rlprobe.findings import (
    Coverage,
    Evidence,
    Finding,
    Incident,
    Link,
    Restore,
    RunSummary,
    ScanReport,
    Severity,
)
from rlprobe.report.reporter import FORMATS, Layout, reporter
from rlprobe.scan.context import Context
from rlprobe.scan.excerpts import with_excerpts
from rlprobe.store.frame import frame_of
from rlprobe.store.run import Run, RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, Problem, Unread

Golden = Callable[[str, str], None]
ONSET, LAST = 1428, 1440


def _run(path: str, columns: dict[str, list[float]]) -> TableRun:
    size = len(next(iter(columns.values())))
    steps = np.arange(1, size + 1, dtype=np.int64)
    data = {
        name: (np.array(values), np.ones(size, dtype=np.bool_)) for name, values in columns.items()
    }
    return TableRun(RunInfo(path, path, "recording"), frame_of(steps, data))


def _finding(detector: str, step: int, metric: str, **changes: object) -> Finding:
    values: dict[str, object] = {
        "detector": detector,
        "severity": Severity.CRITICAL,
        "confidence": 0.97,
        "first_bad_step": step,
        "last_bad_step": LAST,
        "state": "ended_run",
        "summary": f"{metric} left its range.",
        "evidence": (Evidence(metric, step, 142.6, 0.85),),
        "remedies": (),
        "metrics": (metric,),
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def _summary(path: str, rows: int, ranks: int = 64) -> RunSummary:
    attempt = Attempt(1, 1, rows, "crashed", 1_790_000_000.0, ranks)
    return RunSummary(path, "recording", "trl", "grpo", 1, rows, rows, (attempt,), ranks)


def _drawn(report: ScanReport, run: Run) -> ScanReport:
    """The report as the engine hands it over: with what is drawn of the run."""
    return replace(report, findings=with_excerpts(report.findings, Context(run)))


_COVERAGE = (
    Coverage("ADVANTAGE_NOISE", "fired"),
    Coverage("KL_BLOWUP", "fired"),
    Coverage("GRAD_PATHOLOGY", "fired"),
    Coverage("LENGTH_EXPLOSION", "clean"),
    Coverage("VALUE_DIVERGENCE", "not_checked", "no critic"),
    Coverage("CLIP_SATURATION", "not_checked", "no clip_fraction logged"),
    Coverage("KV_CACHE_PRESSURE", "not_checked", "no kv_cache_usage logged"),
)


@pytest.fixture
def noisy() -> ScanReport:
    """Fails: noise in the advantages, then everything."""
    path = "runs/qwen32b-grpo"
    calm = [0.85 + 0.05 * (step % 3 - 1) for step in range(1, ONSET)]
    run = _run(
        path,
        {
            "grad_norm": [*calm, 142.6, 90.0, 120.0, 142.0, 141.0, *[140.0] * 7, float("inf")],
            "kl_mean": [*[0.08] * (ONSET + 3), *[1.84] * (LAST - ONSET - 3)],
        },
    )
    root = _finding(
        "ADVANTAGE_NOISE",
        ONSET,
        "grad_norm",
        summary="14 of 16 groups have equal rewards (spread 8e-9, rounding noise), yet advantages "
        "reach -18.4 … 24.7 and the gradient norm jumps 0.85 -> 142.6: noise is divided by almost "
        "nothing.",
        remedies=(
            "give groups without spread an advantage of 0   (rlprobe.guards.group_advantages)",
            "pay the format reward only where the answer is right   (rlprobe.guards.gated_reward)",
            "mix the hard prompts in slowly; the curriculum changed at step 1,420",
        ),
        samples=("1428-0-7-0",),
    )
    kl = _finding("KL_BLOWUP", ONSET + 4, "kl_mean", caused_by=root.key)
    dead = _finding(
        "CRASH",
        LAST,
        "event:crash",
        summary="collective time-out after 1,200 s",
        evidence=(Evidence("event:crash", LAST, float("nan")),),
        caused_by=kl.key,
    )
    chain = tuple(
        Link(item.key, item.detector, item.first_bad_step, item.first_bad_step - ONSET)
        for item in (root, kl, dead)
    )
    restore = Restore(
        1400, "checkpoint-1400", ("model", "optimizer", "scheduler", "rng"), ("data_cursor",)
    )
    incident = Incident(
        root.key, Severity.CRITICAL, chain, ONSET - 1, restore, ended_run=True, story="It died."
    )
    report = ScanReport(
        path=path,
        run=_summary(path, LAST),
        verdict="fail",
        findings=(root, kl, dead),
        incidents=(incident,),
        coverage=_COVERAGE,
        problems=(Problem(f"{path}/steps/x.parquet", "left out: torn"),),
    )
    return _drawn(report, run)


@pytest.fixture
def healthy() -> ScanReport:
    """Passes, with something worth knowing."""
    path = "runs/gsm8k-7b"
    run = _run(path, {"zero_variance_group_fraction": [0.1] * 1309 + [0.66] * 691})
    info = _finding(
        "ZERO_VARIANCE",
        1310,
        "zero_variance_group_fraction",
        severity=Severity.INFO,
        variant="solved",
        state="ongoing",
        summary="Groups are all solved: 66 % of the batch gives no gradient.",
    )
    link = Link(info.key, info.detector, 1310, 0)
    incident = Incident(info.key, Severity.INFO, (link,), 1309, None, ended_run=False, story="")
    coverage = (
        *(Coverage(f"CHECK_{number:02}", "clean") for number in range(25)),
        Coverage("ZERO_VARIANCE", "fired"),
        *_COVERAGE[-3::2],
    )
    report = ScanReport(path, _summary(path, 2000, 8), "pass", (info,), (incident,), coverage)
    return _drawn(report, run)


@pytest.fixture
def unjudged() -> ScanReport:
    """Too short for statistics, steps numbered by row."""
    run = _run("train.log", {"loss": [1.0] * 8})
    notes = ("steps not logged: numbered by row",)
    summary = RunSummary("train.log", "TRL console", "trl", None, 1, 8, 8, (), 0, notes)
    coverage = (
        Coverage("NONFINITE_METRIC", "clean"),
        Coverage("LOSS_SPIKE", "inconclusive", "8 rows, needs 20"),
        Coverage("KL_BLOWUP", "not_checked", "no kl_mean logged"),
    )
    report = ScanReport(
        "train.log",
        summary,
        "not_judged",
        (),
        (),
        coverage,
        unmapped_metrics=("my/odd metric",),
        reason="too few rows for the statistical checks; the others found nothing",
    )
    return _drawn(report, run)


@pytest.fixture
def hostile() -> ScanReport:
    """Every text that a run supplies tries to act on the terminal."""
    evil = "\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\r\u202egnp.exe\x9b2J\udcff"
    name = evil + "m" * 10_000
    run = _run(evil, {name: [1.0] * 20 + [9.0] * 5})
    finding = _finding(
        "CUSTOM",
        21,
        name,
        summary=f"{evil} was seen",
        remedies=(evil, evil),
        samples=(evil,),
        evidence=(Evidence(name, 21, float("nan"), float("inf"), note=evil),),
        last_bad_step=25,
    )
    link = Link(finding.key, "CUSTOM", 21, 0)
    second = _finding("CUSTOM", 22, "samples", summary=evil)
    also = Link(second.key, evil, 22, 1)
    incident = Incident(
        finding.key,
        Severity.CRITICAL,
        (link, also),
        20,
        Restore(20, evil, (evil,), (evil,)),
        ended_run=True,
        story=evil,
    )
    unread = (Unread(evil, 3, 9, ((7, name),)),)
    summary = RunSummary(
        evil, evil, evil, evil, 1, 25, 25, (), 0, notes=(evil,), health=evil, unread=unread
    )
    report = ScanReport(
        path=evil,
        run=summary,
        verdict="fail",
        findings=(finding, second),
        incidents=(incident,),
        coverage=(Coverage("CUSTOM", "failed", evil),),
        unmapped_metrics=(name,),
        problems=(Problem(evil, evil),),
        reason=evil,
    )
    return _drawn(report, run)


def render(report: ScanReport, name: str = "text", **layout: Any) -> str:
    return reporter(name, Layout(**layout)).render([report])


@pytest.mark.parametrize("screen", ["noisy", "healthy", "unjudged"])
def test_screens(screen: str, request: pytest.FixtureRequest, golden: Golden) -> None:
    report = request.getfixturevalue(screen)
    golden(f"scan_{screen}.txt", render(report))
    golden(f"scan_{screen}.md", render(report, "markdown"))


def test_a_report_without_pictures_is_still_a_report(noisy: ScanReport) -> None:
    bare = replace(noisy, findings=tuple(replace(item, excerpt=None) for item in noisy.findings))
    text = render(bare)
    assert "▁" not in text
    assert noisy.findings[0].summary.split()[0] in text


def test_healthy_run_takes_few_lines(healthy: ScanReport) -> None:
    assert len(render(healthy).splitlines()) <= 5


@pytest.mark.parametrize("width", [1, 40, 60, 90, 100, 1000])
@pytest.mark.parametrize("screen", ["noisy", "healthy", "unjudged", "hostile"])
def test_every_width(screen: str, width: int, request: pytest.FixtureRequest) -> None:
    text = render(request.getfixturevalue(screen), width=width)
    limit = max(90, min(width, 100))  # paths and sparklines are not torn apart on narrow ones
    long = [line for line in text.splitlines() if len(line) > limit and "  look " not in line]
    assert not long


def test_colour_adds_nothing_but_escape_codes(noisy: ScanReport) -> None:
    coloured = render(noisy, colour=True)
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == render(noisy).splitlines()


def test_quiet_is_one_line_per_run(noisy: ScanReport) -> None:
    assert render(noisy, quiet=True) == "FAIL   1 incident, ended the run   runs/qwen32b-grpo\n"


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_text_is_harmless(name: str, hostile: ScanReport) -> None:
    text = render(hostile, name)
    dangerous = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n"}
    assert not dangerous
    assert len(text) < 200_000


def test_hostile_text_stays_readable(hostile: ScanReport) -> None:
    text = render(hostile)
    assert r"\x1b[31m[bold]red[/bold]\r" in text
    assert max(len(line) for line in text.splitlines()) < 300


def test_markup_is_never_interpreted(hostile: ScanReport) -> None:
    assert "[bold]" in render(hostile, colour=True)


def test_markdown_holds_no_live_markup(hostile: ScanReport) -> None:
    text = render(hostile, "markdown")
    assert "[bold]red" not in text.replace(r"\[", "").replace("`", "\0").split("\0")[0]


@pytest.mark.parametrize("screen", ["noisy", "healthy", "unjudged", "hostile"])
def test_json_follows_the_schema(screen: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(screen)
    validator = jsonschema.Draft202012Validator(schema.report_schema())
    single = json.loads(render(report, "json"), parse_constant=_no_constant)
    validator.validate(single)
    several = json.loads(render(report, "json", several=True))
    validator.validate(several)
    assert several["runs"] == [single]
    assert several["format_version"] == 1
    told = [(item["run"], item["detector"], item["first_bad_step"]) for item in several["findings"]]
    own = single["findings"]
    assert told == [(single["run"]["id"], f["detector"], f["first_bad_step"]) for f in own]


def _no_constant(word: str) -> None:
    raise AssertionError(f"bare {word} in JSON")


def test_json_of_several_runs(noisy: ScanReport, healthy: ScanReport) -> None:
    document = json.loads(reporter("json", Layout()).render([noisy, healthy]))
    assert [run["verdict"] for run in document["runs"]] == ["fail", "pass"]
    jsonschema.Draft202012Validator(schema.report_schema()).validate(document)


def test_json_names_what_it_cannot_hold(noisy: ScanReport) -> None:
    document = json.loads(render(noisy, "json"))
    crash = document["findings"][2]
    assert crash["evidence"][0]["value"] is None
    assert crash["evidence"][0]["value_kind"] == "nan"
    assert "value_kind" not in document["findings"][0]["evidence"][0]


def test_the_schema_is_valid_and_described() -> None:
    document = schema.report_schema()
    jsonschema.Draft202012Validator.check_schema(document)
    for name, definition in document["$defs"].items():
        assert definition.get("description"), f"{name} has no description"
        if definition.get("type") == "object":
            assert definition["additionalProperties"] is False, name
        for field, spec in definition.get("properties", {}).items():
            assert "description" in spec or "$ref" in spec, f"{name}.{field} has no description"


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        reporter("yaml", Layout())
    assert "json" in caught.value.hint


def test_golden_files_hold_no_stray_whitespace() -> None:
    folder = Path(__file__).parents[1] / "golden"
    for path in folder.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert line == line.rstrip(), f"{path.name}: {line!r}"


def test_what_a_later_attempt_resolved_is_told_in_a_line(noisy: ScanReport) -> None:
    attempts = (Attempt(1, 1, LAST, "crashed"), Attempt(2, 1400, 1600, "completed"))
    report = replace(
        noisy,
        verdict="pass",
        run=replace(noisy.run, attempts=attempts),
        findings=tuple(replace(item, attempt=1, resolved_by=2) for item in noisy.findings),
        incidents=tuple(replace(item, attempt=1, resolved_by=2) for item in noisy.incidents),
    )
    screen = render(report)
    assert "PASS   nothing left" in screen
    assert "resolved   critical" in screen
    assert "of attempt 1 from step" in screen
    assert "CRITICAL" not in screen
    assert "resolved by attempt 2 (critical)" in render(report, "markdown")
    document = json.loads(render(report, "json"))
    jsonschema.Draft202012Validator(schema.report_schema()).validate(document)
    assert {item["resolved_by"] for item in document["findings"]} == {2}
    left = replace(report, incidents=noisy.incidents, findings=noisy.findings, verdict="fail")
    assert "first bad step 1,428   confidence" in render(left), "the attempt is not known"
