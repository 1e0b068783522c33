"""A path -> runs: a recording, a directory of recordings or logs, or a file of any known format."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers import directory as directories
from rlprobe.importers.assemble import assemble
from rlprobe.importers.folders import folders_in
from rlprobe.importers.formats import formats
from rlprobe.importers.importer import CutDocumentError, Importer, Reading
from rlprobe.importers.renumbering import numbered_by
from rlprobe.importers.source import STDIN, Source
from rlprobe.importers.steps import NoSuchCounterError
from rlprobe.store import layout
from rlprobe.store.run import Run
from rlprobe.values import Problem

Part = tuple[Path, list[Reading]]  # a file, or the first one of a folder, and what it holds
Groups = dict[tuple[str, Importer], list[Part]]  # by what names the run, and the format


def open_runs(path: str | Path, step_key: str | None = None) -> list[Run]:
    """Every run at a path; `-` is the standard input.

    Args:
        path: a recording, a directory, or a log of any known format.
        step_key: the counter that rows of logs are to be numbered by; None: the best one there is.

    Raises:
        InputError: nothing is there, it cannot be read, or has no such counter.
        UnknownFormatError: no known format; the message names those that are.
    """
    place = Path(path)
    if place == STDIN:
        return _open_file(place, step_key)
    try:
        mode = place.stat().st_mode
    except OSError as error:
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


def _open_file(path: Path, step_key: str | None) -> list[Run]:
    source = Source(path, step_key)
    try:
        importer, readings = _read(source)
    finally:
        source.close()
    return _runs(path, importer, readings)


def _runs(
    path: Path, importer: Importer, readings: Sequence[Reading], run_id: str = ""
) -> list[Run]:
    """One run for each name of a run that the readings have."""
    names = dict.fromkeys(reading.run for reading in readings)
    return [
        assemble(
            path,
            importer.name,
            [reading for reading in readings if reading.run == name],
            name or run_id,
        )
        for name in names
    ]


def _read(source: Source) -> tuple[Importer, list[Reading]]:
    """What a file holds, by the first format that recognises it and can read it.

    A format that fails leaves the file to those after it: a document that was cut by a crash is
    still text.
    """
    if not source.head.strip():
        raise InputError(f"Couldn't read '{source.path}': the file is empty")
    failed: InputError | None = None
    for importer in formats():
        if not importer.recognises(source):
            continue
        try:
            readings = importer.read(source)
        except InputError as error:
            if importer.final and not isinstance(error, CutDocumentError):
                raise
            hidden = importer.fallback and isinstance(error, EmptyRunError)
            failed = failed or (None if hidden else error)
            continue
        if failed is not None and source.suffix == ".json":
            readings[0].problems = [Problem(str(source.path), str(failed)), *readings[0].problems]
        if source.step_key is not None:
            numbered_by(readings, source.step_key, source.path)
        return importer, readings
    raise failed or _unknown(source.path)


def _unknown(path: Path) -> UnknownFormatError:
    known = "; ".join(importer.description for importer in formats())
    return UnknownFormatError(
        f"Couldn't read '{path}': no known log format, and no metrics in its text",
        hint=f"Known: a recording; {known}.",
    )


def _open_directory(directory: Path, step_key: str | None) -> list[Run]:
    from rlprobe.store.recording import Recording

    recordings: list[Run] = [Recording(child) for child in layout.recordings_in(directory)]
    if recordings:
        return recordings
    runs = _runs_in(directory, step_key)
    if runs:
        return runs
    try:
        empty = not any(directory.iterdir())
    except OSError as error:
        raise InputError(f"Couldn't read '{directory}': {error.strerror}") from error
    if empty:
        raise InputError(f"Couldn't read '{directory}': the directory is empty")
    raise UnknownFormatError(
        f"Couldn't read '{directory}': no recording ({layout.MANIFEST}) and no log in it",
        hint="Give the log file itself, or a directory that `rlprobe record` wrote.",
    )


def _runs_in(directory: Path, step_key: str | None) -> list[Run]:
    """Every run whose logs lie in a directory or below it."""
    groups: Groups = {}
    for path, importer, readings in _readings_in(directory, step_key):
        key = directories.run_of(path, directory)
        if importer.folder:
            key = str(Path(key).parent)
        groups.setdefault((key, importer), []).append((path, readings))
    runs: list[Run] = []
    for (key, importer), parts in _with_rollouts(_told_once(groups)).items():
        place = parts[0][0] if len(parts) == 1 else parts[0][0].parent
        runs += _runs(place, importer, _ranked(directory, parts), key)
    return runs


def _readings_in(
    directory: Path, step_key: str | None
) -> Iterator[tuple[Path, Importer, list[Reading]]]:
    taken = _surpassed(directory)
    refused: NoSuchCounterError | None = None
    read = 0
    for folder in folders_in(directory):
        taken.update(folder.files)
        yield folder.files[0], folder.importer, folder.readings
    for path in directories.files_in(directory):
        if path in taken:
            continue
        try:
            importer, readings = _read(Source(path, step_key))
        except NoSuchCounterError as error:
            refused = refused or error
            continue
        except InputError:
            continue
        read += 1
        yield path, importer, readings
    if refused is not None and not read:
        raise refused


def _surpassed(directory: Path) -> set[Path]:
    """Files of whole runs beside which there is a longer one: the run's own, or a newer one."""
    names = _whole_runs()
    files = [path for path in directories.files_in(directory) if path.name in names]
    longest: dict[tuple[Path, str], Path] = {}
    for path in files:
        run = path.parent if directories.checkpoint_of(path) is None else path.parent.parent
        best = longest.setdefault((run, path.name), path)
        if _length(path) > _length(best):
            longest[run, path.name] = path
    return set(files) - set(longest.values())


def _whole_runs() -> set[str]:
    return {importer.whole_run for importer in formats() if importer.whole_run}


def _length(path: Path) -> float:
    number = directories.checkpoint_of(path)
    return float("inf") if number is None else number


def _told_once(groups: Groups) -> Groups:
    """Without the logs that lie beside a file of the whole run and tell it once more."""
    names = _whole_runs()
    places = {Path(key).parent for key, _ in groups if Path(key).name in names}
    places |= {place.parent for place in places if place.name.startswith("checkpoint-")}
    return {
        (key, importer): parts
        for (key, importer), parts in groups.items()
        if importer.whole_run or Path(key).parent not in places or _hold_no_rows(parts)
    }


def _hold_no_rows(parts: Sequence[Part]) -> bool:
    return all(not len(reading.rows) for _, readings in parts for reading in readings)


def _with_rollouts(groups: Groups) -> Groups:
    """Files that hold nothing but rollouts join the run beside them, where there is just one."""
    logs = {at: parts for at, parts in groups.items() if not _hold_no_rows(parts)}
    if len(logs) != 1:
        return groups
    loose = [part for at, parts in groups.items() if at not in logs for part in parts]
    return {at: [*parts, *loose] for at, parts in logs.items()}


def _ranked(root: Path, parts: Sequence[Part]) -> list[Reading]:
    """All readings, with the rank that a file's name tells where the files are those of ranks."""
    ranks = [directories.rank_of(path, root) for path, _ in parts]
    if len(set(ranks)) > 1 and None not in ranks:
        for (_, readings), rank in zip(parts, ranks, strict=True):
            for reading in readings:
                reading.rank = rank
    return [reading for _, readings in parts for reading in readings]
