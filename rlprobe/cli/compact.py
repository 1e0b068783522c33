"""`rlprobe compact`: fewer, larger files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options


def compact(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A recording.")],
    allow_large: options.AllowLarge = False,
) -> int:
    """Merge a recording's files into fewer, larger ones.

    The shards of every finished writer are merged; a writer that is alive is left alone.
    """
    from rlprobe.cli.output import emit, note, note_problems
    from rlprobe.numbers import plural, size
    from rlprobe.store import limits
    from rlprobe.store.compaction import Footprint
    from rlprobe.store.compaction import compact as merge
    from rlprobe.store.recording import Recording

    def said(footprint: Footprint) -> str:
        return f"{plural(footprint.files, 'file')}, {size(footprint.bytes)}"

    limits.lift(allow_large)
    done = merge(Recording(run).path)
    if done.leftovers:
        note(f"deleted: {plural(done.leftovers, 'temporary file')} of writers that are gone")
    for writer in done.busy:
        note(f"left alone: {writer}")
    note_problems(done.problems)
    emit(f"{said(done.before)} -> {said(done.after)}\n")
    return 0
