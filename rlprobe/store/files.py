"""Atomic, durable file operations: a reader never sees half a file, and nobody else any.

A recording may hold prompts and settings that are nobody else's business: its files are for their
owner alone (0600, folders 0700). A directory with the setgid bit is meant for its group: what is
made in it may be read by the group as far as the directory may (`share` makes it so).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def make_directory(path: Path) -> None:
    """Create a directory for its owner alone, or as open to its group as the one it is in.

    Directories above it are made as the system makes them; one that is there stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o700 | _group_bits(path.parent, 0o070)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    with contextlib.suppress(OSError):  # the system's mask may have taken bits away
        path.chmod(mode | (stat.S_ISGID & path.stat().st_mode))


def share(directory: Path, group: str) -> None:
    """Let a group read what will be made in a directory.

    Raises:
        LookupError: there is no such group.
        OSError: its owner is not in the group.
    """
    shutil.chown(directory, group=int(group) if group.isdigit() else group)
    directory.chmod(0o2750)


def is_group(name: str) -> bool:
    """Whether there is a group of this name or number."""
    import grp

    with contextlib.suppress(KeyError):
        return bool(grp.getgrgid(int(name)) if name.isdigit() else grp.getgrnam(name))
    return False


def _group_bits(directory: Path, bits: int) -> int:
    mode = directory.stat().st_mode
    return mode & bits if mode & stat.S_ISGID else 0


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same directory, for writing before the rename."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{TEMPORARY_SUFFIX}")


def commit(temporary: Path, path: Path) -> None:
    """Make a finished temporary file durable under its real name."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no modes
            os.fchmod(descriptor, 0o600 | _group_bits(temporary.parent, 0o060))
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
        _write_private(temporary, text)
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
    try:
        _write_private(temporary, text)
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
        _write_private(path, text)
    except FileExistsError:
        return False
    return True


def _write_private(path: Path, text: str) -> None:
    """Write a new file; it is never anybody else's to read."""
    mode = 0o600 | _group_bits(path.parent, 0o060)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is open
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)
        file.write(text)
