"""Lines for a terminal: wrapped here, styled with `rich.text.Text`, painted in one place."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from rlprobe.report.reporter import Layout

SEVERITY_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
VERDICT_STYLES = {
    "pass": "bold green",
    "warn": "bold yellow",
    "fail": "bold red",
    "not_judged": "bold magenta",
}


def wrap(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Break already escaped text into lines; `first` and `rest` begin them."""
    return textwrap.wrap(
        text,
        max(width, len(rest) + 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def flow(parts: Iterable[str], width: int, *, gap: str = "   ", rest: str = "  ") -> list[str]:
    """Parts side by side, a new line where the next one does not fit."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(gap) + len(part) <= width:
            lines[-1] += gap + part
        else:
            lines.append((rest if lines else "") + part)
    return lines


def labelled(label: str, text: str, width: int, *, indent: int = 2, column: int = 12) -> list[Text]:
    """A label in its column and text wrapped beside it."""
    prefix = f"{'':{indent}}{label:<{column - indent}}"
    lines = wrap(text, width, first=prefix, rest=" " * column)
    return [Text(lines[0]), *plain(lines[1:])]


def plain(lines: Iterable[str]) -> list[Text]:
    """Unstyled lines."""
    return [Text(line) for line in lines]


def paint(lines: Sequence[Text], layout: Layout) -> str:
    """The lines as one string; escape codes only where colour is wanted."""
    if not layout.colour:
        return "".join(f"{line.plain.rstrip()}\n" for line in lines)
    console = Console(
        file=io.StringIO(),
        width=layout.columns,
        force_terminal=True,
        color_system="standard",
        markup=False,
        emoji=False,
        highlight=False,
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    file = console.file
    assert isinstance(file, io.StringIO)  # noqa: S101 - for the type checker: made above
    return file.getvalue()
