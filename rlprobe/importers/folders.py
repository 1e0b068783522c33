"""Directories that are read as a whole: one run, or one store of runs, over many files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlprobe.errors import InputError
from rlprobe.importers.importer import Reading
from rlprobe.importers.tensorboard.event_files import TensorBoard
from rlprobe.importers.trackers.mlflow import MLflow
from rlprobe.importers.trackers.wandb import WandbFile

_DEEPEST = 8
_MOST = 10_000  # directories that are looked at


class FolderImporter(Protocol):
    """An importer that reads a directory as a whole.

    Attributes:
        name: the format, as reports name it.
    """

    name: str

    def claims(self, directory: Path) -> list[Path]:
        """The files that belong to this directory's run, the most telling first; [] if none do."""
        ...

    def read_folder(self, directory: Path) -> list[Reading]:
        """What the directory holds; InputError if it cannot be read."""
        ...


@dataclass(frozen=True)
class Folder:
    """A directory that was read as a whole.

    Attributes:
        name: the format.
        files: those that need not be looked at any more, the most telling first.
    """

    path: Path
    name: str
    files: list[Path]
    readings: list[Reading]


_IMPORTERS: tuple[FolderImporter, ...] = (TensorBoard(), WandbFile(), MLflow())


def folders_in(directory: Path) -> Iterator[Folder]:
    """The directory, and those below it, that can be read as a whole."""
    waiting = [(directory, 0)]
    taken: set[Path] = set()
    looked_at = 0
    while waiting and looked_at < _MOST:
        place, depth = waiting.pop()
        looked_at += 1
        for folder in _read(place, taken):
            taken.update(folder.files)
            yield folder
        if depth < _DEEPEST:
            waiting += [(child, depth + 1) for child in _children(place)]


def _read(place: Path, taken: set[Path]) -> Iterator[Folder]:
    for importer in _IMPORTERS:
        try:
            files = importer.claims(place)
            if files and not taken.intersection(files):
                yield Folder(place, importer.name, files, importer.read_folder(place))
        except (InputError, OSError):
            continue  # its files are read one by one, and tell for themselves what is wrong


def _children(place: Path) -> list[Path]:
    try:
        found = [path for path in place.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return sorted((path for path in found if not path.name.startswith(".")), reverse=True)
