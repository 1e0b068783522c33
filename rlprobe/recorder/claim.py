"""Where a run is recorded: the directory that was asked for, or one beside it where that is taken.

All ranks of a launch come to the same answer without asking each other: `runs/x-2`, `runs/x-3`, …,
the first that is empty or their own launch's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rlprobe.errors import InputError
from rlprobe.store import manifest, occupancy
from rlprobe.store.occupancy import Applicant, OccupiedError
from rlprobe.store.processes import Process

PATIENCE = 2.0  # seconds for a process that is about to end
_PAUSE = 0.05
_MOST = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim(Generic[T]):
    """A directory that is ours.

    Attributes:
        content: what was opened there.
        why: why it is another than was asked for; empty where it is that.
    """

    run_dir: Path
    content: T
    why: str = ""


def claimed(run_dir: Path, launch: str, begin: Callable[[Path], T]) -> Claim[T]:
    """Begin to record in a directory, or beside it while another run is recorded there.

    Args:
        begin: opens the attempt; raises OccupiedError where another run is being recorded.

    Raises:
        InputError: the directory cannot be written.
    """
    try:
        return Claim(run_dir, _patiently(lambda: _begun(run_dir, begin)))
    except OccupiedError as error:
        occupant = error.process
    for place in _beside(run_dir):
        try:
            if occupancy.is_of(place, launch):
                return Claim(place, _begun(place, begin), _why(run_dir, occupant, place))
        except OccupiedError:
            continue  # somebody else came first
    raise InputError(f"Couldn't record into '{run_dir}': other runs are recorded there")


def free_place(run_dir: Path, applicant: Applicant) -> Claim[None]:
    """Where a run would be recorded now, before anything is opened."""

    def look(place: Path) -> None:
        occupancy.check(place, manifest.latest_attempt(place), applicant)

    try:
        _patiently(lambda: look(run_dir))
    except OccupiedError as error:
        free = next(x for x in _beside(run_dir) if occupancy.is_of(x, applicant.launch))
        return Claim(free, None, _why(run_dir, error.process, free))
    return Claim(run_dir, None)


def _begun(place: Path, begin: Callable[[Path], T]) -> T:
    manifest.prepare(place)
    try:
        return begin(place)
    except OSError as error:
        raise InputError(
            f"Couldn't record into '{place}': {error.strerror or error}",
            hint="Make room, or choose a directory you can write.",
        ) from error


def _patiently(look: Callable[[], T]) -> T:
    """Again and again while somebody else is there, for a while: it may be about to end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return look()
        except OccupiedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def _beside(run_dir: Path) -> Iterator[Path]:
    return (run_dir.with_name(f"{run_dir.name}-{number}") for number in range(2, _MOST))


def _why(run_dir: Path, occupant: Process, place: Path) -> str:
    return (
        f"process {occupant.pid} of another run is recording into '{run_dir}'; this run is "
        f"recorded in '{place}'"
    )
