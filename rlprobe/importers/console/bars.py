"""Progress bars in a line: where they stand, and the metrics that they carry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import metrics_of, pairs_in
from rlprobe.importers.console.steps import BAR, Bar, Row, bar_of

_LONGEST = 2_000  # of what is looked at before a bar
_EPOCH = re.compile(r"\bepoch:?\s?\[?(?P<at>\d{1,9})(?P<of>\s?/\s?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One bar as it was drawn.

    Attributes:
        bar: where it stands, if it may be that of the training.
        step: the step of its metrics, counted on over epochs.
        metrics: those that it carries.
    """

    bar: Bar | None
    step: int
    metrics: Row


def without_bars(text: str) -> tuple[str, list[Drawn]]:
    """A line without its progress bars, and these."""
    parts: list[str] = []
    drawn: list[Drawn] = []
    position = 0
    for match in BAR.finditer(text):
        bar = bar_of(match)
        desc = match["desc"]
        start = match.start()
        if "]" in desc or "]:" in text[max(0, start - 3) : start]:
            desc = ""
        carried = len(parts)
        parts.append(text[position:start])
        position = match.end()
        if bar is None and ("/s" not in match["unit"] and "s/" not in match["unit"]):
            continue
        before = text[max(0, start - _LONGEST) : start + len(match["desc"])]
        behind = _measured(match["unit"].partition(",")[2])
        described = {} if behind else _measured(_description(before))
        if described:
            parts[carried] = ""
        drawn.append(Drawn(bar, _step(desc, match), behind or described))
    parts.append(text[position:])
    return " ".join(part for part in parts if part.strip()), drawn


def _step(desc: str, match: re.Match[str]) -> int:
    """The place in the epoch, counted on where the bar tells the epoch."""
    at, of = int(match["at"]), int(match["of"])
    epoch = _EPOCH.search(desc)
    if epoch is None:
        return at
    return (int(epoch["at"]) - (epoch["of"] is not None)) * of + at


def _description(before: str) -> str:
    """What stands before a bar: in brackets, or all of it; nothing where it is a row of its own."""
    inside = before.rpartition("[")[2] if "[" in before else before
    return "" if "{" in inside or "'" in inside else inside.partition("]")[0].rstrip(": ")


def _measured(text: str) -> Row:
    """Metrics of a bar, if some of them are known."""
    row = metrics_of(pairs_in(text)) if "=" in text or ":" in text else {}
    return row if console_line.measures(row) else {}
