"""`rlprobe ls`: the recordings in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options
from rlprobe.exit_codes import PASSED, UNREADABLE


def ls(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path(),
    format_: options.TextOrJson = "text",
    output: options.Output = None,
) -> int:
    """List the recordings in a directory.

    What they are, how far they came, how they ended.
    """
    from rlprobe.cli.output import complain, emit, note_problems
    from rlprobe.errors import InputError
    from rlprobe.report import listing
    from rlprobe.store.compaction import footprint
    from rlprobe.store.layout import recordings_in
    from rlprobe.store.recording import Recording

    infos, sizes, unreadable = [], [], False
    for path in recordings_in(directory):
        try:
            recording = Recording(path)
            infos.append(recording.info)
            note_problems(recording.problems)
            sizes.append(footprint(path).bytes)
        except InputError as error:
            complain(error)
            unreadable = True
    if not infos and not unreadable:
        raise InputError(
            f"Couldn't find a recording in '{directory}': no run.json there or one level below it",
            hint="Give the directory that holds your runs.",
        )
    render = listing.recordings_json if format_ == "json" else listing.recordings
    emit(render(infos, sizes), output)
    return UNREADABLE if unreadable else PASSED
