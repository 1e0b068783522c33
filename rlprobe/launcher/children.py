"""What the Python processes below the command left in the status folder.

`python-<pid>.json` is what `autoattach/sitecustomize.py` says of a process; `attached-<pid>` holds
the run directories of one that records itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import rlprobe


def attached(status: Path, run_dir: Path) -> bool:
    """Whether a process records into this recording, or one of its trainers beside it.

    A helper that records elsewhere says nothing of the training.
    """
    own = re.compile(re.escape(os.path.realpath(run_dir)) + r"(-\d+)?")
    return any(own.fullmatch(os.path.realpath(place)) for place in run_dirs(status))


def run_dirs(status: Path) -> list[str]:
    """The run directories of processes that record themselves."""
    places: list[str] = []
    for mark in sorted(status.glob("attached-*")):
        with contextlib.suppress(OSError, ValueError):
            places += mark.read_text(encoding="utf-8").splitlines()
    return places


def why_outside(status: Path) -> tuple[str, str]:
    """Why no process records itself, and what to do about it (or an empty string)."""
    pythons = _pythons(status)
    if not pythons:
        return "the command starts no Python that could be recorded from the inside", ""
    failed = next((entry for entry in pythons if entry.get("error")), None)
    if failed is None:
        return "no Hugging Face Trainer was trained", ""
    python, reason = str(failed.get("executable")), failed["error"]
    if failed.get("foreign"):
        reason = f"the rlprobe there is another program ({_described(Path(failed['foreign']))})"
    return f"cannot record inside {python}: {reason}", _remedy(python, failed)


def _pythons(status: Path) -> list[dict[str, Any]]:
    pythons = []
    for path in sorted(status.glob("python-*.json")):
        with contextlib.suppress(OSError, ValueError):
            pythons.append(json.loads(path.read_text(encoding="utf-8")))
    return pythons


def _described(place: Path) -> str:
    """Version and place of a program that is not ours; the version only where pip wrote it down."""
    infos = sorted(place.parent.glob("rlprobe-*.dist-info"))
    version = infos[0].name.removesuffix(".dist-info").partition("-")[2] if infos else ""
    return f"{version} in {place}" if version else str(place)


def _remedy(python: str, failed: dict[str, Any]) -> str:
    """How to get this rlprobe there; the package index holds another one of that name."""
    source = Path(rlprobe.__file__).parents[1]
    if not (failed.get("foreign") or failed.get("missing")):
        return ""
    if not (source / "pyproject.toml").is_file():
        return f". To record from the inside, install this rlprobe ({rlprobe.__version__}) there"
    return f". To record from the inside: {python} -m pip install {shlex.quote(str(source))}"
