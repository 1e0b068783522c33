"""The word for a run, and why it is not said of the whole of it.

Finding nothing is no good news where what was read does not tell how a run does: a log of learning
rates, or one most of whose lines were not understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlprobe import schema
from rlprobe.detector import Detector
from rlprobe.findings import Coverage, Finding, Severity, Verdict
from rlprobe.numbers import plural
from rlprobe.store.run import Run
from rlprobe.values import Unread

_MOST_UNREAD = 0.2  # of what looks like metrics
_BLIND = "no loss, reward or gradient norm under a name that the checks know"


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
    limit = _unread(run.info.unread) or ("" if _tells_how_it_does(run) else _BLIND)
    if worst > Severity.INFO:
        return ("fail" if worst is Severity.CRITICAL else "warn"), limit
    judged = any(
        entry.state in {"clean", "fired"} and not detectors[entry.detector].facts_only
        for entry in coverage
    )
    failed = any(entry.state == "failed" for entry in coverage)
    if judged and not failed:
        return ("not_judged", limit) if limit else ("pass", "")
    return "not_judged", _unread(run.info.unread) or _why_not(run, coverage)


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


def _tells_how_it_does(run: Run) -> bool:
    """Whether a loss, a reward or a gradient is among what was read."""
    return any(_kind(name) for name in _names(run)) or _rewarded(run)


def _names(run: Run) -> Iterator[str]:
    yield from run.steps.names
    yield from run.ranks.names


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
