"""`rlprobe record COMMAND`: run a training command unchanged and record it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options
from rlprobe.errors import UsageError
from rlprobe.exit_codes import COULD_NOT_JUDGE, PASSED


def record(
    command: options.Command,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory. Default: runs/<command name>-<time>."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Group that may read the recording, besides its owner."),
    ] = None,
    say_every: Annotated[
        float | None,
        typer.Option(
            "--say-every",
            metavar="SECONDS",
            min=0.1,
            help="Say every so many seconds, on standard error, how much is recorded.",
        ),
    ] = None,
    scan: Annotated[bool, typer.Option("--scan", help="Scan the recording afterwards.")] = False,
    fail_on: Annotated[
        str | None,
        options.fail_on("; scan, and exit as `rlprobe scan` does if the command succeeded"),
    ] = None,
) -> int:
    """Run a training command unchanged and record it.

    Options of rlprobe come before the command; from its first word on everything is the command's.
    The exit code is the command's own. Inside the command, the Hugging Face Trainer and TRL are
    recorded, and what training tells its trackers: wandb, TensorBoard, MLflow, Lightning,
    Stable-Baselines3, Ray and others, also where they are off; of anything else, what the output
    tells. The last line says what was recorded, and where.

    The command is left alone: its output is passed on as it is and goes on where `rlprobe record`
    is killed, and where nothing can be recorded (a full disk) it runs unrecorded, which is said.
    Passwords and tokens are left out of the recording, which is for its owner's eyes alone.
    """
    from rlprobe import launcher
    from rlprobe.config import parse_fail_on
    from rlprobe.store import modes

    if fail_on is not None:
        parse_fail_on(fail_on)  # a typo shall not come to light after ten hours
    if group is not None and not modes.is_group(group):
        raise UsageError(
            f"Couldn't let the group '{group}' read the recording: there is no such group",
            hint="Name one that `id` shows.",
        )
    code, run_dirs = launcher.run(command, run, group=group, say_every=say_every)
    if not run_dirs:
        return code or (COULD_NOT_JUDGE if fail_on else PASSED)
    if not (scan or fail_on):
        return code
    judged = scan_after(run_dirs, fail_on or "never")
    return code or (judged if fail_on else PASSED)


def scan_after(run_dirs: Sequence[Path], fail_on: str) -> int:
    """Scan finished recordings: the exit code of `rlprobe scan`, whatever goes wrong.

    The report goes to standard error: standard output is the command's.
    """
    from rlprobe.cli import main

    with contextlib.redirect_stdout(sys.stderr):
        return main(["scan", "--fail-on", fail_on, "--", *map(str, run_dirs)])
