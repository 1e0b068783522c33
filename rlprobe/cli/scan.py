"""`rlprobe scan`: what is wrong with a run."""

from __future__ import annotations

from typing import Annotated

from rlprobe.cli import options


def scan(
    paths: options.Paths,
    *,
    format_: options.Format = "text",
    output: options.Output = None,
    fail_on: Annotated[str, options.fail_on()] = "critical",
    select: options.Select = None,
    ignore: options.Ignore = None,
    config: options.ConfigFile = None,
    detectors: options.Detectors = None,
    step_key: options.StepKey = None,
    allow_large: options.AllowLarge = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run the catalogue over runs: what went wrong, and since when.

    The report holds findings with their first bad steps, incidents and coverage.
    """
    from rlprobe import gate
    from rlprobe.cli.output import emit, layout
    from rlprobe.cli.scanning import configuration, places, scan_all
    from rlprobe.config import GatePolicy, parse_fail_on
    from rlprobe.report.reporter import reporter
    from rlprobe.store import limits

    limits.lift(allow_large)
    policy = GatePolicy(fail_on=parse_fail_on(fail_on))
    wanted = places(paths)
    shape = layout(output, no_color=no_color, several=len(wanted) > 1, quiet=quiet)
    writer = reporter(format_, shape)
    scans = scan_all(wanted, configuration(config, select, ignore, detectors), step_key)
    if scans.reports:
        emit(writer.render(scans.reports), output)
    return scans.exit_code(gate.judge(scans.reports, policy).exit_code)
