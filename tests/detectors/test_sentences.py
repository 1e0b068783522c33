"""What a finding says is true of the rows it names: computed again on every case."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy.sentences import untrue
from rlprobe import catalog
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.scan.engine import missing_needs
from rlprobe.testing import load_cases, run_of
from rlprobe.testing.contract import scan

FOLDER = Path(__file__).parent
DETECTORS = catalog.load()


def _cases() -> Iterable[Any]:
    for detector_id in DETECTORS:
        for case in load_cases(FOLDER / f"{detector_id.lower()}.toml"):
            yield pytest.param(detector_id, case, id=f"{detector_id}: {case['name']}")


@pytest.mark.parametrize(("detector_id", "case"), list(_cases()))
def test_every_sentence_holds(detector_id: str, case: dict[str, Any]) -> None:
    context = Context(run_of(case))
    detector = DETECTORS[detector_id](**case.get("knobs", {}))
    if missing_needs(detector, context):
        return
    findings, _ = scan(detector, context)
    wrong = [word for finding in findings for word in untrue(finding, context)]
    assert not wrong


# --- the checker itself -------------------------------------------------------------------------

RUN = Context(
    run_of(
        {
            "name": "a loss that rises and a norm that is NaN once",
            "columns": {
                "loss": [2.0] * 10 + [3.0, 3.5, 3.5, 3.5],
                "grad_norm": [1.0] * 12 + [float("nan"), 1.0],
            },
        }
    )
)
TRUE = "The loss rose from 2 to 3.5 (1.8 times, 75%) from step 11 on and stays there for 4 rows."


def _finding(summary: str, *evidence: Evidence, first: int = 11) -> Finding:
    return Finding(
        detector="DIVERGENCE",
        severity=Severity.WARNING,
        confidence=0.8,
        first_bad_step=first,
        last_bad_step=14,
        state="ongoing",
        summary=summary,
        evidence=evidence,
        remedies=("look",),
        metrics=("loss",),
    )


def _since(value: float = 3.5, baseline: float = 2.0) -> Evidence:
    return Evidence("loss", None, value, baseline, note="median since, against before")


def test_what_is_true_is_let_through() -> None:
    evidence = (Evidence("loss", 11, 3.0, 2.0, note="onset"), _since())
    assert list(untrue(_finding(TRUE, *evidence), RUN)) == []
    at_nan = Evidence("grad_norm", 13, np.nan, note="first bad value")
    assert list(untrue(_finding("It went from 1 to nan.", at_nan, _since(1, 1)), RUN))
    assert not list(untrue(_finding("It went to nan at step 13.", at_nan), RUN))


@pytest.mark.parametrize(
    ("summary", "evidence", "first"),
    [
        ("The loss rose to 4.1.", _since(), 11),
        ("The loss rose by 80%.", _since(), 11),
        ("The loss fell from 2 to 3.5.", _since(), 11),
        ("The loss is high from step 10 on.", _since(), 11),
        ("The loss is high at step 70.", _since(), 11),
        ("The loss is high.", _since(), 99),
        ("The loss is high.", Evidence("loss", 11, 3.5, note="onset"), 11),
        ("The loss is high.", Evidence("loss", 99, 3.5, note="onset"), 11),
        ("The loss is high.", Evidence("kl_mean", 11, 3.5, note="onset"), 11),
        ("The loss is high.", Evidence("loss", 11, 3.0, note="highest"), 11),
        ("The loss is high.", _since(2.5), 11),
        ("The loss is high.", _since(3.5, 1.0), 11),
        ("The loss fell to 2, 3.5 before, and stays there.", _since(2, 3.5), 10),
    ],
)
def test_what_is_not_true_is_told(summary: str, evidence: Evidence, first: int) -> None:
    assert list(untrue(_finding(summary, evidence, first=first), RUN))
