"""The report for programs, as `schemas/report.schema.json` describes it.

Only ASCII is written, so that no text of a run can act on a terminal. A number that is not finite
is null, with its kind (`nan`, `inf`, `-inf`) beside it under `<name>_kind`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from rlprobe import numbers, schema
from rlprobe._version import __version__
from rlprobe.findings import Evidence, Finding, Incident, Restore, RunSummary, ScanReport
from rlprobe.gate import GateVerdict, RunVerdict
from rlprobe.nearest import nearest
from rlprobe.report.reporter import Layout
from rlprobe.values import Attempt, Unread


def reporter(layout: Layout) -> JsonReporter:
    """The reporter for `--format json`."""
    return JsonReporter(layout)


class JsonReporter:
    """One document: a report, or several under `runs`, with the gate's word beside them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def render(self, reports: Sequence[ScanReport], judged: GateVerdict | None = None) -> str:
        """The document; a single report that no gate judged stands at the top level."""
        documents = [document(report) for report in reports]
        version = {"format_version": schema.REPORT_VERSION}
        several = {"runs": documents, "findings": [_short(*item) for item in _all(reports)]}
        if judged is not None:
            return dumps({**version, "gate": _gate(judged), **several})
        if len(documents) == 1 and not self.layout.several:
            return dumps(documents[0])
        return dumps({**version, **several})


def dumps(content: Any) -> str:
    """JSON text; a non-finite number that nobody took out is an error, never bare `NaN`."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def measured(name: str, value: float | None) -> dict[str, Any]:
    """A number under its name; null with the kind beside it where it is not finite."""
    if value is None or math.isfinite(value):
        return {name: value}
    return {name: None, f"{name}_kind": numbers.kind(value)}


def plain(value: Any) -> Any:
    """Any value as JSON can hold it; in a list, a non-finite number is just null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return _plain_object(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _plain_object(content: Mapping[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in content.items():
        made |= measured(str(key), value) if isinstance(value, float) else {str(key): plain(value)}
    return made


def _gate(judged: GateVerdict) -> dict[str, Any]:
    return {
        "verdict": judged.verdict,
        "exit_code": judged.exit_code,
        "reasons": list(judged.reasons),
        "remarks": list(judged.remarks),
        **_counted(judged),
        "by_run": [{"path": run.report.path, **_counted(run)} for run in judged.runs],
    }


def _counted(judged: GateVerdict | RunVerdict) -> dict[str, list[str]]:
    return {
        "failing": [finding.key for finding in judged.failing],
        "waived": [finding.key for finding in judged.waived],
        "resolved": [finding.key for finding in judged.resolved],
    }


def document(report: ScanReport) -> dict[str, Any]:
    """One report as plain values."""
    return {
        "format_version": schema.REPORT_VERSION,
        "rlprobe_version": __version__,
        "path": report.path,
        "run": _run(report.run),
        "verdict": report.verdict,
        "reason": report.reason,
        "findings": [_finding(finding) for finding in report.findings],
        "incidents": [_incident(incident) for incident in report.incidents],
        "coverage": [
            {"detector": item.detector, "state": item.state, "reason": item.reason}
            for item in report.coverage
        ],
        "unmapped_metrics": list(report.unmapped_metrics),
        "nearest_metrics": _nearest(report),
        "problems": [{"path": item.path, "message": item.message} for item in report.problems],
    }


def _run(run: RunSummary) -> dict[str, Any]:
    return {
        "id": run.id,
        "framework": run.framework,
        "algorithm": run.algorithm,
        "first_step": run.first_step,
        "last_step": run.last_step,
        "rows": run.rows,
        "attempts": [attempt(item) for item in run.attempts],
        "ranks": run.ranks,
        "source": run.source,
        "notes": list(run.notes),
        "health": run.health,
        "unread": [_unread(item) for item in run.unread],
    }


def _unread(item: Unread) -> dict[str, Any]:
    return {
        "thing": item.thing,
        "count": item.count,
        "of": item.of,
        "examples": [
            {"number": number, "text": text, "file": item.file(place)}
            for place, (number, text) in enumerate(item.examples)
        ],
    }


def _nearest(report: ScanReport) -> dict[str, str]:
    """The metric that an unknown name is near to, where there is one."""
    near = ((name, nearest(name, report.run.framework)) for name in report.unmapped_metrics)
    return {name: metric for name, metric in near if metric}


def attempt(item: Attempt) -> dict[str, Any]:
    """One launch; its start is null where it is not known."""
    return {
        "number": item.number,
        "first_step": item.first_step,
        "last_step": item.last_step,
        "ended": item.ended,
        "started": item.started if math.isfinite(item.started) else None,
        "world_size": item.world_size,
    }


def _all(reports: Sequence[ScanReport]) -> Iterator[tuple[str, Finding]]:
    return ((report.run.id, finding) for report in reports for finding in report.findings)


def _short(run: str, finding: Finding) -> dict[str, Any]:
    """A finding of one of several runs, for a reader that looks for findings at the top."""
    return {
        "run": run,
        "detector": finding.detector,
        "variant": finding.variant,
        "severity": finding.severity.label,
        "first_bad_step": finding.first_bad_step,
        "metrics": list(finding.metrics),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.key,
        "detector": finding.detector,
        "variant": finding.variant,
        "severity": finding.severity.label,
        "confidence": finding.confidence,
        "first_bad_step": finding.first_bad_step,
        "last_bad_step": finding.last_bad_step,
        "state": finding.state,
        "metrics": list(finding.metrics),
        "ranks": list(finding.ranks),
        "summary": finding.summary,
        "evidence": [_evidence(item) for item in finding.evidence],
        "remedies": list(finding.remedies),
        "samples": list(finding.samples),
        "caused_by": finding.caused_by,
        "attempt": max(1, finding.attempt),
        "resolved_by": finding.resolved_by,
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    return {
        "metric": item.metric,
        "step": item.step,
        **measured("value", item.value),
        **measured("baseline", item.baseline),
        "rank": item.rank,
        "note": item.note,
    }


def _incident(incident: Incident) -> dict[str, Any]:
    chain = [
        {"key": link.key, "detector": link.detector, "step": link.step, "lead": link.lead}
        for link in incident.chain
    ]
    return {
        "root": incident.root,
        "severity": incident.severity.label,
        "ended_run": incident.ended_run,
        "chain": chain,
        "last_good_step": incident.last_good_step,
        "restore": _restore(incident.restore),
        "story": incident.story,
        "attempt": max(1, incident.attempt),
        "resolved_by": incident.resolved_by,
    }


def _restore(restore: Restore | None) -> dict[str, Any] | None:
    if restore is None:
        return None
    return {
        "step": restore.step,
        "path": restore.path,
        "has": list(restore.has),
        "lacks": list(restore.lacks),
    }
