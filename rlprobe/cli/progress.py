"""A progress bar on stderr for logs that take longer than a second to read."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlprobe.importers.listening import heard_by
from rlprobe.report.escape import line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_QUICK = 1.0  # seconds


class _Bar:
    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._bar: Progress | None = None
        self._tasks: dict[Path, TaskID] = {}

    def hear(self, path: Path, read: int, of: int) -> None:
        """So much of a file has been read."""
        if self._bar is None and time.monotonic() - self._begin < _QUICK:
            return
        bar = self._bar = self._bar or _shown()
        if path not in self._tasks:
            for task in self._tasks.values():
                bar.remove_task(task)
            name = line(path.name)[:60]
            self._tasks = {path: bar.add_task("reading", name=name, total=of or None)}
        bar.update(self._tasks[path], completed=read)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()


def _shown() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.start()
    return bar


@contextmanager
def reading() -> Iterator[None]:
    """While logs are read: a bar after a second, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    bar = _Bar()
    try:
        with heard_by(bar.hear):
            yield
    finally:
        bar.close()
