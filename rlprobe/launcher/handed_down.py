"""The environment that a recorded command gets: ours, and how the hook of its Pythons is found."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import uuid
from pathlib import Path

from rlprobe import environment
from rlprobe.integrations import autoattach
from rlprobe.recorder.launch import Place
from rlprobe.taps import hooks


def environ(run_dir: Path, status: Path, place: Place) -> dict[str, str]:
    """The environment of a command.

    Args:
        run_dir: where it is recorded.
        status: the folder in which its processes leave word.
        place: where the launcher stands in its job.
    """
    path = os.environ.get("PYTHONPATH")
    several = place.world_size > 1  # `mpirun rlprobe record`: each rank has a launcher
    return {
        **inherited(),
        environment.RUN: str(run_dir),
        environment.LAUNCH: place.launch if several else uuid.uuid4().hex,
        environment.STATUS: str(status),
        environment.TAPS: hooks.as_text(_other_taps()),
        "PYTHONPATH": os.pathsep.join([str(autoattach.FOLDER), *([path] if path else [])]),
    }


def inherited() -> dict[str, str]:
    """The environment as it was given to us: Python adds a locale of its own to an empty one."""
    given = dict(os.environ)
    with contextlib.suppress(OSError):
        if b"LC_CTYPE=" not in b"\0" + Path("/proc/self/environ").read_bytes():
            given.pop("LC_CTYPE", None)
    return given


def _other_taps() -> list[str]:
    """Taps of other packages, installed beside rlprobe."""
    with contextlib.suppress(Exception):
        points = importlib.metadata.entry_points(group=hooks.GROUP)
        return [f"{point.name}={point.value}" for point in points]
    return []
