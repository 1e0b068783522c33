"""The screen of `rlprobe doctor`: the answer first, then what, what not, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from rlprobe.doctor.examination import Examination
from rlprobe.report import escape
from rlprobe.report.lines import paint, plain
from rlprobe.report.reporter import Layout

_STYLES = {
    "inside": "bold green",
    "output": "bold yellow",
    "unknown": "bold magenta",
    "nothing": "bold red",
}
_WORDS = {"inside": "RECORDED", "output": "OUTPUT ONLY", "unknown": "NOT KNOWN"}
_NOTHING = "NOT RECORDED"


def render(examination: Examination, layout: Layout) -> str:
    """The screen."""
    width = layout.columns
    word, style = _WORDS.get(examination.verdict, _NOTHING), _STYLES[examination.verdict]
    if examination.obstacle:
        word, style = _NOTHING, _STYLES["nothing"]
    first, *rest = _wrapped(f"{word}   {escape.line(examination.summary)}", width, "")
    answer = Text(first)
    answer.stylize(style, 0, len(word))
    lines = [Text(escape.middle(escape.line(examination.command), width), style="bold")]
    lines += [answer, *plain(rest)]
    for heading, sentences in (
        ("will be recorded", examination.will),
        ("will not be recorded", examination.will_not),
        ("to do", examination.to_do),
        ("looked at", examination.looked_at),
    ):
        lines += _section(heading, sentences, width)
    return paint(lines, layout)


def _section(heading: str, sentences: Sequence[str], width: int) -> list[Text]:
    if not sentences:
        return []
    lines = [Text(heading, style="bold")]
    for sentence in sentences:
        lines += plain(_wrapped(escape.line(sentence), width, "  "))
    return lines


def _wrapped(text: str, width: int, first: str) -> list[str]:
    """Lines in which no path is broken: people copy them."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
