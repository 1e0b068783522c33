"""Atomic, durable file operations: a reader never sees half a file."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same directory, for writing before the rename."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{TEMPORARY_SUFFIX}")


def commit(temporary: Path, path: Path) -> None:
    """Make a finished temporary file durable under its real name."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in a directory durable, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomic(path: Path, text: str) -> None:
    """Replace a file's content; readers see the old or the new, never a mixture."""
    temporary = temporary_beside(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        commit(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create_exclusive(path: Path, text: str) -> bool:
    """Create a file with content unless it exists; False if somebody else was first.

    A hard link of a finished file: exclusive and never half-written, on NFS too. File systems
    without links get an exclusive open.
    """
    temporary = temporary_beside(path)
    temporary.write_text(text, encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:
        return _open_exclusive(path, text)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _open_exclusive(path: Path, text: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
