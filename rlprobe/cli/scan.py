"""`rlprobe scan`: what is wrong with a run."""

from __future__ import annotations

from pathlib import Path

from rlprobe.cli import options


def scan(
    paths: options.Paths,
    *,
    format_: options.Format = "text",
    output: options.Output = None,
    fail_on: options.FailOn = "critical",
    select: options.Select = None,
    ignore: options.Ignore = None,
    config: options.ConfigFile = None,
    detectors: options.Detectors = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Run the catalogue over runs: findings, first bad steps, incidents, coverage."""
    from rlprobe import gate
    from rlprobe.cli.output import emit, layout
    from rlprobe.cli.scanning import configuration, places, scan_all
    from rlprobe.config import GatePolicy, parse_fail_on
    from rlprobe.report.reporter import reporter

    policy = GatePolicy(fail_on=parse_fail_on(fail_on))
    wanted = places(paths)
    shape = layout(output, no_color=no_color, several=len(wanted) > 1, quiet=quiet)
    writer = reporter(format_, shape)
    scans = scan_all(wanted, configuration(config, select, ignore, detectors))
    if scans.reports:
        emit(writer.render(scans.reports, scans.runs), output)
    return scans.exit_code(gate.judge(scans.reports, policy).exit_code)


def scan_after(run_dir: Path, fail_on: str | None) -> int:
    """Scan what `rlprobe record` has just recorded; the exit code that a scan would have.

    The result goes to stderr: stdout is the recorded command's own.
    """
    import sys

    from rlprobe import gate
    from rlprobe.cli.output import complain, layout
    from rlprobe.cli.scanning import configuration, scan_all
    from rlprobe.config import GatePolicy, parse_fail_on
    from rlprobe.errors import RlprobeError
    from rlprobe.report.reporter import reporter

    try:
        policy = GatePolicy(fail_on=parse_fail_on(fail_on or "never"))
        scans = scan_all([str(run_dir)], configuration(None))
    except RlprobeError as error:  # the command's own exit code must not be lost for it
        complain(error)
        return 2
    shape = layout(stream=sys.stderr)
    sys.stderr.write(reporter("text", shape).render(scans.reports, scans.runs))
    return scans.exit_code(gate.judge(scans.reports, policy).exit_code)
