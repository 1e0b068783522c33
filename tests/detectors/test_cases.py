"""Every detector of the catalogue keeps its contract: its page, its case file, its cases."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe import catalog
from rlprobe.detector import Detector, Finding, Inconclusive, Severity
from rlprobe.scan.context import Context
from rlprobe.scan.engine import missing_needs
from tests.detectors.case_run import FOLDER, context_of, load_cases

SECTIONS = (
    "What it detects",
    "Why it matters",
    "How it is computed",
    "What to do",
    "When it is wrong",
    "References",
)
DETECTORS = catalog.load()
COMMON = frozenset({"loss", "grad_norm", "reward_mean", "reward_component/a", "truncation_rate"})
VERDICTS = ("fires", "quiet", "inconclusive", "not_checked")


def _file(detector_id: str) -> Path:
    return FOLDER / f"{detector_id.lower()}.toml"


def _cases() -> Iterable[Any]:
    for detector_id in DETECTORS:
        if _file(detector_id).exists():
            for case in load_cases(_file(detector_id)):
                yield pytest.param(detector_id, case, id=f"{detector_id}: {case['name']}")


def _scan(detector: Detector, context: Context) -> tuple[list[Finding], str]:
    """What it yields, also before it gives up, and its word if it does."""
    found: list[Finding] = []
    try:
        found.extend(detector.scan(context))  # what comes before the exception stays in the list
    except Inconclusive as word:
        return found, str(word)
    return found, ""


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("detector_id", "case"), list(_cases()))
def test_case(detector_id: str, case: dict[str, Any]) -> None:
    context = context_of(case)
    detector = DETECTORS[detector_id](**case.get("knobs", {}))
    assert bool(missing_needs(detector, context)) == bool(case.get("not_checked", False))
    if case.get("not_checked"):
        return
    found, word = _scan(detector, context)
    for finding in found:
        _well_formed(finding, context)
    assert bool(word) == bool(case.get("inconclusive", bool(word) and "fires" in case)), word
    if case.get("quiet") or case.get("inconclusive"):
        loud = [finding for finding in found if finding.severity >= Severity.WARNING]
        assert not loud or "fires" in case, loud
    _expected(case.get("fires", ()), found)


def _expected(wanted: Iterable[Mapping[str, Any]], found: list[Finding]) -> None:
    left = list(found)
    for fields in wanted:
        match = next((finding for finding in left if _agrees(fields, finding)), None)
        assert match is not None, f"wanted {fields}, found {found}"
        left.remove(match)
    if wanted:
        loud = [finding for finding in left if finding.severity >= Severity.WARNING]
        assert not loud, f"more than was wanted: {loud}"


def _agrees(fields: Mapping[str, Any], finding: Finding) -> bool:
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


def _well_formed(finding: Finding, context: Context) -> None:
    assert finding.evidence, finding
    assert all(item.note or item.metric for item in finding.evidence)
    assert finding.remedies, finding
    assert finding.summary.endswith("."), finding.summary
    assert "\n" not in finding.summary
    assert (
        finding.first_bad_step
        <= finding.last_bad_step
        <= max(context.last_step, finding.first_bad_step)
    )
    assert 0 < finding.confidence <= 1
    assert type(finding.first_bad_step) is int
    for item in finding.evidence:
        assert isinstance(item.value, float), item
        assert item.baseline is None or isinstance(item.baseline, float), item
    if finding.state != "recovered" and finding.detector != "CRASH":
        assert finding.last_bad_step == context.last_step, finding


WILD = [math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0, 1e-9, 0.5, 3.0, 1e4, 1e30, "-"]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("detector_id", DETECTORS)
def test_no_series_is_too_wild(detector_id: str, data: st.DataObject) -> None:
    """Whatever is logged, a detector finds something well-formed, nothing, or too little."""
    rows = data.draw(st.integers(1, 40))
    names = sorted({name for need in DETECTORS[detector_id].needs for name in need} | COMMON)
    columns = {
        name.replace("*", "x"): data.draw(
            st.lists(st.sampled_from(WILD), min_size=rows, max_size=rows)
        )
        for name in names
        if not name.startswith("event:") and name != "samples"
    }
    kept = [name for name in columns if data.draw(st.booleans())]
    context = context_of({"name": "wild", "columns": {name: columns[name] for name in kept}})
    found, _ = _scan(DETECTORS[detector_id](), context)
    for finding in found:
        _well_formed(finding, context)


# --- case files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_case_file_has_the_minimum(detector_id: str) -> None:
    assert _file(detector_id).exists(), f"write {_file(detector_id)}"
    cases = load_cases(_file(detector_id))
    assert len({case["name"] for case in cases}) == len(cases), "names repeat"
    assert all(any(verdict in case for verdict in VERDICTS) for case in cases)
    assert sum("fires" in case for case in cases) >= 2
    quiet = [case for case in cases if case.get("quiet")]
    assert len(quiet) >= 3
    assert any("look-alike" in case.get("tags", ()) for case in quiet), "no healthy look-alike"
    assert any(_has_nan(case) for case in cases), "no case with a NaN"
    assert any(len(context_of(case).steps) <= 5 for case in cases), "no short run"
    if DETECTORS[detector_id].needs:
        assert any(case.get("not_checked") for case in cases), "no case with a missing column"


def _has_nan(case: Mapping[str, Any]) -> bool:
    names = context_of(case).names()
    values = [context_of(case).series(name) for name in names]
    return any(series is not None and bool(np.isnan(series.values).any()) for series in values)


def test_every_case_file_belongs_to_a_detector() -> None:
    names = {path.stem.upper() for path in FOLDER.glob("*.toml")}
    assert names <= set(DETECTORS), names - set(DETECTORS)


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_names_agree(detector_id: str) -> None:
    detector = DETECTORS[detector_id]
    assert detector.id == detector_id == detector_id.upper()
    assert Path(inspect.getfile(detector)).stem == detector_id.lower()
    assert detector.__name__.lower() == detector_id.replace("_", "").lower()
    assert detector_id not in detector.caused_by


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_page_has_its_sections_in_order(detector_id: str) -> None:
    lines = inspect.cleandoc(DETECTORS[detector_id].__doc__ or "").splitlines()
    assert lines
    assert len(lines[0]) <= 90
    assert lines[0].endswith(".")
    headings = [line for line in lines if line in SECTIONS]
    assert headings == list(SECTIONS)
    for heading, follower in itertools.pairwise([*SECTIONS, ""]):
        start = lines.index(heading) + 1
        end = lines.index(follower) if follower else len(lines)
        assert any(line.strip() for line in lines[start:end]), f"{heading} is empty"


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_page_names_every_knob(detector_id: str) -> None:
    detector = DETECTORS[detector_id]
    page = inspect.cleandoc(detector.__doc__ or "")
    how = page[page.index("How it is computed") : page.index("What to do")]
    for knob in detector.knobs():
        assert f"`{knob.name}`" in how, f"`{knob.name}` is missing from 'How it is computed'"
        assert knob.description
        assert knob.minimum <= knob.default <= knob.maximum
        assert math.isfinite(knob.default)
