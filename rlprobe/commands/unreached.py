"""Why no hook gets into what a command starts, as far as its words tell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlprobe.commands import command_line
from rlprobe.commands.starts import Start

_HOOK = "(hook)"  # stands for the folder of the hook: whoever drops it is told


def why(command: Sequence[str]) -> str:
    """The reason in a sentence; empty where the words tell none."""
    try:
        given = {**os.environ, "PYTHONPATH": _HOOK}
        starts = command_line.read(command, given, Path.cwd()).starts
    except (OSError, ValueError):
        return ""
    return next((reason for start in starts if (reason := why_of(start))), "")


def why_of(start: Start) -> str:
    """The same of one program that is started."""
    if start.closed:
        option = start.closed.split()[0]
        return f"{start.closed}, so the hook does not get in (leave {option} out)"
    if start.around.changes:
        return f"the hook does not get in: {'; '.join(start.around.changes)}"
    if start.around.apart:
        return "; ".join([start.around.apart, *start.around.remarks])
    return start.problem if "frozen" in start.problem else ""
