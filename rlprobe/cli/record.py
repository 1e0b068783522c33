"""`rlprobe record -- COMMAND`: run a training command unchanged and record it."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

# The command's own options are not ours: nothing after the first word is interpreted.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}


def record(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The training command, as usual.")
    ],
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory. Default: runs/<command name>-<time>."),
    ] = None,
    scan: Annotated[bool, typer.Option("--scan", help="Scan the recording afterwards.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Scan, and exit 1 if a command that succeeded has findings at or above this.",
        ),
    ] = None,
) -> int:
    """Run a training command unchanged and record it.

    The exit code is the command's own. Inside the command, the Hugging Face Trainer and TRL are
    recorded from the inside; of anything else, what the output tells.
    """
    from rlprobe import launcher
    from rlprobe.config import parse_fail_on

    if fail_on:
        parse_fail_on(fail_on)  # a typo shall not be found out after ten hours
    code, run_dir = launcher.run(command, run)
    if run_dir is None or not (scan or fail_on):
        return code
    verdict = scan_after(run_dir, fail_on)
    return code or (verdict if fail_on else 0)


def scan_after(run_dir: Path, fail_on: str | None) -> int:
    """Scan a finished recording; 1 if the scan fails by `fail_on`, else 0.

    The report goes to standard error: standard output is the command's.
    """
    try:
        scanning = import_module("rlprobe.cli.scan")
    except ModuleNotFoundError:
        return 0
    with contextlib.redirect_stdout(sys.stderr):
        verdict = scanning.scan([str(run_dir)], fail_on=fail_on or "critical")
    return 1 if verdict else 0
