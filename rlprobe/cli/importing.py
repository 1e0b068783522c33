"""What `import` does with its logs: which runs they are, and where each goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rlprobe.cli.progress import reading
from rlprobe.errors import UsageError
from rlprobe.importers import open_runs
from rlprobe.importers.joining import joined
from rlprobe.numbers import plural
from rlprobe.report import account, escape
from rlprobe.store import from_run
from rlprobe.store.run import Run


def opened(
    logs: Sequence[str], directory: Path, step_key: str | None = None
) -> list[tuple[Run, Path]]:
    """The runs in these logs, each with the directory that it is to be written to.

    Raises:
        InputError: a log cannot be read.
        UsageError: several logs are given, and one of them holds several runs.
    """
    with reading():
        by_log = [open_runs(log, step_key) for log in logs]
    for log, runs in zip(logs, by_log, strict=True):
        if len(logs) > 1 and len(runs) > 1:
            raise UsageError(
                f"Couldn't join '{log}' with other logs: it holds {len(runs)} runs",
                hint="Import it by itself.",
            )
    runs = by_log[0] if len(logs) == 1 else [joined([part for (part,) in by_log])]
    if len(runs) == 1:
        return [(runs[0], directory)]
    names = _names(runs)
    return [(run, directory / name) for run, name in zip(runs, names, strict=True)]


def _names(runs: Sequence[Run]) -> list[str]:
    """A directory's name for each run: its id, as far as that can be one."""
    names: list[str] = []
    for number, run in enumerate(runs, start=1):
        name = re.sub(r"[^\w.() #-]+", "_", run.info.id).strip(" .")[:100] or f"run-{number}"
        names.append(name if name not in names else f"{name}-{number}")
    return names


def recorded(run: Run, directory: Path) -> str:
    """Write one run, and say what was written."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"Couldn't import into '{directory}': {error.strerror or error}",
            hint="Choose a directory you can write.",
        ) from error
    from_run.write(run, directory)
    facts = [plural(len(run.steps), "row"), plural(len(run.steps.names), "metric")]
    if len(run.info.attempts) > 1:
        facts.append(plural(len(run.info.attempts), "attempt"))
    if run.sample_steps():
        facts.append(f"rollouts of {plural(len(run.sample_steps()), 'step')}")
    unread = account.unread(len(run.steps), run.info.unread)
    more = f"\n  {unread}" if unread else ""
    source = escape.name(run.info.source)
    return f"{escape.line(str(directory))}: {', '.join(facts)} (from {source}){more}"
