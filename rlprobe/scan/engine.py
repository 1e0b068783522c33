"""Runs the catalogue over one run: who can judge, what they find, who failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlprobe import _visible, catalog
from rlprobe.config import Config
from rlprobe.detector import Detector
from rlprobe.errors import EmptyRunError, Inconclusive
from rlprobe.findings import (
    Coverage,
    CoverageState,
    Finding,
    RunSummary,
    ScanReport,
)
from rlprobe.scan.applicable import not_of_this_training
from rlprobe.scan.attempts import Branch, Told, branches, remarks, told_once, with_attempts
from rlprobe.scan.context import Context
from rlprobe.scan.excerpts import with_excerpts
from rlprobe.scan.incidents import incidents_of, linked_by_cause
from rlprobe.scan.pulse import pulse
from rlprobe.scan.verdict import verdict
from rlprobe.store.run import Run

_QUOTED = 72  # characters of a line that is quoted


@dataclass
class _Results:
    findings: list[Finding] = field(default_factory=list)
    coverage: dict[str, Coverage] = field(default_factory=dict)


def scan(run: Run, config: Config | None = None) -> ScanReport:
    """Judge one run with the catalogue.

    Raises:
        EmptyRunError: the run has neither rows nor events.
        DetectorError: a detector of the catalogue cannot be loaded.
    """
    config = config or Config()
    if not len(run.steps) and not len(run.ranks) and not run.events:
        raise EmptyRunError(
            f"Couldn't judge '{run.info.path}': it holds no steps and no events{_seen(run)}",
            hint="Was the run directory just created, or the log cut before its first row?",
        )
    detectors = catalog.load(config.detector_folders)
    chosen = _chosen(detectors, config)
    attempts = branches(run)
    judged = [_judge_branch(branch, chosen, detectors, config) for branch in attempts]
    merged = told_once(attempts)
    findings = _pictured(merged, attempts)
    coverage = _coverage(judged, findings)
    word, reason = verdict(run, findings, coverage, chosen)
    return ScanReport(
        path=run.info.path,
        run=_summary(run, attempts[0].context, remarks(attempts)),
        verdict=word,
        findings=findings,
        incidents=incidents_of(findings, merged.context_of),
        coverage=coverage,
        unmapped_metrics=run.info.unmapped,
        problems=run.problems,
        reason=reason,
    )


def _seen(run: Run) -> str:
    """A piece of the log that looks like metrics, where there is one."""
    for item in run.info.unread:
        for number, text in item.examples[:1]:
            of_file = f" of {item.file(0)}" if item.file(0) else ""
            quoted = _visible.start(text.strip(), _QUOTED)
            return f'. Seen: {item.thing} {number:,}{of_file}: "{quoted}"'
    return ""


def _judge_branch(
    branch: Branch,
    chosen: Mapping[str, type[Detector]],
    detectors: Mapping[str, type[Detector]],
    config: Config,
) -> dict[str, Coverage]:
    """Set the findings of a branch, linked by cause; say what became of each detector."""
    results = _Results()
    for detector_id, detector in chosen.items():
        if branch.whole or detector.facts_only:
            _judge(detector(**config.knobs.get(detector_id, {})), branch.context, results)
    findings = with_attempts(results.findings, branch.context)
    branch.findings = linked_by_cause(findings, detectors, branch.context)
    if len(branch.begins) > 1:  # one of several: none keeps its series while the others are judged
        branch.context.forget()
    return results.coverage


def _pictured(merged: Told, attempts: Sequence[Branch]) -> tuple[Finding, ...]:
    """The findings with their excerpts, each of the rows of its own branch."""
    by_key: dict[str, Finding] = {}
    for branch in attempts:
        own = (item for item in merged.findings if merged.branch_of[item.key] is branch)
        by_key |= {item.key: item for item in with_excerpts(own, branch.context)}
        if len(attempts) > 1:
            branch.context.forget()
    return tuple(by_key[item.key] for item in merged.findings)


def _coverage(
    of_branches: Sequence[Mapping[str, Coverage]], findings: Iterable[Finding]
) -> tuple[Coverage, ...]:
    """That of the run as it is now; what was found, or failed, on an abandoned branch counts."""
    fired = {item.detector for item in findings}
    now, *others = of_branches
    merged = []
    for detector_id, entry in now.items():
        known = (entry, *(other[detector_id] for other in others if detector_id in other))
        failed = next((item for item in known if item.state == "failed"), None)
        told = detector_id in fired and entry.state != "fired"
        merged.append(failed or (Coverage(detector_id, "fired") if told else entry))
    return tuple(merged)


def _chosen(detectors: Mapping[str, type[Detector]], config: Config) -> dict[str, type[Detector]]:
    return {
        detector_id: detector
        for detector_id, detector in detectors.items()
        if (not config.select or detector_id in config.select) and detector_id not in config.ignore
    }


def _judge(detector: Detector, context: Context, results: _Results) -> None:
    missing = missing_needs(detector, context)
    if missing:
        results.coverage[detector.id] = Coverage(detector.id, "not_checked", missing)
        return
    findings: list[Finding] = []
    state: CoverageState = "clean"
    reason = ""
    try:
        findings.extend(detector.scan(context))
    except Inconclusive as word:
        state, reason = "inconclusive", str(word)
    except Exception as error:
        state, reason = "failed", f"{type(error).__name__}: {error}"
    results.findings.extend({finding.key: finding for finding in reversed(findings)}.values())
    if findings and state != "failed":
        state = "fired"
    results.coverage[detector.id] = Coverage(detector.id, state, reason)


def missing_needs(detector: Detector | type[Detector], context: Context) -> str:
    """Why a detector cannot run on this run, in words; empty when it can."""
    if not detector.needs:
        return ""
    lacking = [[need for need in group if not _has(context, need)] for group in detector.needs]
    if any(not group for group in lacking):
        return ""
    other = not_of_this_training(detector, context)
    if other:
        return other
    shortest = min(lacking, key=len)
    return f"no {' and no '.join(_described(need) for need in shortest)}"


def _has(context: Context, need: str) -> bool:
    if need == "samples":
        return bool(context.sample_steps())
    if need == "ranks":
        return context.has_ranks
    if need.startswith("event:"):
        return bool(context.events(need.removeprefix("event:")))
    names = context.names(need.removesuffix("*")) if need.endswith("/*") else (need,)
    return any(context.series(name) is not None or context.rank_series(name) for name in names)


def _described(need: str) -> str:
    if need == "samples":
        return "rollouts recorded"
    if need == "ranks":
        return "values of several ranks recorded"
    if need.startswith("event:"):
        return f"'{need.removeprefix('event:')}' events"
    return f"{need} logged"


def _summary(run: Run, context: Context, notes: Sequence[str]) -> RunSummary:
    info = run.info
    has_rows = bool(len(context.steps))
    ranks = run.ranks.rank
    return RunSummary(
        id=info.id,
        source=info.source,
        framework=info.framework,
        algorithm=info.algorithm,
        first_step=context.first_step if has_rows else None,
        last_step=context.last_step if has_rows else None,
        rows=len(run.steps) or len(ranks),
        attempts=info.attempts,
        ranks=len(set(ranks.tolist())) if len(ranks) < 10_000_000 else info.world_size,
        notes=(*info.notes, *notes),
        health=info.health,
        unread=info.unread,
        pulse=pulse(run),
    )
