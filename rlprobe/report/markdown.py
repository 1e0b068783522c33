"""A short comment for a pull request: a table of incidents, details folded away."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlprobe import numbers
from rlprobe.findings import Incident, ScanReport, Severity
from rlprobe.gate import GateVerdict
from rlprobe.report import account, escape, verdict
from rlprobe.report.life import alive
from rlprobe.report.reporter import Layout

_WORDS = {
    "pass": "✅ pass",
    "warn": "⚠️ warn",
    "fail": "❌ fail",
    "not_judged": "❔ not judged",
}
_PROBLEMS = 5
_ROWS = 10
_SUMMARY = 240  # characters of a summary in the table


def reporter(layout: Layout) -> MarkdownReporter:
    """The reporter for `--format markdown`."""
    return MarkdownReporter(layout)


class MarkdownReporter:
    """GitHub-flavoured Markdown."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def render(self, reports: Sequence[ScanReport], judged: GateVerdict | None = None) -> str:
        """One section per report, the gate's word above them."""
        sections = "\n".join(_section(report, quiet=self.layout.quiet) for report in reports)
        if judged is None:
            return sections
        return _gate(judged) if self.layout.quiet else _gate(judged) + sections


def _gate(judged: GateVerdict) -> str:
    reasons = "".join(f"- {escape.markdown(reason)}\n" for reason in verdict.reasons(judged))
    return f"## {verdict.WORDS[judged.verdict].capitalize()}\n\n{reasons}\n"


def _section(report: ScanReport, *, quiet: bool) -> str:
    lines = [f"### rlprobe: {_WORDS[report.verdict]} {escape.code(report.path)}", ""]
    if quiet:
        return "\n".join(lines)
    lines += [_facts(report), ""]
    if report.reason:
        word = "Not judged" if report.verdict == "not_judged" else "Not judged as a whole"
        lines += [f"{word}: {escape.markdown(report.reason)}.", ""]
    if report.incidents:
        lines += [*_table(report), ""]
    lines += [*_details(report), *_coverage(report), *_account(report), *_remarks(report)]
    return "\n".join(lines)


def _facts(report: ScanReport) -> str:
    run = report.run
    kind = [run.algorithm, run.framework]
    facts = [escape.markdown(part) for part in kind if part]
    facts.append(numbers.steps(run.first_step, run.last_step))
    facts.append(numbers.plural(run.rows, "row"))
    facts += [] if run.pulse is None else [alive(run.pulse, time.time())]
    return " · ".join([*facts, *(escape.markdown(note) for note in run.notes)])


def _table(report: ScanReport) -> list[str]:
    rows = [_row(report, incident) for incident in report.incidents[:_ROWS]]
    more = len(report.incidents) - _ROWS
    if more > 0:
        rows.append(f"| | … and {more} more | | |")
    return ["| severity | what | first bad step | |", "|---|---|---|---|", *rows]


def _row(report: ScanReport, incident: Incident) -> str:
    root = report.finding(incident.root)
    word, step = incident.severity.label, numbers.count(root.first_bad_step)
    what = f"{escape.code(root.detector)} | {step}"
    if len(report.run.attempts) > 1 and root.attempt:
        what += f" (attempt {root.attempt})"
    if incident.resolved_by is not None:
        word = f"resolved by attempt {incident.resolved_by} ({word})"
    return f"| {word} | {what} | {escape.markdown(root.summary[:_SUMMARY])} |"


def _details(report: ScanReport) -> list[str]:
    lines: list[str] = []
    for incident in report.incidents[:_ROWS]:
        if incident.severity > Severity.INFO and incident.resolved_by is None:
            lines += _detail(report, incident)
    return lines


def _detail(report: ScanReport, incident: Incident) -> list[str]:
    root = report.finding(incident.root)
    title = f"{escape.markdown(root.detector)} at step {numbers.count(root.first_bad_step)}"
    chain = [
        f"{escape.code(link.detector)} ({link.lead:+,})"
        for link in incident.chain
        if link.key != incident.root
    ]
    lines = [f"<details><summary>{title}</summary>", ""]
    lines += [f"Then: {', '.join(chain)}", ""] if chain else []
    if incident.restore is not None:
        where = incident.restore.path or f"step {incident.restore.step}"
        lines += [f"Restore: {escape.code(where)}", ""]
    lines += [f"{n}. {escape.markdown(text)}" for n, text in enumerate(root.remedies, start=1)]
    return [*lines, "", "</details>", ""]


def _account(report: ScanReport) -> list[str]:
    """How much of the log was understood."""
    lines: list[str] = []
    for said in (
        account.unread(report.run.rows, report.run.unread, escape.code),
        " ".join(account.unknown_names(report, escape.code)),
    ):
        lines += [said, ""] if said else []
    return lines


def _coverage(report: ScanReport) -> list[str]:
    checked = [item for item in report.coverage if item.state in {"clean", "fired"}]
    left = [escape.code(item.detector) for item in report.coverage if item not in checked]
    said = f"Checked {len(checked)} of {len(report.coverage)}."
    return [f"{said} Not judged: {', '.join(left)}." if left else said, ""]


def _remarks(report: ScanReport) -> list[str]:
    """What the recorder lost, and what could not be read."""
    lines = [f"- recorder: {escape.markdown(report.run.health)}"] if report.run.health else []
    lines += [
        f"- {escape.code(problem.path)}: {escape.markdown(problem.message)}"
        for problem in report.problems[:_PROBLEMS]
    ]
    if len(report.problems) > _PROBLEMS:
        lines.append(f"- … and {numbers.plural(len(report.problems) - _PROBLEMS, 'more problem')}")
    return [*lines, ""] if lines else []
