"""Directories that are read as a whole: one run, or one store of runs, over many files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlprobe.errors import InputError
from rlprobe.importers.faults import ReaderFaultError, contained
from rlprobe.importers.formats import formats
from rlprobe.importers.importer import Importer, Reading

_DEEPEST = 8
_MOST = 10_000  # directories that are looked at


@dataclass(frozen=True)
class Folder:
    """A directory that was read as a whole.

    Attributes:
        files: those that need not be looked at any more, the most telling first.
    """

    path: Path
    importer: Importer
    files: list[Path]
    readings: list[Reading]


def folders_in(directory: Path, refuse: Callable[[Path, InputError], None]) -> Iterator[Folder]:
    """The directory, and those below it, that can be read as a whole.

    Args:
        refuse: called with a directory whose reader failed, for a fault of its own.
    """
    waiting = [(directory, 0)]
    taken: set[Path] = set()
    looked_at = 0
    while waiting and looked_at < _MOST:
        place, depth = waiting.pop()
        looked_at += 1
        for folder in _read(place, taken, refuse):
            taken.update(folder.files)
            yield folder
        if depth < _DEEPEST:
            waiting += [(child, depth + 1) for child in _children(place)]


def _read(
    place: Path, taken: set[Path], refuse: Callable[[Path, InputError], None]
) -> Iterator[Folder]:
    for importer in formats():
        try:
            with contained(place, importer.name):
                files = importer.claims(place)
                if not files or taken.intersection(files):
                    continue
                readings = importer.read_folder(place)
        except ReaderFaultError as error:
            refuse(place, error)
            continue
        except InputError:
            continue  # its files are read one by one, and tell for themselves what is wrong
        yield Folder(place, importer, files, readings)


def _children(place: Path) -> list[Path]:
    try:
        folders = [path for path in place.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return sorted((path for path in folders if not path.name.startswith(".")), reverse=True)
