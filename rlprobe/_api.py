"""What a script or a notebook asks for: the runs at a path, and what is wrong with one."""

from __future__ import annotations

import os
from pathlib import Path

from rlprobe.config import Config
from rlprobe.errors import UsageError
from rlprobe.findings import ScanReport
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan
from rlprobe.store.run import Run


def open(path: str | os.PathLike[str]) -> list[Run]:  # noqa: A001 - read as `rlprobe.open`
    """Every run at a path: a recording, a directory of them, or any log that is known.

    Raises:
        InputError: nothing is there, it cannot be read, or its format is not known.
    """
    return open_runs(Path(path))


def diagnose(path_or_run: str | os.PathLike[str] | Run, config: Config | None = None) -> ScanReport:
    """Judge one run with the catalogue.

    Args:
        path_or_run: a path that holds one run, or a run that `open` gave.
        config: knobs, selection and detectors of your own; None: the catalogue as it is, whatever
            configuration file lies about. `Config.load()` reads the project's.

    Raises:
        InputError: nothing is there, it cannot be read, or it holds neither steps nor events.
        UsageError: the path holds several runs.
        DetectorError: a detector cannot be loaded.
    """
    if not isinstance(path_or_run, str | os.PathLike):
        return scan(path_or_run, config)
    runs = open(path_or_run)
    if len(runs) > 1:
        raise UsageError(
            f"Couldn't diagnose '{os.fspath(path_or_run)}': it holds {len(runs)} runs",
            hint="Diagnose each: `[diagnose(run) for run in rlprobe.open(path)]`.",
        )
    return scan(runs[0], config)
