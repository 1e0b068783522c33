"""`rlprobe gate`: a scan judged by the project's policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from rlprobe.cli import options

FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        metavar="SEVERITY",
        help="critical, warning, info or never; default: the policy's.",
    ),
]


def gate(
    paths: options.Paths,
    *,
    format_: options.Format = "text",
    output: options.Output = None,
    fail_on: FailOn = None,
    config: options.ConfigFile = None,
    detectors: options.Detectors = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Judge runs by the project's policy: the exit code is the verdict."""
    from rlprobe.cli.output import emit, layout
    from rlprobe.cli.scanning import configuration, places, scan_all
    from rlprobe.config import parse_fail_on
    from rlprobe.gate import judge
    from rlprobe.report import verdict

    settings = configuration(config, detectors=detectors)
    policy = settings.gate
    if fail_on is not None:
        policy = replace(policy, fail_on=parse_fail_on(fail_on))
    wanted = places(paths)
    shape = layout(output, no_color=no_color, several=len(wanted) > 1, quiet=quiet)
    write = verdict.writer(format_, shape)
    scans = scan_all(wanted, settings)
    judged = judge(scans.reports, policy, settings.waivers)
    if scans.reports:
        emit(write(judged, scans.reports, scans.runs), output)
    return scans.exit_code(judged.exit_code)
