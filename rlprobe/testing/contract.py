"""What a detector promises: a page that tells all, names that mean something, cases that hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe.detector import SECTIONS, Detector, Finding, Inconclusive, Severity
from rlprobe.scan.context import Context
from rlprobe.scan.engine import missing_needs
from rlprobe.testing.cases import KEYS, VERDICTS, Case, load_cases, run_of
from rlprobe.testing.names import WatchedContext, misspelt, strange_metrics

_LONGEST_TITLE = 90
_SHORT_RUN = 5  # rows


def check_detector(
    detector: type[Detector], cases: str | Path | Sequence[Case], *, also: Collection[str] = ()
) -> None:
    """Check a detector against its contract and its cases.

    Args:
        cases: a case file, or what `load_cases` gives.
        also: names of your own that it may use: metrics, kinds of events, ids of detectors.

    Raises:
        AssertionError: names every promise that is not kept.
        InputError: the case file cannot be read.
    """
    known = load_cases(cases) if isinstance(cases, str | Path) else list(cases)
    broken = [
        *page_problems(detector),
        *misspelt(detector, also),
        *case_file_problems(detector, known),
        *(
            f"case '{case['name']}': {word}"
            for case in known
            for word in case_problems(detector, case, also)
        ),
    ]
    if broken:
        raise AssertionError(f"{detector.id}:\n" + "\n".join(f"- {word}" for word in broken))


# --- the page -------------------------------------------------------------------------------------


def page_problems(detector: type[Detector]) -> Iterator[str]:
    """What the page and the declarations lack."""
    if detector.id != detector.id.upper():
        yield f"the id is not in upper case: {detector.id}"
    if detector.__name__.lower() != detector.id.replace("_", "").lower():
        yield f"the class is called {detector.__name__}, not as its id"
    page = detector.page()
    lines = page.splitlines()
    if not lines or len(lines[0]) > _LONGEST_TITLE or not lines[0].endswith("."):
        yield f"the page begins with no sentence of at most {_LONGEST_TITLE} characters"
    headings = [line for line in lines if line in SECTIONS]
    if headings != list(SECTIONS):
        yield f"the page has not the sections {', '.join(SECTIONS)} in this order"
        return
    yield from _empty_sections(lines)
    how = page[page.index("How it is computed") : page.index("What to do")]
    for knob in detector.knobs():
        if f"`{knob.name}`" not in how:
            yield f"knob `{knob.name}` is missing from 'How it is computed'"
        if not knob.description or not math.isfinite(knob.default):
            yield f"knob `{knob.name}` has no description or no default"
        if not knob.minimum <= knob.default <= knob.maximum:
            yield f"knob `{knob.name}`: the default is outside its range"
        if knob.whole and not isinstance(knob.default, int):
            yield f"knob `{knob.name}` counts, but its default is no whole number"
    yield from (
        f"rule '{rule.variant}' has no docstring"
        for rule in detector.rules()
        if not rule.description
    )


def _empty_sections(lines: Sequence[str]) -> Iterator[str]:
    for heading, follower in itertools.pairwise([*SECTIONS, ""]):
        end = lines.index(follower) if follower else len(lines)
        if not any(line.strip() for line in lines[lines.index(heading) + 1 : end]):
            yield f"section '{heading}' is empty"


# --- the case file --------------------------------------------------------------------------------


def case_file_problems(detector: type[Detector], cases: Sequence[Case]) -> Iterator[str]:
    """What the cases of a detector lack, all in all."""
    if len({case["name"] for case in cases}) != len(cases):
        yield "names of cases repeat"
    quiet = [case for case in cases if case.get("quiet")]
    wanted = {
        "two cases that fire": sum("fires" in case for case in cases) >= 2,
        "three that are quiet": len(quiet) >= 3,
        "a healthy look-alike": any("look-alike" in case.get("tags", ()) for case in quiet),
        "one with a NaN": any(_has_nan(case) for case in cases),
        "one of a few rows": any(len(run_of(case).steps) <= _SHORT_RUN for case in cases),
        "one with a missing column": not detector.needs
        or any(case.get("not_checked") for case in cases),
    }
    yield from (f"no case file without {what}" for what, there in wanted.items() if not there)
    for variant in sorted({rule.variant for rule in detector.rules() if rule.variant} - {"*"}):
        if not any(_wants(case, variant) for case in cases):
            yield f"no case in which '{variant}' fires"


def _wants(case: Case, variant: str) -> bool:
    return any(fields.get("variant") == variant for fields in case.get("fires", ()))


def _has_nan(case: Case) -> bool:
    steps = run_of(case).steps
    values = (steps.series(name, None) for name in steps.names)
    return any(series is not None and bool(np.isnan(series.values).any()) for series in values)


# --- one case -------------------------------------------------------------------------------------


def case_problems(
    detector: type[Detector], case: Case, also: Collection[str] = ()
) -> Iterator[str]:
    """What does not hold in one case."""
    yield from (f"unknown key '{key}'" for key in case if key not in KEYS)
    if not any(verdict in case for verdict in VERDICTS):
        yield f"no verdict ({', '.join(VERDICTS)})"
    context = WatchedContext(Context(run_of(case)), also)
    able = not missing_needs(detector, context)
    if able == bool(case.get("not_checked", False)):
        yield "could judge" if able else missing_needs(detector, context)
    if not able or case.get("not_checked"):
        return
    context.strange.clear()  # of `needs`, which `misspelt` tells
    findings, doubt = scan(detector(**case.get("knobs", {})), context)
    yield from context.strange
    for finding in findings:
        yield from finding_problems(detector, finding, context, also)
    if bool(doubt) != bool(case.get("inconclusive", bool(doubt) and "fires" in case)):
        yield f"inconclusive: {doubt}" if doubt else "conclusive"
    if case.get("quiet") or case.get("inconclusive"):
        loud = [finding for finding in findings if finding.severity >= Severity.WARNING]
        if loud and "fires" not in case:
            yield f"not quiet: {loud}"
    yield from _unexpected(case.get("fires", ()), findings)


def scan(detector: Detector, context: Context) -> tuple[list[Finding], str]:
    """What it yields, also before it gives up, and its word if it does."""
    findings: list[Finding] = []
    try:
        findings.extend(detector.scan(context))  # what comes before the exception stays
    except Inconclusive as doubt:
        return findings, str(doubt)
    return findings, ""


def _unexpected(wanted: Iterable[Case], findings: Sequence[Finding]) -> Iterator[str]:
    """What is wanted and not there, and what is there and not wanted."""
    rest = list(findings)
    for fields in wanted:
        match = next((finding for finding in rest if _agrees(fields, finding)), None)
        if match is None:
            yield f"wanted {dict(fields)}, found {list(findings)}"
            return
        rest.remove(match)
    loud = [finding for finding in rest if finding.severity >= Severity.WARNING]
    if wanted and loud:
        yield f"more than was wanted: {loud}"


def _agrees(fields: Case, finding: Finding) -> bool:
    return all(_same(value, _field(finding, name)) for name, value in fields.items())


def _field(finding: Finding, name: str) -> Any:
    value = getattr(finding, name)
    return value.label if isinstance(value, Severity) else value


def _same(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, list) and isinstance(value, int):
        return bool(wanted[0] <= value <= wanted[1])
    if isinstance(value, tuple):
        return set(wanted) <= set(value)
    return bool(wanted == value)


def finding_problems(
    detector: type[Detector], finding: Finding, context: Context, also: Collection[str] = ()
) -> Iterator[str]:
    """What is wrong with the form of a finding."""
    declared = {rule.variant for rule in detector.rules()} or {None}
    first, last = finding.first_bad_step, finding.last_bad_step
    ongoing = finding.state != "recovered" and finding.detector != "CRASH"
    numbers = [item.value for item in finding.evidence]
    numbers += [item.baseline for item in finding.evidence if item.baseline is not None]
    promises = {
        f"variant '{finding.variant}' is declared by no rule": not declared.isdisjoint(
            (finding.variant, "*")
        ),
        "a finding without evidence": bool(finding.evidence),
        "a finding without remedies": bool(finding.remedies),
        "the summary is no sentence in one line": finding.summary.endswith(".")
        and "\n" not in finding.summary,
        "the statement is missing": bool(finding.statement),
        "the steps are in no order": first <= last <= max(context.last_step, first),
        "the first bad step is no int": type(first) is int,
        "the confidence is not in (0, 1]": 0 < finding.confidence <= 1,
        "evidence that is no float": all(isinstance(number, float) for number in numbers),
        "ends before the run, which it has not left": not ongoing or last == context.last_step,
    }
    yield from (f"{what}: {finding!r}" for what, kept in promises.items() if not kept)
    yield from strange_metrics(finding, context, also)
