"""The word of `rlprobe gate`, above or beside the reports it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from rlprobe import schema
from rlprobe.findings import ScanReport
from rlprobe.gate import GateVerdict
from rlprobe.report import escape
from rlprobe.report.json import document, dumps
from rlprobe.report.lines import VERDICT_STYLES, paint, plain, wrap
from rlprobe.report.markdown import MarkdownReporter
from rlprobe.report.reporter import Layout, reporter
from rlprobe.report.text import TextReporter

Write = Callable[[GateVerdict, Sequence[ScanReport]], str]

_WORDS = {"pass": "GATE PASS", "fail": "GATE FAIL", "not_judged": "GATE NOT JUDGED"}


def writer(name: str, layout: Layout) -> Write:
    """What writes a verdict in a format; one that has no place for it holds the reports alone.

    Raises:
        UsageError: there is no such format.
    """
    writers: dict[str, Write] = {
        "text": lambda judged, reports: _text(judged, reports, layout),
        "json": _json,
        "markdown": lambda judged, reports: _markdown(judged, reports, layout),
    }
    if name in writers:
        return writers[name]
    other = reporter(name, layout)
    return lambda _, reports: other.render(reports)


def _text(judged: GateVerdict, reports: Sequence[ScanReport], layout: Layout) -> str:
    lines = [Text(_WORDS[judged.verdict], style=VERDICT_STYLES[judged.verdict])]
    for reason in _reasons(judged):
        said = wrap(escape.line(reason), layout.columns, first="  ", rest="    ")
        lines += plain(said)
    word = paint(lines, layout)
    return word if layout.quiet else f"{TextReporter(layout).render(reports)}\n{word}"


def _reasons(judged: GateVerdict) -> list[str]:
    waived = [f"{root.detector} at step {root.first_bad_step:,}: waived" for root in judged.waived]
    return [*judged.reasons, *waived]


def _json(judged: GateVerdict, reports: Sequence[ScanReport]) -> str:
    return dumps(
        {
            "format_version": schema.REPORT_VERSION,
            "gate": {
                "verdict": judged.verdict,
                "exit_code": judged.exit_code,
                "reasons": list(judged.reasons),
                "failing": [root.key for root in judged.failing],
                "waived": [root.key for root in judged.waived],
            },
            "runs": [document(report) for report in reports],
        }
    )


def _markdown(judged: GateVerdict, reports: Sequence[ScanReport], layout: Layout) -> str:
    reasons = "".join(f"- {escape.markdown(reason)}\n" for reason in _reasons(judged))
    word = f"## {_WORDS[judged.verdict].capitalize()}\n\n{reasons}\n"
    return word if layout.quiet else word + MarkdownReporter(layout).render(reports)
