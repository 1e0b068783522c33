"""Which process wrote a file, and whether it still lives: for files that outlive their writers."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from pathlib import Path


def process_birth(pid: int) -> float:
    """When a process began, in clock ticks since boot; 0 where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return float(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0


def lives(pid: int, born: float) -> bool:
    """Whether a process of this machine that began then still runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
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
