"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="A recording, a directory of them, or any known log."),
]
OnePath = Annotated[str, typer.Argument(metavar="PATH", help="A recording or any known log.")]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="text, json or markdown.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of stdout."),
]
FailOn = Annotated[
    str,
    typer.Option("--fail-on", metavar="SEVERITY", help="critical, warning, info or never."),
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
