"""How findings and reports look in a REPL and a notebook: short, useful, harmless."""

from __future__ import annotations

import html.parser
import math
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from rlprobe.findings import (
    Coverage,
    Evidence,
    Excerpt,
    Finding,
    Incident,
    Link,
    Restore,
    RunSummary,
    ScanReport,
    Severity,
)

FINDING = Finding(
    detector="KL_BLOWUP",
    severity=Severity.CRITICAL,
    confidence=0.97,
    first_bad_step=1432,
    last_bad_step=1500,
    state="recovered",
    summary="KL rose from 0.08 to 1.84 from step 1,432 on.",
    evidence=(Evidence("kl_mean", 1432, 1.84, 0.08, 3, "worst"),),
    remedies=("lower the learning rate", "raise the KL coefficient"),
    variant="reference",
    metrics=("kl_mean",),
)
EVIL = (
    "\x1b]0;owned\x07</td><script>alert(1)</script>\r\n\u202e\udcff<img src=x onerror=alert(1)>'\"&"
)
ALLOWED = {"div", "p", "b", "br", "table", "tr", "th", "td", "ol", "li", "svg", "path"}


def excerpt(*values: float) -> Excerpt:
    rows = np.arange(len(values))
    return Excerpt("kl_mean", rows + 1430, np.array(values), len(values) // 2, rows, 1.0)


def report_on(root: Finding, path: str = "runs/x") -> ScanReport:
    incident = Incident(
        root=root.key,
        severity=root.severity,
        chain=(Link(root.key, root.detector, root.first_bad_step, 0),),
        last_good_step=1431,
        restore=Restore(1400, path),
        ended_run=False,
        story="",
    )
    summary = RunSummary("x", "recording", None, None, 1, 1500, 1500, (), 0)
    coverage = (Coverage("KL_BLOWUP", "fired"), Coverage("TRUNCATION", "not_checked"))
    return ScanReport(path, summary, "fail", (root,), (incident,), coverage)


def hostile() -> Finding:
    return replace(
        FINDING,
        detector=EVIL,
        variant=EVIL,
        summary=EVIL,
        metrics=(EVIL,),
        remedies=(EVIL,),
        evidence=(Evidence(EVIL, 1, math.nan, math.inf, 1, EVIL),),
        excerpt=replace(excerpt(1.0, 2.0), metric=EVIL),
    )


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a text, and that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [] if tag == "br" else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_in_a_list_a_finding_is_one_short_line() -> None:
    assert repr(FINDING) == (
        "<Finding KL_BLOWUP:reference@1432/kl_mean critical, recovered after 1,500, "
        "confidence 0.97: 'KL rose from 0.08 to 1.84 from step 1,432 on.'>"
    )
    many = replace(FINDING, evidence=FINDING.evidence * 1000, summary="x" * 10_000)
    assert len(repr(many)) < 300


def test_printed_a_finding_says_what_it_rests_on_and_what_to_try() -> None:
    assert str(FINDING).splitlines() == [
        "KL_BLOWUP (reference), first bad step 1,432, recovered after 1,500, confidence 0.97",
        "  KL rose from 0.08 to 1.84 from step 1,432 on.",
        "  evidence: kl_mean 1.84 at step 1,432 on rank 3, compared with 0.08 (worst)",
        "  try: lower the learning rate",
        "  try: raise the KL coefficient",
    ]
    many = str(replace(FINDING, evidence=FINDING.evidence * 1000))
    assert len(many.splitlines()) < 30
    assert "… and 980 more" in many


def test_a_report_is_its_verdict_and_its_incidents() -> None:
    report = report_on(FINDING)
    assert repr(report) == "<ScanReport 'runs/x': fail, 1 incident, 1 finding, 1 of 2 checked>"
    assert str(report).splitlines() == [
        "runs/x: fail, 1 incident, 1 finding, 1 of 2 checked",
        "  critical: KL_BLOWUP (reference), first bad step 1,432, recovered after 1,500, "
        "confidence 0.97",
        "    KL rose from 0.08 to 1.84 from step 1,432 on.",
    ]


def test_a_notebook_shows_the_same_as_a_table_and_a_picture() -> None:
    shown = Tags(replace(FINDING, excerpt=excerpt(1.0, 2.0, 3.0, 4.0))._repr_html_())
    assert "svg" in shown.names
    assert "steps 1,430-1,433" in shown.text
    for text in (FINDING.summary, "kl_mean", "1.84", *FINDING.remedies):
        assert text in shown.text
    table = Tags(report_on(FINDING)._repr_html_())
    for text in ("FAIL", "runs/x", "KL_BLOWUP (reference)", "1,432", FINDING.summary):
        assert text in table.text


@pytest.mark.parametrize("path", ["runs/x", EVIL])
def test_hostile_text_neither_acts_nor_hides(path: str) -> None:
    root = hostile()
    report = report_on(root, path)
    for text in (repr(root), repr(report)):
        assert text.isprintable()
    for text in (str(root), str(report), root._repr_html_(), report._repr_html_()):
        hidden = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n"}
        assert not hidden
    for text in (root._repr_html_(), report._repr_html_()):
        shown = Tags(text)
        assert shown.names <= ALLOWED
        assert not {name for name in shown.attributes if name.startswith("on") or name == "href"}
        assert shown.open == []
        assert "<script>alert(1)</script>" in shown.text, "readable, as text"


@pytest.mark.parametrize(
    "values",
    [
        (1.0, 1.0, 1.0),
        (math.nan, math.nan),
        (math.nan, 1.0, math.inf, 2.0, -math.inf),
        (-1.7e308, 1.7e308, 0.0),
        (0.0, 5e-324),
    ],
)
def test_a_picture_can_be_drawn_of_any_values(values: tuple[float, ...]) -> None:
    text = replace(FINDING, excerpt=excerpt(*values))._repr_html_()
    path = text[text.index("<svg") : text.index("</svg>")]
    assert "nan" not in path
    assert "inf" not in path


def test_one_value_is_no_picture() -> None:
    assert "<svg" not in replace(FINDING, excerpt=excerpt(1.0))._repr_html_()


def test_a_report_says_why_it_was_not_judged() -> None:
    blind = replace(report_on(FINDING), reason=f"no loss {EVIL}")
    assert str(blind).splitlines()[-1].startswith("  not judged as a whole: no loss ")
    page = blind._repr_html_()
    assert "not judged as a whole: no loss " in page
    assert "<script" not in page
    assert "not judged" not in str(report_on(FINDING))
