"""Where the many small files of a benchmark lie."""

from __future__ import annotations

from pathlib import Path


def in_memory() -> str | None:
    """A folder for temporary files in memory, where the system has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
