"""Losses that could not be written into the recording: left for the next attempt on this machine.

In the directory for temporary files, which is another disk than the one that failed, or at least
another folder than the one that was deleted. Only this user's files in this user's folder count.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from rlprobe.store.text import stable_id

_MOST_BYTES = 65_536
_MOST_KINDS = 100
_MOST_FILES = 100  # of runs that nobody continued; older ones are deleted
_SECONDS = 1.0  # for a directory that hangs as well


def leave(run_dir: Path, attempt: int, rank: int, counts: Mapping[str, int]) -> None:
    """Leave what an attempt lost; waits a second at most, and nothing raises."""
    content = json.dumps({"attempt": attempt, "counts": dict(counts)})
    thread = threading.Thread(target=_write, args=(run_dir, rank, content), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter shuts down
        _write(run_dir, rank, content)
    else:
        thread.join(_SECONDS)


def _write(run_dir: Path, rank: int, content: str) -> None:
    with contextlib.suppress(Exception):
        folder = _folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(folder):
            return
        _forget_oldest(folder)
        path = folder / f"{_prefix(run_dir, rank)}{os.getpid()}-{os.urandom(3).hex()}.json"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            file.write(content)


def _forget_oldest(folder: Path) -> None:
    paths = sorted(folder.glob("*-r*.json"), key=lambda path: path.lstat().st_mtime)
    for path in paths[: max(0, len(paths) - _MOST_FILES + 1)]:
        path.unlink(missing_ok=True)


def collect(run_dir: Path, rank: int) -> list[tuple[int, dict[str, int]]]:
    """What earlier attempts left, as pairs of attempt and counts; it is deleted here."""
    with contextlib.suppress(Exception):
        folder = _folder()
        if folder.is_dir() and _is_ours(folder):
            paths = sorted(folder.glob(f"{_prefix(run_dir, rank)}*.json"))
            return [words for path in paths if (words := _read(path)) is not None]
    return []


def _read(path: Path) -> tuple[int, dict[str, int]] | None:
    try:
        with path.open("rb") as file:
            raw = json.loads(file.read(_MOST_BYTES))
        counts = {
            str(kind): count
            for kind, count in list(raw["counts"].items())[:_MOST_KINDS]
            if type(count) is int and count > 0
        }
        return int(raw["attempt"]), counts
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _folder() -> Path:
    base = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108 - checked
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(base) / f"rlprobe-{user}"


def _is_ours(folder: Path) -> bool:
    status = folder.lstat()
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return own and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022


def _prefix(run_dir: Path, rank: int) -> str:
    return f"{stable_id(os.path.realpath(run_dir))}-r{rank}-"
