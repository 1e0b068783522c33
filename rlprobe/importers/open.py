"""A path -> runs: a recording, a directory of recordings, or a file of any known format."""

from __future__ import annotations

from pathlib import Path

from rlprobe.errors import InputError, UnknownFormatError
from rlprobe.importers.assemble import assemble
from rlprobe.importers.hf_trainer_state import HFTrainerState
from rlprobe.importers.importer import Importer
from rlprobe.importers.jsonl import JSONLines
from rlprobe.importers.source import Source
from rlprobe.store import layout
from rlprobe.store.run import Run

IMPORTERS: tuple[Importer, ...] = (HFTrainerState(), JSONLines())


def open_runs(path: str | Path) -> list[Run]:
    """Every run at a path.

    Raises:
        InputError: nothing is there, or it cannot be read.
        UnknownFormatError: no known format; the message names those that are.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"Couldn't find '{path}': no such file or directory")
    return _open_directory(place) if place.is_dir() else [_open_file(place)]


def _open_directory(directory: Path) -> list[Run]:
    from rlprobe.store.recording import Recording

    found: list[Run] = [Recording(child) for child in layout.recordings_in(directory)]
    if found:
        return found
    state = _newest_trainer_state(directory)
    if state is not None:
        return [_open_file(state)]
    if not any(directory.iterdir()):
        raise InputError(f"Couldn't read '{directory}': the directory is empty")
    raise UnknownFormatError(
        f"Couldn't read '{directory}': no recording ({layout.MANIFEST}) and no "
        "trainer_state.json in it",
        hint="Give the log file itself, or a directory that `rlprobe record` wrote.",
    )


def _newest_trainer_state(directory: Path) -> Path | None:
    """The trainer state with the longest history: the run's own, else the newest checkpoint's."""
    own = directory / "trainer_state.json"
    if own.is_file():
        return own
    states = directory.glob("checkpoint-*/trainer_state.json")
    return max(states, key=_checkpoint_number, default=None)


def _checkpoint_number(path: Path) -> int:
    word = path.parent.name.removeprefix("checkpoint-")
    return int(word) if word.isdigit() else -1


def _open_file(path: Path) -> Run:
    source = Source(path)
    if not source.head.strip():
        raise InputError(f"Couldn't read '{path}': the file is empty")
    for importer in IMPORTERS:
        if importer.recognises(source):
            return assemble(path, importer.name, importer.read(source))
    known = "; ".join(importer.description for importer in IMPORTERS)
    raise UnknownFormatError(
        f"Couldn't read '{path}': no known log format", hint=f"Known: a recording; {known}."
    )
