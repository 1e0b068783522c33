"""The word for a run, and why it is not said of the whole of it.

Finding nothing is no good news where what was read does not tell how a run does: a log of learning
rates, or one most of whose lines were not understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlprobe import schema
from rlprobe.detector import Detector
from rlprobe.findings import Coverage, Finding, Severity, Verdict
from rlprobe.numbers import plural
from rlprobe.store.frame import Frame
from rlprobe.store.run import Run
from rlprobe.values import Unread

_MOST_UNREAD = 0.2  # of what looks like metrics
_BLIND = "no loss, reward or gradient norm under a name that the checks know"
_ALONE = "in all, and no other loss, reward or gradient norm"


def verdict(
    run: Run,
    findings: Sequence[Finding],
    coverage: Sequence[Coverage],
    detectors: Mapping[str, type[Detector]],
) -> tuple[Verdict, str]:
    """The word, and why the run was not judged or not as a whole: one sentence, or nothing.

    What was found stands, whatever else was not understood.
    """
    left = (finding.severity for finding in findings if finding.resolved_by is None)
    worst = max(left, default=Severity.INFO)
    limit = _missing(run) or _unread(run.info.unread) or _blind(run)
    if worst > Severity.INFO:
        return ("fail" if worst is Severity.CRITICAL else "warn"), limit
    judged = any(
        entry.state in {"clean", "fired"} and not detectors[entry.detector].facts_only
        for entry in coverage
    )
    failed = any(entry.state == "failed" for entry in coverage)
    if judged and not failed:
        return ("not_judged", limit) if limit else ("pass", "")
    return "not_judged", _missing(run) or _unread(run.info.unread) or _why_not(run, coverage)


def _missing(run: Run) -> str:
    """What of the run could not be read at all, or not in part."""
    lost = [problem for problem in run.problems if problem.table]
    if not lost:
        return ""
    files = len({problem.path for problem in lost})
    tables = ", ".join(sorted({problem.table for problem in lost}))
    return f"data is missing: {plural(files, 'file')} of {tables} could not be read as a whole"


def _unread(unread: Sequence[Unread]) -> str:
    """What of the log was not understood, where that is too much of it."""
    worst = max(unread, key=_share, default=None)
    if worst is None or _share(worst) <= _MOST_UNREAD:
        return ""
    things = plural(worst.of, worst.thing)
    verb = "was" if worst.count == 1 else "were"
    return f"{worst.count:,} of {things} that look like metrics {verb} not understood"


def _share(item: Unread) -> float:
    return item.count / item.of if item.of > 0 else float(item.count > 0)


def _blind(run: Run) -> str:
    """Why what was read does not tell how the run does; empty where it does."""
    tables = run.steps, run.ranks
    if any(map(_tells, tables)) or _rewarded(run):
        return ""
    lone = next((name for table in tables for name in table.names if _kind(name)), None)
    return _BLIND if lone is None else f"one value of {lone} {_ALONE}"


def _tells(table: Frame) -> bool:
    """Whether a loss, a reward or a gradient is in it, and not in one row of many."""
    names = (name for name in table.names if _kind(name))
    fewest = min(2, len(table))
    return any(np.count_nonzero(table.load(name)[1]) >= fewest for name in names)


def _kind(name: str) -> str:
    metric = schema.metric(name.removeprefix("eval/"))
    return metric.kind if metric else ""


def _rewarded(run: Run) -> bool:
    """Whether the rollouts that were recorded first have rewards."""
    steps = run.sample_steps()
    return bool(steps) and any(item.reward is not None for item in run.rollouts(steps[0]))


def _why_not(run: Run, coverage: Sequence[Coverage]) -> str:
    states = [item.state for item in coverage]
    if not len(run.steps) and not len(run.ranks):
        return "no metric rows"
    if "failed" in states:
        failed = plural(states.count("failed"), "check")
        return f"{failed} failed, and the others found nothing"
    if "inconclusive" in states:
        facts = "; the others found nothing" if "clean" in states else ""
        return f"too few rows for the statistical checks{facts}"
    return "no metric that the catalogue checks was logged"
