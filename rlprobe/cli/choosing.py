"""Exactly one run at a path."""

from __future__ import annotations

from rlprobe.errors import UsageError
from rlprobe.importers import open_runs
from rlprobe.store.run import Run


def one_run(path: str, step_key: str | None = None) -> Run:
    """The run at a path; UsageError if there are several."""
    runs = open_runs(path, step_key)
    if len(runs) > 1:
        named = ", ".join(f"'{run.info.path}'" for run in runs[:5])
        raise UsageError(
            f"Couldn't choose a run in '{path}': there are {len(runs)}", hint=f"One of {named}."
        )
    return runs[0]
