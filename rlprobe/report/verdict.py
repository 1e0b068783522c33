"""The word of `rlprobe gate`, which every format puts beside the reports it rests on."""

from __future__ import annotations

from collections.abc import Callable

from rlprobe.findings import Finding
from rlprobe.gate import GateVerdict, RunVerdict

WORDS = {"pass": "GATE PASS", "fail": "GATE FAIL", "not_judged": "GATE NOT JUDGED"}
_NAMED = 8  # findings in one sentence


def reasons(judged: GateVerdict) -> list[str]:
    """Why, what was excused, and what else is to be known: one sentence each, not yet escaped."""
    return [
        *judged.reasons,
        *_excused(judged, "waived", lambda run: run.waived),
        *_excused(judged, "resolved", lambda run: run.resolved),
        *judged.remarks,
    ]


def _excused(
    judged: GateVerdict, word: str, of: Callable[[RunVerdict], tuple[Finding, ...]]
) -> list[str]:
    """`waived: A at step 7, B at step 9 in 'run'`, if there is any."""
    several = len(judged.runs) > 1
    named = [
        f"{finding.detector} at step {finding.first_bad_step:,}"
        + (f" by attempt {finding.resolved_by}" if word == "resolved" else "")
        + (f" in '{run.report.path}'" if several else "")
        for run in judged.runs
        for finding in of(run)
    ]
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return [f"{word}: {', '.join(named[:_NAMED] + more)}"] if named else []
