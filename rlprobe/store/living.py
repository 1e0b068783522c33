"""Which process wrote a file, and whether it still lives: for files that outlive their writers."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from pathlib import Path

_MOST_ANCESTORS = 100


def _stat(pid: int) -> list[str]:
    """What the system tells of a process, from its state on; [] where it does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def process_birth(pid: int) -> float:
    """When a process began, in clock ticks since boot; 0 where the system does not tell."""
    try:
        return float(_stat(pid)[19])
    except (ValueError, IndexError):
        return 0.0


def ancestors(pid: int) -> list[int]:
    """Who started a process, who started that, …; [] where the system does not tell."""
    line: list[int] = []
    while len(line) < _MOST_ANCESTORS:
        stat = _stat(pid)
        if len(stat) < 2 or not stat[1].isdigit() or int(stat[1]) <= 1:
            break
        pid = int(stat[1])
        line.append(pid)
    return line


def lives(pid: int, born: float) -> bool:
    """Whether a process of this machine that began then still runs.

    One that has ended, and whose parent has not asked how, does not.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    if _stat(pid)[:1] in (["Z"], ["X"]):
        return False
    return process_birth(pid) == born


@functools.cache
def place() -> str:
    """Where process ids mean the same: this host and its namespace of processes, 8 hex digits."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no path
    except OSError:
        namespace = ""
    text = f"{socket.gethostname()} {namespace}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
