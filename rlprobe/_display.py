"""How a finding and a report look in a REPL and in a notebook.

All text in them may come from a run or from a model: it is made visible, and escaped in HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlprobe import numbers
from rlprobe._visible import line, start

if TYPE_CHECKING:
    from rlprobe.findings import Evidence, Excerpt, Finding, Incident, ScanReport

_NAME = 80  # characters of a key or path
_SUMMARY = 100
_ROWS = 20  # of evidence, of incidents
_COLOURS = {
    "critical": "#c0392b",
    "warning": "#b9770e",
    "info": "#2471a3",
    "fail": "#c0392b",
    "warn": "#b9770e",
    "pass": "#1e8449",
    "not_judged": "#7d3c98",
}
_WIDTH, _HEIGHT = 360, 60  # pixels of a picture


def finding_repr(finding: Finding) -> str:
    """`<Finding KL_BLOWUP@120/kl_mean critical, ongoing, confidence 0.97: 'KL rose …'>`."""
    facts = f"{finding.severity.label}, {_state(finding)}"
    summary = start(finding.summary, _SUMMARY)
    return f"<Finding {start(finding.key, _NAME)} {facts}: '{summary}'>"


def finding_text(finding: Finding) -> str:
    """What, since when, the numbers, what to try: a few lines."""
    lines = [_headline(finding), f"  {line(finding.summary)}"]
    lines += [f"  evidence: {_in_words(item)}" for item in finding.evidence[:_ROWS]]
    lines += _more(finding.evidence, "  … and {} more")
    return "\n".join([*lines, *(f"  try: {line(remedy)}" for remedy in finding.remedies)])


def finding_html(finding: Finding) -> str:
    """The same with its picture, as HTML that needs nothing else."""
    parts = [
        f"<p>{_coloured(finding.severity.label)} <b>{_safe(_headline(finding))}</b></p>",
        f"<p>{_safe(finding.summary)}</p>",
        _picture(finding.excerpt),
        _table(("metric", "step", "value", "compared with", "rank", ""), _numbers(finding)),
        *(_tag("p", text) for text in _more(finding.evidence, "… and {} more")),
        _listed(finding.remedies),
    ]
    return _page(parts)


def report_repr(report: ScanReport) -> str:
    """`<ScanReport 'runs/x': fail, 2 incidents, 5 findings, 30 of 41 checked>`."""
    return f"<ScanReport '{start(report.path, _NAME)}': {_facts(report)}>"


def report_text(report: ScanReport) -> str:
    """The verdict, and each incident in a line or two."""
    lines = [f"{start(report.path, _NAME)}: {_facts(report)}"]
    for incident in report.incidents[:_ROWS]:
        root = report.finding(incident.root)
        head = _headline(root, report.lasting(incident))
        lines += [f"  {incident.severity.label}: {head}", f"    {line(root.summary)}"]
    lines += _more(report.incidents, "  … and {} more")
    return "\n".join([*lines, *(f"  {said}" for said in _doubt(report))])


def report_html(report: ScanReport) -> str:
    """The same as a table, as HTML that needs nothing else."""
    head = ("", "what", "first bad step", "summary", "then", "restore")
    rows = [_incident(report, incident) for incident in report.incidents[:_ROWS]]
    parts = [
        f"<p>{_coloured(report.verdict)} <b>{_safe(report.path)}</b> {_safe(_facts(report))}</p>",
        _table(head, rows),
        *(_tag("p", text) for text in _more(report.incidents, "… and {} more")),
        *(_tag("p", text) for text in _doubt(report)),
    ]
    return _page(parts)


# --- words ----------------------------------------------------------------------------------------


def _state(finding: Finding, lasting: Sequence[Finding] = ()) -> str:
    word = finding.state.replace("_", " ")
    if lasting:
        word = "not recovered"
    elif finding.state == "recovered":
        word += f" after {numbers.count(finding.last_bad_step)}"
    if finding.attempt > 1 or finding.resolved_by is not None:
        word += f", attempt {finding.attempt}"
    if finding.resolved_by is not None:
        word += f", resolved by attempt {finding.resolved_by}"
    return f"{word}, confidence {numbers.confidence(finding.confidence)}"


def _what(finding: Finding) -> str:
    return finding.detector + (f" ({finding.variant})" if finding.variant else "")


def _headline(finding: Finding, lasting: Sequence[Finding] = ()) -> str:
    since = f"first bad step {numbers.count(finding.first_bad_step)}"
    return f"{start(_what(finding), _NAME)}, {since}, {_state(finding, lasting)}"


def _in_words(item: Evidence) -> str:
    words = f"{start(item.metric, _NAME)} {numbers.number(item.value)}"
    words += "" if item.step is None else f" at step {numbers.count(item.step)}"
    words += "" if item.rank is None else f" on rank {item.rank}"
    words += "" if item.baseline is None else f", compared with {numbers.number(item.baseline)}"
    return words + (f" ({line(item.note)})" if item.note else "")


def _facts(report: ScanReport) -> str:
    checked = sum(item.state in {"clean", "fired"} for item in report.coverage)
    counts = [(report.incidents, "incident"), (report.findings, "finding")]
    coverage = f"{checked} of {len(report.coverage)} checked"
    words = [numbers.plural(len(items), noun) for items, noun in counts]
    return ", ".join([report.verdict.replace("_", " "), *words, coverage])


def _doubt(report: ScanReport) -> list[str]:
    """Why the run was not judged, or not as a whole."""
    whole = "" if report.verdict == "not_judged" else " as a whole"
    return [f"not judged{whole}: {line(report.reason)}"] if report.reason else []


def _more(items: Sequence[object], words: str) -> list[str]:
    return [words.format(len(items) - _ROWS)] if len(items) > _ROWS else []


# --- HTML -----------------------------------------------------------------------------------------


def _safe(text: str) -> str:
    return html.escape(line(text))


def _tag(name: str, text: str) -> str:
    return f"<{name}>{_safe(text)}</{name}>"


def _page(parts: Iterable[str]) -> str:
    """One element; notebooks are told not to read mathematics into its text."""
    return f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _coloured(word: str) -> str:
    return f'<b style="color:{_COLOURS[word]}">{_safe(word.replace("_", " ").upper())}</b>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(_tag(name, cell) for cell in cells)}</tr>"


def _numbers(finding: Finding) -> list[tuple[str, ...]]:
    return [
        (
            item.metric,
            "" if item.step is None else numbers.count(item.step),
            numbers.number(item.value),
            "" if item.baseline is None else numbers.number(item.baseline),
            "" if item.rank is None else str(item.rank),
            item.note,
        )
        for item in finding.evidence[:_ROWS]
    ]


def _listed(remedies: Sequence[str]) -> str:
    return f"<ol>{''.join(_tag('li', text) for text in remedies)}</ol>" if remedies else ""


def _incident(report: ScanReport, incident: Incident) -> tuple[str, ...]:
    root = report.finding(incident.root)
    then = [f"{link.detector} {link.lead:+,}" for link in incident.chain if link.key != root.key]
    restore = incident.restore
    where = "" if restore is None else restore.path or f"step {numbers.count(restore.step)}"
    step = numbers.count(root.first_bad_step)
    return incident.severity.label, _what(root), step, root.summary, ", ".join(then), where


def _picture(excerpt: Excerpt | None) -> str:
    """The excerpt as a line, red from the onset on; a tick at the foot for what is not finite."""
    if excerpt is None or len(excerpt) < 2:
        return ""
    values = excerpt.values.tolist()
    across = [_WIDTH * row / int(excerpt.rows[-1]) for row in excerpt.rows.tolist()]
    onset = across[excerpt.onset]
    lines = [
        _line(across[: excerpt.onset + 1], values[: excerpt.onset + 1], values, "#2471a3"),
        _line(across[excerpt.onset :], values[excerpt.onset :], values, "#c0392b"),
        f'<path d="M{onset:.1f} 0V{_HEIGHT}" stroke="#999" stroke-dasharray="2"/>',
    ]
    span = numbers.steps(int(excerpt.steps[0]), int(excerpt.steps[-1]))
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 -2 {_WIDTH} {_HEIGHT + 4}"'
    return f"<p>{_safe(excerpt.metric)}, {span}<br><svg {size}>{''.join(lines)}</svg></p>"


def _line(
    across: Sequence[float], values: Sequence[float], scale: Sequence[float], colour: str
) -> str:
    finite = [value for value in scale if math.isfinite(value)]
    low, high = min(finite, default=0.0) / 2, max(finite, default=0.0) / 2  # a range may overflow
    path, pen = "", "M"
    for x, value in zip(across, values, strict=True):
        if math.isfinite(value):
            share = (value / 2 - low) / (high - low) if high > low else 0.5
            path += f"{pen}{x:.1f} {_HEIGHT * (1 - share):.1f}"
            pen = "L"
        else:
            path += f"M{x:.1f} {_HEIGHT}v-6"
            pen = "M"
    return f'<path d="{path}" fill="none" stroke="{colour}"/>'
