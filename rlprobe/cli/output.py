"""Where results and chatter go: results to stdout or a file, everything else to stderr."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rlprobe import environment
from rlprobe.errors import RlprobeError, UsageError
from rlprobe.numbers import plural
from rlprobe.report import escape
from rlprobe.report.reporter import Layout

if TYPE_CHECKING:
    from rlprobe.values import Problem

_PROBLEMS = 20


def layout(
    output: Path | None = None,
    *,
    no_color: bool = False,
    several: bool = False,
    quiet: bool = False,
    stream: TextIO | None = None,
) -> Layout:
    """How to lay out a result that goes to `output`, or else to `stream` (stdout)."""
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    colour = output is None and (stream or sys.stdout).isatty() and not plain
    width = shutil.get_terminal_size((90, 24)).columns
    return Layout(width=width, colour=colour, several=several, quiet=quiet)


def emit(text: str, output: Path | None = None) -> None:
    """Write a result to a file, or else to stdout. A reader that went away is no error.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is not None:
        _save(text, output)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence()


def _save(text: str, output: Path) -> None:
    try:
        output.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"Couldn't write '{output}': {error.strerror}", hint="Choose a file you can write."
        ) from error


def silence() -> None:
    """Send what is still to be flushed to nowhere: nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def note(message: str) -> None:
    """A word on stderr."""
    print(escape.line(message), file=sys.stderr)


def note_problems(problems: Sequence[Problem]) -> None:
    """What could not be read, on stderr: the first few, and how many more."""
    for problem in problems[:_PROBLEMS]:
        note(f"{problem.path}: {problem.message}")
    if len(problems) > _PROBLEMS:
        note(f"… and {plural(len(problems) - _PROBLEMS, 'more problem')}")


def complain(error: RlprobeError) -> None:
    """Say on stderr what could not be done, and what to try; RLPROBE_DEBUG=1 adds the traceback."""
    if os.environ.get(environment.DEBUG):
        for line in escape.block("".join(traceback.format_exception(error))):
            print(line, file=sys.stderr)
    first, *rest = escape.block(str(error))
    print(f"rlprobe: {first}", *rest, sep="\n", file=sys.stderr)
    if error.hint:
        note(f"try: {error.hint}")
