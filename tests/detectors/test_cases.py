"""Every detector of the catalogue keeps its contract: page, names, case file, cases."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe import catalog
from rlprobe.scan.context import Context
from rlprobe.testing import load_cases, run_of
from rlprobe.testing.contract import (
    case_file_problems,
    case_problems,
    finding_problems,
    page_problems,
    scan,
)
from rlprobe.testing.names import misspelt

FOLDER = Path(__file__).parent
DETECTORS = catalog.load()
COMMON = frozenset({"loss", "grad_norm", "reward_mean", "reward_component/a", "truncation_rate"})


def _file(detector_id: str) -> Path:
    return FOLDER / f"{detector_id.lower()}.toml"


def _cases() -> Iterable[Any]:
    for detector_id in DETECTORS:
        if _file(detector_id).exists():
            for case in load_cases(_file(detector_id)):
                yield pytest.param(detector_id, case, id=f"{detector_id}: {case['name']}")


@pytest.mark.parametrize(("detector_id", "case"), list(_cases()))
def test_case(detector_id: str, case: dict[str, Any]) -> None:
    assert not list(case_problems(DETECTORS[detector_id], case))


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_page_names_and_case_file(detector_id: str) -> None:
    detector = DETECTORS[detector_id]
    assert detector.id == detector_id
    assert Path(inspect.getfile(detector)).stem == detector_id.lower()
    assert _file(detector_id).exists(), f"write {_file(detector_id)}"
    cases = load_cases(_file(detector_id))
    problems = (page_problems(detector), misspelt(detector), case_file_problems(detector, cases))
    assert not [problem for part in problems for problem in part]


def test_every_case_file_belongs_to_a_detector() -> None:
    names = {path.stem.upper() for path in FOLDER.glob("*.toml")}
    assert names <= set(DETECTORS), names - set(DETECTORS)


@pytest.mark.parametrize("detector_id", DETECTORS)
def test_numbers_that_decide_are_declared(detector_id: str) -> None:
    """A knob or a fixed number is on the page; a bare one at the top of the file is not."""
    tree = ast.parse(Path(inspect.getfile(DETECTORS[detector_id])).read_text(encoding="utf-8"))
    bare = [
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_number(node.value)
    ]
    assert not bare, f"declare with knob() or fixed(): {bare}"


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp | ast.Tuple):
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else node.elts
        return bool(parts) and all(_is_number(part) for part in parts)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


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
    chosen = [name for name in columns if data.draw(st.booleans())]
    case = {"name": "wild", "columns": {name: columns[name] for name in chosen}}
    context = Context(run_of(case))
    findings, _ = scan(DETECTORS[detector_id](), context)
    for finding in findings:
        assert not list(finding_problems(DETECTORS[detector_id], finding, context))
