"""Who may read a recording: its owner alone, or a group as well.

A recording may hold prompts and settings that are nobody else's business: its files are made 0600,
its folders 0700. A directory with the setgid bit is meant for its group: what is made in it may be
read by the group as far as the directory may (`share` makes it so).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any

Buffer = Any  # bytes, or what offers them


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


def of_file(path: Path) -> int:
    """The mode of a file at this place."""
    return 0o600 | _group_bits(path.parent, 0o060)


def write_text(path: Path, text: str) -> None:
    """Write a new file; it is never anybody else's to read.

    Raises:
        FileExistsError: it is there.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: Buffer) -> None:
    """The same for bytes."""
    mode = of_file(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open
            with contextlib.suppress(OSError):  # some file systems have no modes
                os.fchmod(descriptor, mode)
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def share(directory: Path, group: str) -> None:
    """Let a group, by name or number, read what will be made in a directory.

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
