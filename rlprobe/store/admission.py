"""Files of a run directory that somebody sent, opened only where they are what they should be.

Opening a FIFO waits forever, reading a device never ends, and a link may show any file of this
machine as part of a run. So nothing is opened but regular files that lie in the run's directory.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from rlprobe.errors import InputError

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | _NEVER_WAIT


class NotAdmittedError(ValueError):
    """A file that is not opened; the message says why."""


class TooManyOpenError(InputError):
    """This process may not have more files open."""


def open_regular(path: Path, root: Path) -> BinaryIO:
    """Open a regular file of a run directory for reading.

    Args:
        root: the run directory; a link that leads out of it is not followed.

    Raises:
        NotAdmittedError: no regular file, not in the directory, or not readable.
        FileNotFoundError: nothing is there.
        TooManyOpenError: too many files are open.
    """
    try:
        _stays_inside(path, root)
        _is_regular(path.stat())  # before opening: to open a device can do something
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        if path.is_symlink():
            raise NotAdmittedError("a link to nothing") from None
        raise
    except OSError as error:
        raise _refused(path, error) from error
    file = os.fdopen(descriptor, "rb")
    try:
        _is_regular(os.fstat(descriptor))
    except NotAdmittedError:
        file.close()
        raise
    return file


def directory_problem(path: Path, root: Path) -> str:
    """Why a table's directory cannot be read; empty where it can, or is not there."""
    try:
        if not path.is_symlink() and not path.exists():
            return ""
        _stays_inside(path, root)
        if not path.is_dir():
            return "not a directory"
        os.scandir(path).close()
    except NotAdmittedError as error:
        return str(error)
    except OSError as error:
        return str(_refused(path, error))
    return ""


def _stays_inside(path: Path, root: Path) -> None:
    """A link that leads to a place in the run directory is one of its files."""
    for part in (path, *path.parents):
        if part == root:
            return
        if part.is_symlink() and not _target_inside(path, root):
            raise NotAdmittedError("a link that leads out of the run directory")


def _target_inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except RuntimeError:  # what older Pythons raise
        raise NotAdmittedError("links in a circle") from None


def _is_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((words for test, words in _KINDS if test(status.st_mode)), "no regular file")
        raise NotAdmittedError(f"{kind}, not a file")


def _refused(path: Path, error: OSError) -> Exception:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpenError(
            f"Couldn't open '{path}': this process may not have more files open",
            hint="Allow more: `ulimit -n 4096`.",
        )
    if error.errno == errno.ELOOP:
        return NotAdmittedError("links in a circle")
    return NotAdmittedError(f"cannot be read: {error.strerror or error}")
