"""`rlprobe calibrate`: learn knobs from a team's own healthy runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlprobe.cli import options


def calibrate(
    paths: options.Paths,
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the learnt knobs to this new TOML file."),
    ] = None,
    config: options.ConfigFile = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
) -> int:
    """Learn knobs from healthy runs.

    The smallest changes that keep the catalogue quiet on them.
    """
    from rlprobe.cli.scanning import configuration, places
    from rlprobe.errors import UsageError
    from rlprobe.importers import open_runs
    from rlprobe.report import calibration_text
    from rlprobe.scan.calibration import calibrate as learn

    if output is not None and output.exists():
        raise UsageError(f"Couldn't write '{output}': it exists", hint="Give a new file.")
    runs = [run for place in places(paths) for run in open_runs(place.path)]
    learnt = learn(runs, configuration(config, select, ignore))
    print(calibration_text.lines(learnt, len(runs)), end="")
    if output is not None:
        output.write_text(calibration_text.toml(learnt, len(runs)), encoding="utf-8")
        print(f"wrote {output}; use it with --config {output}")
    return 0
