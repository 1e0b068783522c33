"""A path -> runs: a recording, a directory of recordings or logs, or a file of any known format."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers import compression
from rlprobe.importers.assemble import assemble
from rlprobe.importers.faults import ReaderFaultError, contained
from rlprobe.importers.formats import formats
from rlprobe.importers.importer import CutDocumentError, Importer, Reading
from rlprobe.importers.ranks_of_rows import told_apart
from rlprobe.importers.refusal import refused
from rlprobe.importers.renumbering import numbered_by
from rlprobe.importers.rotation import older_beside
from rlprobe.importers.source import STDIN, Source
from rlprobe.store import layout
from rlprobe.store.run import Run
from rlprobe.store.table import TableRun
from rlprobe.values import Problem

if TYPE_CHECKING:
    from rlprobe.importers.gathering import Gathering

_NUMBERED = re.compile(r"(.+)#([1-9]\d{0,5})")  # `file.ipynb#2`: the second training in it


def open_runs(path: str | Path, step_key: str | None = None) -> list[Run]:
    """Every run at a path; `-` is the standard input.

    Args:
        path: a recording, a directory, or a log of any known format.
        step_key: the counter that rows of logs are to be numbered by; None: the best one there is.

    Raises:
        InputError: nothing is there, it cannot be read, or has no such counter.
        UnknownFormatError: no known format; the message quotes what was seen, and names the format
            that it is nearest to.
    """
    place = Path(path)
    if place == STDIN:
        return _open_file(place, step_key)
    try:
        mode = place.stat().st_mode
    except OSError as error:
        if numbered := _NUMBERED.fullmatch(str(path)):
            return [_training(Path(numbered[1]), int(numbered[2]), step_key)]
        why = (
            "no such file or directory" if isinstance(error, FileNotFoundError) else error.strerror
        )
        raise InputError(f"Couldn't find '{path}': {why}") from error
    except ValueError as error:
        raise InputError(f"Couldn't find '{path}': {error}") from error
    if stat.S_ISDIR(mode):
        return _open_directory(place, step_key)
    if not stat.S_ISREG(mode):
        raise InputError(
            f"Couldn't read '{path}': not a regular file",
            hint="Pipe it in, and give `-` as the path.",
        )
    return _open_file(place, step_key)


def _training(path: Path, number: int, step_key: str | None) -> Run:
    """One of several trainings in a file, by its number."""
    runs = open_runs(path, step_key)
    of_number = [run for run in runs if run.info.id.endswith(f"#{number}")]
    if len(of_number) != 1:
        raise InputError(
            f"Couldn't find training {number} of '{path}'",
            hint=f"`rlprobe scan {path}` says what it holds.",
        )
    return of_number[0]


def _open_file(path: Path, step_key: str | None) -> list[Run]:
    source = Source(path, step_key)
    try:
        if compression.is_archive(source.head):
            return _open_archive(source)
        importer, readings = _read(source)
    finally:
        source.close()
    if older := older_beside(path):
        said = f"older rows are in {older[0]}, which is not read: give the directory"
        readings[0].notes = [*readings[0].notes, said]
    return list(runs_of(path, importer.name, readings))


def _open_archive(source: Source) -> list[Run]:
    """The runs in a packed directory, under the names that they have in it."""
    from rlprobe.importers.archives import unpacked

    with unpacked(source) as content:
        try:
            runs = _open_directory(content.folder, source.step_key)
        except InputError as error:
            hint = content.shown(error.hint)
            raise type(error)(content.shown(str(error)), hint=hint) from error
        return content.named(runs)


def runs_of(
    path: Path, importer: str, readings: Sequence[Reading], run_id: str = ""
) -> list[TableRun]:
    """One run for each name of a run that the readings have."""
    names = dict.fromkeys(reading.run for reading in readings)
    runs: list[TableRun] = []
    for name in names:
        numbered = name.startswith("#")  # the trainings of one file
        own = f"{run_id or path.name}{name}" if numbered else name or run_id
        place = Path(f"{path}{name}") if numbered else path
        with contained(place, importer):
            of_name = list(told_apart(reading for reading in readings if reading.run == name))
            runs.append(assemble(place, importer, of_name, own))
    return runs


def _read(source: Source) -> tuple[Importer, list[Reading]]:
    """What a file holds, by the first format that recognises it and can read it.

    A format that fails leaves the file to those after it: a document that was cut by a crash is
    still text.
    """
    if not source.head.strip():
        raise InputError(f"Couldn't read '{source.path}': the file is empty")
    failed: InputError | None = None
    for importer in formats():
        try:
            with contained(source.path, importer.name):
                if not importer.recognises(source):
                    continue
                readings = importer.read(source)
        except InputError as error:
            if importer.final and not isinstance(error, CutDocumentError):
                raise
            hidden = importer.fallback and isinstance(error, EmptyRunError)
            failed = failed or (None if hidden else error)
            continue
        if isinstance(failed, ReaderFaultError) or (failed and source.suffix == ".json"):
            readings[0].problems = [Problem(str(source.path), str(failed)), *readings[0].problems]
        if source.step_key is not None:
            numbered_by(readings, source.step_key, source.path)
        return importer, readings
    raise refused(source, failed)


def _open_directory(directory: Path, step_key: str | None) -> list[Run]:
    from rlprobe.importers.gathering import Gathering
    from rlprobe.importers.looked_at import beside
    from rlprobe.store.recording import Recording

    if recordings := layout.recordings_in(directory):
        first, *others = recordings
        said = beside(recordings, directory)
        return [Recording(first, [said] if said else ()), *map(Recording, others)]

    gathering = Gathering(directory, _read, step_key)
    if gathering.runs:
        return _with_account(_gathered(gathering), gathering)
    try:
        empty = not any(directory.iterdir())
    except OSError as error:
        raise InputError(f"Couldn't read '{directory}': {error.strerror}") from error
    if empty:
        raise InputError(f"Couldn't read '{directory}': the directory is empty")
    there = gathering.account.whole(gathering.listing)
    raise UnknownFormatError(
        f"Couldn't read '{directory}': no recording ({layout.MANIFEST}) and no log in it"
        + (f": {there}" if there else ""),
        hint="Give the log file itself, or a directory that `rlprobe record` wrote.",
    )


def _gathered(gathering: Gathering) -> list[Run]:
    runs: list[Run] = []
    failed: InputError | None = None
    for group in gathering.runs:
        try:
            runs += runs_of(group.place, group.importer.name, group.readings, group.name)
        except InputError as error:
            gathering.account.refuse(group.place, error)
            failed = error
    if failed is not None and not runs:
        raise failed
    return runs


def _with_account(runs: list[Run], gathering: Gathering) -> list[Run]:
    """The runs; the first one says what became of the files that are of none."""
    notes, problems = gathering.account.notes(gathering.listing), gathering.account.problems()
    if (notes or problems) and isinstance(runs[0], TableRun):
        runs[0].info = replace(runs[0].info, notes=(*runs[0].info.notes, *notes))
        runs[0].problems = (*runs[0].problems, *problems)
    return runs
