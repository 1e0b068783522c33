"""The terminal: the answer first, then the evidence, what to do, and what was not checked."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text

from rlprobe import naming, numbers
from rlprobe.findings import Coverage, Incident, RunSummary, ScanReport, Severity
from rlprobe.gate import GateVerdict
from rlprobe.report import account, escape, incident_text, verdict
from rlprobe.report.life import alive
from rlprobe.report.lines import SEVERITY_STYLES, VERDICT_STYLES, flow, paint, plain, wrap
from rlprobe.report.reporter import Layout
from rlprobe.scan.applicable import WHY as NOT_OF_PAIRS

_WORDS = {"pass": "PASS", "warn": "WARN", "fail": "FAIL", "not_judged": "NOT JUDGED"}
_FULL = 8  # incidents told in full; the rest get one line each
_RESOLVED = 5  # incidents of earlier attempts that are told; the rest are counted
_PROBLEMS = 5


def reporter(layout: Layout) -> TextReporter:
    """The reporter for `--format text`."""
    return TextReporter(layout)


class TextReporter:
    """Screens for people."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def render(self, reports: Sequence[ScanReport], judged: GateVerdict | None = None) -> str:
        """One screen per report, an empty line between them; the gate's word comes last."""
        screens = [paint(self._screen(report), self.layout) for report in reports]
        if judged is None:
            return ("" if self.layout.quiet else "\n").join(screens)
        word = paint(_gate(judged, self.layout.columns), self.layout)
        return word if self.layout.quiet else "\n".join([*screens, word])

    def _screen(self, report: ScanReport) -> list[Text]:
        width = self.layout.columns
        if self.layout.quiet:
            return [_verdict(report).append(f"   {escape.name(report.path, 60)}")]
        harmful = _harmful(report)
        gap = [Text()] if harmful else []
        lines = [*_header(report, width), *gap, *_wrapped(_verdict(report), width)]
        for incident in harmful[:_FULL]:
            lines += [Text(), *incident_text.block(report, incident, width)]
        lines += _rest(report, harmful[_FULL:])
        lines += _infos(report, width)
        lines += _resolved(report, width)
        lines += [*gap, *_account(report, width), *_coverage(report, width)]
        return [*lines, *_remarks(report, width)]


def _gate(judged: GateVerdict, width: int) -> list[Text]:
    lines = [Text(verdict.WORDS[judged.verdict], style=VERDICT_STYLES[judged.verdict])]
    for reason in verdict.reasons(judged):
        lines += plain(wrap(escape.line(reason), width, first="  ", rest="    "))
    return lines


def _harmful(report: ScanReport) -> list[Incident]:
    """The incidents that get a block or a headline; the others get a line."""
    return [
        incident
        for incident in report.incidents
        if incident.severity > Severity.INFO and incident.resolved_by is None
    ]


def _over(report: ScanReport) -> list[Incident]:
    """The incidents that a later attempt got past."""
    return [incident for incident in report.incidents if incident.resolved_by is not None]


def _header(report: ScanReport, width: int) -> list[Text]:
    first, *rest = flow(_facts(report), width)
    path = len(escape.name(report.path, 60))
    line = Text(first)
    line.stylize("bold", 0, path)
    return [line, *plain(rest)]


def _facts(report: ScanReport) -> list[str]:
    run = report.run
    facts = [escape.name(report.path, 60), *_kind(run)]
    if run.first_step is not None:
        facts.append(numbers.steps(run.first_step, run.last_step))
    if run.source != "recording":
        facts.append(numbers.plural(run.rows, "row"))
    if run.ranks:
        facts.append(numbers.plural(run.ranks, "rank"))
    if len(run.attempts) > (run.source != "recording"):
        facts.append(numbers.plural(len(run.attempts), "attempt"))
    facts += [] if run.pulse is None else [alive(run.pulse, time.time())]
    return [*facts, *(escape.line(note) for note in run.notes)]


def _kind(run: RunSummary) -> list[str]:
    if run.source != "recording":
        return [f"format: {escape.name(run.source)}"]
    algorithm = escape.name(run.algorithm.upper()) if run.algorithm else ""
    framework = _title(run.framework) if run.framework else ""
    if algorithm and framework:
        return [f"{algorithm} ({framework})"]
    return [algorithm or framework] if algorithm or framework else []


def _title(framework: str) -> str:
    if framework == naming.every()["generic"].framework:  # which is none
        return ""
    known = naming.every().get(framework)
    return known.title if known else escape.name(framework)


def _verdict(report: ScanReport) -> Text:
    line = Text(_WORDS[report.verdict], style=VERDICT_STYLES[report.verdict])
    return line.append(f"   {_because(report)}", style="not bold default")


def _because(report: ScanReport) -> str:
    if report.verdict == "not_judged":
        return escape.line(report.reason)
    harmful = _harmful(report)
    if harmful:
        ended = ", ended the run" if any(incident.ended_run for incident in harmful) else ""
        return numbers.plural(len(harmful), "incident") + ended + _and_resolved(report)
    checks = sum(item.state in {"clean", "fired"} for item in report.coverage)
    if _over(report):
        return f"nothing left in {numbers.plural(checks, 'check')}{_and_resolved(report)}"
    return f"nothing found in {numbers.plural(checks, 'check')}"


def _and_resolved(report: ScanReport) -> str:
    over = _over(report)
    return f", {numbers.plural(len(over), 'incident')} resolved by a later attempt" if over else ""


def _wrapped(line: Text, width: int) -> list[Text]:
    if len(line.plain) <= width:
        return [line]
    first, *rest = wrap(line.plain, width, rest="  ")
    return [line[: len(first)], *plain(rest)]


def _rest(report: ScanReport, incidents: Sequence[Incident]) -> list[Text]:
    if not incidents:
        return []
    heads = [incident_text.headline(report, incident) for incident in incidents]
    return [Text(), Text(f"{len(heads)} more:"), *heads]


def _infos(report: ScanReport, width: int) -> list[Text]:
    lines: list[Text] = []
    for incident in report.incidents:
        if incident.severity > Severity.INFO or incident.resolved_by is not None:
            continue
        root = report.finding(incident.root)
        said = f"info   {root.detector} from step {numbers.count(root.first_bad_step)}: "
        first, *rest = wrap(said + escape.line(root.summary), width, rest="       ")
        line = Text(first)
        line.stylize(SEVERITY_STYLES["info"], 0, 4)
        lines += [line, *plain(rest)]
    return [Text(), *lines] if lines and _harmful(report) else lines


def _resolved(report: ScanReport, width: int) -> list[Text]:
    """What a later attempt got past: the worst in a line or two each, the others counted."""
    over = _over(report)
    lines: list[Text] = []
    for incident in over[:_RESOLVED]:
        root = report.finding(incident.root)
        more = numbers.plural(len(incident.chain) - 1, "consequence")
        more = f", with {more}" if len(incident.chain) > 1 else ""
        start = f"resolved   {incident.severity.label} {escape.name(root.detector)} of attempt "
        where = f"{root.attempt} from step {numbers.count(root.first_bad_step)}{more}"
        by = f"; resolved by attempt {incident.resolved_by}: {escape.line(root.summary)}"
        first, *rest = wrap(f"{start}{where}{by}", width, rest=" " * 11)
        line = Text(first)
        line.stylize("green", 0, 8)
        lines += [line, *plain(rest)]
    if len(over) > _RESOLVED:
        lines.append(Text(f"{'':11}… and {len(over) - _RESOLVED} more resolved"))
    return [Text(), *lines] if lines and _harmful(report) else lines


def _coverage(report: ScanReport, width: int) -> list[Text]:
    checked = sum(item.state in {"clean", "fired"} for item in report.coverage)
    sentences = []
    if report.verdict in {"warn", "fail"}:
        sentences.append(f"Checked {checked} of {len(report.coverage)}.")
    other = [item for item in report.coverage if item.reason == NOT_OF_PAIRS]
    for state, opening in (
        ("not_checked", "Not checked"),
        ("inconclusive", "Too little data"),
        ("failed", "Failed"),
    ):
        items = [item for item in report.coverage if item.state == state and item not in other]
        if items:
            sentences.append(f"{opening}: {_by_reason(items)}.")
    lines = wrap(" ".join(sentences), width) if sentences else []
    return plain([*_not_applicable(len(other), width), *lines])


def _not_applicable(count: int, width: int) -> list[str]:
    """What the catalogue has that is not of this training; the names are in the JSON report."""
    if not count:
        return []
    checks = numbers.plural(count, "check")
    why = "training on pairs generates none; length bias: pairs are logged without their lengths"
    return wrap(f"Not applicable: {checks} of rollouts ({why}).", width)


def _by_reason(items: Sequence[Coverage]) -> str:
    groups: dict[str, list[str]] = {}
    for item in items:
        groups.setdefault(item.reason, []).append(escape.name(item.detector))
    return ", ".join(
        ", ".join(ids) + (f" ({escape.line(reason)})" if reason else "")
        for reason, ids in groups.items()
    )


def _account(report: ScanReport, width: int) -> list[Text]:
    """How much of the log was understood, and what that does not let one say."""
    sentences = [account.unread(report.run.rows, report.run.unread)]
    if report.reason and report.verdict != "not_judged":
        sentences.insert(0, f"Not judged as a whole: {escape.line(report.reason)}.")
    lines = [line for said in sentences if said for line in wrap(said, width, rest="  ")]
    return plain([*lines, *flow(account.unknown_names(report), width, gap=" ")])


def _remarks(report: ScanReport, width: int) -> list[Text]:
    lines: list[str] = []
    if report.run.health:
        lines += wrap(f"Recorder: {escape.line(report.run.health)}.", width)
    problems = report.problems
    for problem in problems[:_PROBLEMS]:
        said = f"{escape.name(problem.path, 60)}: {escape.line(problem.message)}"
        lines += wrap(said, width, first="Problem: ", rest="  ")
    if len(problems) > _PROBLEMS:
        lines.append(f"  … and {len(problems) - _PROBLEMS} more problems")
    return plain(lines)
