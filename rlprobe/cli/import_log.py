"""`rlprobe import`: a foreign log as a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options


def import_log(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Any known log; several are parts of one run.",
            callback=options.named,
        ),
    ],
    run: Annotated[
        Path, typer.Option("--run", metavar="DIR", help="The recording to write: a new directory.")
    ],
    step_key: options.StepKey = None,
    allow_large: options.AllowLarge = False,
) -> int:
    """Write a foreign log as a recording.

    Metrics, events and rollouts are written, with the log's own gaps. A log of several runs (an
    MLflow store, a Trackio project) becomes a directory of recordings.
    """
    from rlprobe.cli.importing import opened, recorded
    from rlprobe.cli.output import emit, note_problems
    from rlprobe.store import limits

    limits.lift(allow_large)
    for found, directory in opened(logs, run, step_key):
        said = recorded(found, directory)
        note_problems(found.problems)  # some are known only once all is read
        emit(f"{said}\n")
    return 0
