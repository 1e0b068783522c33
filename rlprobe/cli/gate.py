"""`rlprobe gate`: a scan judged by the project's policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from rlprobe.cli import options


def gate(
    paths: options.Paths,
    *,
    format_: options.Format = "text",
    output: options.Output = None,
    fail_on: Annotated[str | None, options.fail_on("; default: the policy's")] = None,
    config: options.ConfigFile = None,
    detectors: options.Detectors = None,
    step_key: options.StepKey = None,
    allow_large: options.AllowLarge = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Judge runs by the project's policy.

    The exit code is the verdict. Every finding counts for itself: a waiver covers no other.
    """
    from rlprobe.cli.output import emit, layout
    from rlprobe.cli.scanning import configuration, places, scan_all
    from rlprobe.config import parse_fail_on
    from rlprobe.exit_codes import UNREADABLE
    from rlprobe.gate import judge
    from rlprobe.report.reporter import reporter
    from rlprobe.store import limits

    limits.lift(allow_large)
    settings = configuration(config, detectors=detectors)
    policy = settings.gate
    if fail_on is not None:
        policy = replace(policy, fail_on=parse_fail_on(fail_on))
    wanted = places(paths)
    shape = layout(output, no_color=no_color, several=len(wanted) > 1, quiet=quiet)
    writer = reporter(format_, shape)
    scans = scan_all(wanted, settings, step_key)
    judged = judge(scans.reports, policy, settings.waivers, unread=scans.unread)
    if not scans.reports:
        return UNREADABLE
    emit(writer.render(scans.reports, judged), output)
    return judged.exit_code
