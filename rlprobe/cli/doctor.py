"""`rlprobe doctor COMMAND`: what `rlprobe record COMMAND` would record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options
from rlprobe.exit_codes import COULD_NOT_JUDGE, FAILED, PASSED


def doctor(
    command: options.Command,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory, as for `rlprobe record`."),
    ] = None,
    format_: options.TextOrJson = "text",
    output: options.Output = None,
    no_color: options.NoColor = False,
) -> int:
    """Tell what recording a command would record.

    The command is not run. Its words, scripts of the shell and Python files are read; each Python
    that it would start is asked where its packages are, in the environment that `rlprobe record`
    would give it, and imports none of them. Options of rlprobe come before the command.
    """
    from rlprobe.cli.output import emit, layout
    from rlprobe.doctor import examine
    from rlprobe.report import examination_json, examination_text

    examination = examine(command, run)
    if format_ == "json":
        emit(examination_json.render(examination), output)
    else:
        emit(examination_text.render(examination, layout(output, no_color=no_color)), output)
    if examination.verdict == "unknown" and not examination.obstacle:
        return COULD_NOT_JUDGE
    return PASSED if examination.is_recorded else FAILED
