"""Where a recording would go: whether it can be written there, and whether there is room."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlprobe.errors import RlprobeError
from rlprobe.launcher.limit import within
from rlprobe.launcher.run_dirs import command_name
from rlprobe.store import layout, manifest

_SECONDS = 20.0  # for a disk that hangs
_LITTLE_ROOM = 1 << 30
_FEW_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a recording.

    Attributes:
        path: as it would be called; with `<time>` in it where none was asked for.
        problem: why nothing can be recorded there; empty where it can.
        try_instead: what to do about that.
        free: bytes of room; None where it is not known.
        few_files: room for so few more files; None for enough.
        attempts: launches that are recorded there already.
    """

    path: str
    problem: str = ""
    try_instead: str = ""
    free: int | None = None
    few_files: int | None = None
    attempts: int = 0

    @property
    def is_narrow(self) -> bool:
        """Whether there is little room."""
        return self.free is not None and self.free < _LITTLE_ROOM


def run_place(run_dir: Path | None, command: Sequence[str]) -> Place:
    """Look at the directory that a command would be recorded into; nothing is left behind there."""
    shown = str(run_dir) if run_dir else f"runs/{command_name(command)}-<time>"
    path = run_dir or Path("runs") / time.strftime("x%Y%m%d-%H%M%S")
    try:
        return within(_SECONDS, lambda: _look(path.absolute(), shown), lambda _: None)
    except RlprobeError as error:
        return Place(shown, str(error), error.hint)
    except OSError as error:
        problem = f"'{shown}' cannot be looked at: {error.strerror or error}"
        return Place(shown, problem, "--run DIR on a disk that answers")


def _look(path: Path, shown: str) -> Place:
    ancestor = path
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    instead = "--run DIR with a directory that you can write"
    if not ancestor.is_dir():
        return Place(shown, f"'{ancestor}' is no directory", instead)
    try:
        _try_to_write(ancestor)
    except OSError as error:
        reason = error.strerror or str(error)
        return Place(shown, f"'{shown}' cannot be written: {reason}", instead)
    attempts = 0
    if ancestor == path and layout.is_recording(path):
        known = manifest.attempts(path)
        attempts = len(known)
        if known and known[-1].ended == "running":
            problem = f"'{shown}' is being recorded into by a job that runs"
            return Place(shown, problem, "--run DIR with another directory", attempts=attempts)
    room = os.statvfs(ancestor)
    few = room.f_favail if room.f_files > 0 and room.f_favail < _FEW_FILES else None
    return Place(shown, free=shutil.disk_usage(ancestor).free, few_files=few, attempts=attempts)


def _try_to_write(folder: Path) -> None:
    """Write a byte, and take it away again: permissions alone do not tell."""
    handle, name = tempfile.mkstemp(prefix=".rlprobe-doctor-", dir=folder)
    try:
        os.write(handle, b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            Path(name).unlink()
