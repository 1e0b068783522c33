"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import typer
from typer.models import OptionInfo

from rlprobe.cli.plain_values import check_path
from rlprobe.report.reporter import FORMATS, one_of

Given = TypeVar("Given", str, list[str])


def formats(*known: str) -> OptionInfo:
    """`--format`, checked before anything is read."""

    def check(word: str) -> str:
        one_of(word, known)
        return word

    words = f"{', '.join(known[:-1])} or {known[-1]}."
    option: OptionInfo = typer.Option("--format", metavar="FORMAT", help=words, callback=check)
    return option


def fail_on(more: str = "") -> OptionInfo:
    """`--fail-on`; what the word means is `rlprobe.config.parse_fail_on`'s."""
    words = f"critical, warning, info or never{more}."
    option: OptionInfo = typer.Option("--fail-on", metavar="SEVERITY", help=words)
    return option


def named(given: Given) -> Given:
    """Paths as they are given; an empty one is a variable that was not set, not this directory."""
    for path in [given] if isinstance(given, str) else given:
        check_path(path)
    return given


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...",
        help="A recording, a directory of them, or any known log.",
        callback=named,
    ),
]
OnePath = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A recording or any known log.", callback=named),
]
Format = Annotated[str, formats(*FORMATS)]
TextOrJson = Annotated[str, formats("text", "json")]
Command = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND...", help="The training command, as usual; `--` may come before it."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of stdout."),
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="ID,...", help="Only these detectors."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="ID,...", help="All detectors but these."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Default: rlprobe.toml, or [tool.rlprobe] in pyproject.toml.",
    ),
]
Detectors = Annotated[
    list[Path] | None,
    typer.Option("--detectors", metavar="DIR", help="A folder with detectors of your own."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The verdict alone.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour, as with NO_COLOR.")]
AllowLarge = Annotated[
    bool,
    typer.Option(
        "--allow-large",
        help="Read what holds more rows, text or columns than an honest file of its size does. "
        "Only for files that you trust.",
    ),
]
StepKey = Annotated[
    str | None,
    typer.Option(
        "--step-key",
        metavar="KEY",
        help="Number the rows of a log by this counter (samples, tokens, …). Default: the one that "
        "counts updates best.",
    ),
]
