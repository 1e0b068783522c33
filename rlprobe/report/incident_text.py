"""One incident as a block of lines: what, since when, what it led to, what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.text import Text

from rlprobe import numbers
from rlprobe.findings import Finding, Incident, Link, ScanReport, Severity
from rlprobe.report import escape
from rlprobe.report.lines import SEVERITY_STYLES, labelled, plain, wrap
from rlprobe.report.sparkline import Onset, around
from rlprobe.scan.excerpts import CELLS

_NAME = 28  # columns that a metric name may take
_CHAIN = 12  # consequences shown before "… and n more"


def block(report: ScanReport, incident: Incident, width: int) -> list[Text]:
    """Everything there is to say about one incident."""
    root = report.finding(incident.root)
    return [
        headline(report, incident),
        *plain(wrap(escape.line(root.summary), width, first="  ", rest="  ")),
        *_picture(root, width),
        *_consequences(report, incident, width),
        *_lasting(report, incident, width),
        *_restore(incident, root, width),
        *_remedies(root, width),
        *_look(report, root, width),
    ]


def headline(report: ScanReport, incident: Incident) -> Text:
    """`CRITICAL  ADVANTAGE_NOISE   first bad step 1,428   confidence 0.97`."""
    finding = report.finding(incident.root)
    word = incident.severity.label
    line = Text(word.upper(), style=SEVERITY_STYLES[word])
    line.append(f"  {escape.name(finding.detector)}", style="bold")
    if finding.variant:
        line.append(f" ({escape.name(finding.variant)})")
    line.append(f"   first bad step {numbers.count(finding.first_bad_step)}")
    if len(report.run.attempts) > 1 and finding.attempt:
        line.append(f" of attempt {finding.attempt}")
    if report.lasting(incident):
        line.append(", not recovered")
    elif finding.state == "recovered":
        line.append(f", recovered after {numbers.count(finding.last_bad_step)}")
    line.append(f"   confidence {numbers.confidence(finding.confidence)}")
    return line


def _picture(finding: Finding, width: int) -> list[Text]:
    excerpt = finding.excerpt
    if excerpt is None or len(excerpt) < 2:
        return []
    cells = max(CELLS[0], min(CELLS[-1], width - 50))
    onset = around(excerpt, finding.last_bad_step, cells)
    return _drawn(excerpt.metric, onset, finding.first_bad_step)


def _drawn(metric: str, onset: Onset, first_bad: int) -> list[Text]:
    head = f"  {escape.name(metric, _NAME)}   {numbers.number(onset.before)} "
    span = f"{numbers.count(onset.first_step)} … {numbers.count(onset.last_step)}"
    line = Text(f"{head}{onset.line} {numbers.number(onset.worst)}   {span}")
    line.stylize("cyan", len(head), len(head) + len(onset.line))
    line.stylize("red", len(head) + onset.caret, len(head) + len(onset.line))
    return [Text(), line, Text(f"{'':{len(head) + onset.caret}}^ {numbers.count(first_bad)}")]


def _consequences(report: ScanReport, incident: Incident, width: int) -> list[Text]:
    links = [link for link in incident.chain if link.key != incident.root]
    lines: list[Text] = []
    for index, link in enumerate(links[:_CHAIN]):
        label = "then" if index == 0 else ""
        lines.append(_consequence(link, report.finding(link.key), label, width))
    if len(links) > _CHAIN:
        lines.append(Text(f"{'':12}… and {len(links) - _CHAIN} more"))
    return lines


def _lasting(report: ScanReport, incident: Incident, width: int) -> list[Text]:
    """What has not recovered although the root has."""
    names = dict.fromkeys(escape.name(item.detector) for item in report.lasting(incident))
    return labelled("lasts", ", ".join(names), width) if names else []


def _consequence(link: Link, finding: Finding, label: str, width: int) -> Text:
    lead = f"{link.lead:+,}"
    prefix = f"  {label:<10}{lead:<6} {escape.name(link.detector, 22):<22} "
    return Text(prefix + escape.start(_in_short(finding), max(16, width - len(prefix))))


def _in_short(finding: Finding) -> str:
    """`kl_mean 0.08 -> 1.84` where the finding has a picture, else the start of the summary."""
    excerpt = finding.excerpt
    if excerpt is None:
        return finding.summary
    onset = around(excerpt, finding.last_bad_step)
    if numbers.number(onset.before) == numbers.number(onset.worst):
        return finding.summary
    return f"{escape.name(excerpt.metric, _NAME)} {numbers.change(onset.before, onset.worst)}"


def _restore(incident: Incident, root: Finding, width: int) -> list[Text]:
    restore = incident.restore
    if restore is None:
        return _no_restore(incident, width)
    before = numbers.plural(root.first_bad_step - restore.step, "step")
    where = escape.name(restore.path, 60) if restore.path else f"step {numbers.count(restore.step)}"
    parts = [f"{where}, {before} before"]
    if restore.has:
        parts.append(f"has {_listed(restore.has)}")
    if restore.lacks:
        parts.append(f"lacks {_listed(restore.lacks)}")
    return labelled("restore", "; ".join(parts), width)


def _no_restore(incident: Incident, width: int) -> list[Text]:
    if incident.severity < Severity.CRITICAL:
        return []
    if incident.last_good_step is None:
        return labelled("restore", "nothing: bad from the first logged step", width)
    good = numbers.count(incident.last_good_step)
    return labelled("restore", f"no checkpoint recorded; last good step {good}", width)


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(escape.name(part) for part in parts)


def _remedies(root: Finding, width: int) -> list[Text]:
    lines: list[Text] = []
    for index, remedy in enumerate(root.remedies):
        label = "try" if index == 0 else ""
        number = f"{index + 1}. " if len(root.remedies) > 1 else ""
        first = f"  {label:<10}{number}"
        lines += plain(wrap(escape.line(remedy), width, first=first, rest=" " * len(first)))
    return lines


def _look(report: ScanReport, root: Finding, width: int) -> list[Text]:
    if not root.onset_logged:
        return []
    command = f"rlprobe show {shlex.quote(report.path)} --step {root.first_bad_step}"
    if 0 < root.attempt < max((item.number for item in report.run.attempts), default=1):
        command += f" --attempt {root.attempt}"
    return labelled("look", escape.line(command), max(width, 200))
