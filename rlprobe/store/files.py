"""Atomic, durable file operations: a reader never sees half a file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from rlprobe.store import leftovers, modes

# What a system answers that cannot sync directories, or opens none.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EISDIR}


def temporary_beside(path: Path) -> Path:
    """A fresh name in the same directory, for writing before the rename."""
    return path.with_name(leftovers.temporary_name(path.name))


def commit(temporary: Path, path: Path) -> None:
    """Make a finished temporary file durable under its real name."""
    with contextlib.suppress(OSError):  # some file systems have no modes
        temporary.chmod(modes.of_file(path))
    _sync(temporary)
    temporary.replace(path)
    sync_directory(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make renames in a directory durable, where the file system can.

    Raises:
        OSError: it can and failed: the renames may be lost.
    """
    try:
        _sync(directory)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def write_durably(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file by what `write` puts into the temporary file that it is given.

    Readers see the old or the new, never a mixture; it is on disk when this returns.
    """
    temporary = temporary_beside(path)
    try:
        write(temporary)
        commit(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error counts
            temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, text: str) -> None:
    """Replace a file's content; readers see the old or the new, never a mixture."""
    write_durably(path, lambda temporary: modes.write_text(temporary, text))


def overwrite(path: Path, text: str) -> bool:
    """Put a text into a file's own blocks, padded by spaces; False if it does not fit.

    For a disk that is full: no new block is needed. A reader sees the old or the new as long as the
    file is smaller than a page.
    """
    content = text.encode()
    descriptor = os.open(path, os.O_WRONLY)
    try:
        size = os.fstat(descriptor).st_size
        if len(content) > size:
            return False
        written = os.pwrite(descriptor, content.ljust(size), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return written == size


def create_exclusive(path: Path, text: str) -> bool:
    """Create a file with content unless it exists; False if somebody else was first.

    A hard link of a finished file: exclusive and never half-written, on NFS too. File systems
    without links get an exclusive open.
    """
    temporary = temporary_beside(path)
    try:
        modes.write_text(temporary, text)
        if not _link(temporary, path):
            modes.write_text(path, text)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _link(temporary: Path, path: Path) -> bool:
    """Whether the file system has links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True
