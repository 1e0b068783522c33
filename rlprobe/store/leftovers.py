"""Temporary files: named after the process that writes them, so that those of dead ones can go.

A kill between writing and renaming leaves one. The next writer and `rlprobe compact` delete it, and
never that of a process that may still be at it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from rlprobe import schema
from rlprobe.store import layout, living

SETTLED = 86_400.0  # seconds, for a file whose writer cannot be asked

_OWNED = re.compile(
    r"\..+\.(?P<place>[0-9a-f]{8})\.(?P<pid>\d{1,10})\.(?P<born>\d{1,20})\.[0-9a-f]{8}\.tmp"
)
_NAMELESS = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # as earlier versions named them


def temporary_name(name: str) -> str:
    """A fresh name for writing a file of this name, which tells who writes it."""
    pid = os.getpid()
    born = int(living.process_birth(pid))
    return f".{name}.{living.place()}.{pid}.{born}.{os.urandom(4).hex()}.tmp"


def clear(run_dir: Path) -> int:
    """Delete the temporary files that dead processes left in a recording; how many there were."""
    removed = 0
    for folder in _folders(run_dir):
        with contextlib.suppress(OSError):
            for path in _abandoned(folder):
                path.unlink()
                removed += 1
    return removed


def _folders(run_dir: Path) -> Iterator[Path]:
    attempts = run_dir / layout.ATTEMPTS
    yield run_dir
    for folder in (attempts, *(run_dir / table for table in schema.TABLES)):
        if folder.is_dir() and not folder.is_symlink():
            yield folder
    if attempts.is_dir() and not attempts.is_symlink():
        yield from (path for path in attempts.iterdir() if path.is_dir() and not path.is_symlink())


def _abandoned(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".tmp") or not entry.is_file(follow_symlinks=False):
                continue
            if _writer_is_gone(entry):
                yield Path(entry.path)


def _writer_is_gone(entry: os.DirEntry[str]) -> bool:
    owned = _OWNED.fullmatch(entry.name)
    if owned is not None and owned["place"] == living.place():
        return not living.lives(int(owned["pid"]), float(owned["born"]))
    if owned is None and _NAMELESS.fullmatch(entry.name) is None:
        return False  # somebody else's file
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > SETTLED
    except OSError:
        return False
