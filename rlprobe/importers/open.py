"""A path -> runs: a recording, a directory of recordings or logs, or a file of any known format."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers import directory as folders
from rlprobe.importers.assemble import assemble
from rlprobe.importers.console.log import Console
from rlprobe.importers.documents.csv_table import CSVTable
from rlprobe.importers.documents.json_document import CutDocumentError, JSONDocument
from rlprobe.importers.documents.jsonl import JSONLines
from rlprobe.importers.documents.parquet import MetricsParquet
from rlprobe.importers.folders import folders_in
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import STDIN, Source
from rlprobe.importers.tensorboard.event_files import TensorBoard
from rlprobe.importers.trackers.mlflow import MLflow
from rlprobe.importers.trackers.trackio import Trackio
from rlprobe.importers.trackers.wandb import WandbFile
from rlprobe.importers.trainers.completions import Completions
from rlprobe.importers.trainers.trainer_state import HFTrainerState
from rlprobe.store import layout
from rlprobe.store.run import Run
from rlprobe.values import Problem

# The first that recognises a file reads it; the console takes any text, so it comes last.
IMPORTERS: tuple[Importer, ...] = (
    TensorBoard(),
    WandbFile(),
    Trackio(),
    MLflow(),
    Completions(),
    MetricsParquet(),
    HFTrainerState(),
    JSONLines(),
    JSONDocument(),
    CSVTable(),
    Console(),
)

_STATE = "trainer_state.json"


def open_runs(path: str | Path) -> list[Run]:
    """Every run at a path; `-` is the standard input.

    Raises:
        InputError: nothing is there, or it cannot be read.
        UnknownFormatError: no known format; the message names those that are.
    """
    place = Path(path)
    if place == STDIN:
        return _open_file(place)
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
        return _open_directory(place)
    if not stat.S_ISREG(mode):
        raise InputError(
            f"Couldn't read '{path}': not a regular file",
            hint="Pipe it in, and give `-` as the path.",
        )
    return _open_file(place)


def _open_file(path: Path) -> list[Run]:
    source = Source(path)
    try:
        name, readings = _read(source)
    finally:
        source.close()
    return _runs(path, name, readings)


def _runs(path: Path, name: str, readings: Sequence[Reading], run_id: str = "") -> list[Run]:
    """One run for each name of a run that the readings have."""
    runs = dict.fromkeys(reading.run for reading in readings)
    return [
        assemble(path, name, [reading for reading in readings if reading.run == run], run or run_id)
        for run in runs
    ]


def _read(source: Source) -> tuple[str, list[Reading]]:
    """What a file holds, by the first format that recognises it and can read it.

    A format that fails leaves the file to those after it: a document that was cut by a crash is
    still text.
    """
    if not source.head.strip():
        raise InputError(f"Couldn't read '{source.path}': the file is empty")
    failed: InputError | None = None
    for importer in IMPORTERS:
        if not importer.recognises(source):
            continue
        try:
            readings = importer.read(source)
        except InputError as error:
            if importer.name == HFTrainerState.name and not isinstance(error, CutDocumentError):
                raise
            hidden = isinstance(importer, Console) and isinstance(error, EmptyRunError)
            failed = failed or (None if hidden else error)
            continue
        if failed is not None and source.suffix == ".json":
            readings[0].problems = [Problem(str(source.path), str(failed)), *readings[0].problems]
        return importer.name, readings
    raise failed or _unknown(source.path)


def _unknown(path: Path) -> UnknownFormatError:
    known = "; ".join(importer.description for importer in IMPORTERS)
    return UnknownFormatError(
        f"Couldn't read '{path}': no known log format, and no metrics in its text",
        hint=f"Known: a recording; {known}.",
    )


def _open_directory(directory: Path) -> list[Run]:
    from rlprobe.store.recording import Recording

    recordings: list[Run] = [Recording(child) for child in layout.recordings_in(directory)]
    if recordings:
        return recordings
    runs = _runs_in(directory)
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


def _runs_in(directory: Path) -> list[Run]:
    """Every run whose logs lie in a directory or below it."""
    groups: dict[tuple[str, str], list[tuple[Path, list[Reading]]]] = {}
    for path, name, readings in _readings_in(directory):
        key = folders.run_of(path, directory)
        if _shares_directory(name):
            key = str(Path(key).parent)
        groups.setdefault((key, name), []).append((path, readings))
    runs: list[Run] = []
    for (key, name), members in _one_format_per_run(groups).items():
        readings = [
            reading for _, found in members for reading in _ranked(directory, members, found)
        ]
        place = members[0][0] if len(members) == 1 else members[0][0].parent
        runs += _runs(place, name, readings, key)
    return runs


def _shares_directory(name: str) -> bool:
    importer = next(importer for importer in IMPORTERS if importer.name == name)
    return bool(getattr(importer, "one_run_per_directory", False))


def _readings_in(directory: Path) -> Iterator[tuple[Path, str, list[Reading]]]:
    states = _newest_states(directory)
    taken: set[Path] = set()
    for folder in folders_in(directory):
        taken.update(folder.files)
        yield folder.files[0], folder.name, folder.readings
    for path in folders.files_in(directory):
        if path in taken or (path.name == _STATE and path not in states):
            continue
        try:
            name, readings = _read(Source(path))
        except InputError:
            continue
        yield path, name, readings


def _newest_states(directory: Path) -> set[Path]:
    """Of the states of one run's checkpoints the longest: the run's own, else the newest."""
    newest: dict[Path, Path] = {}
    for path in folders.files_in(directory):
        if path.name == _STATE:
            number = _checkpoint_number(path)
            run = path.parent if number is None else path.parent.parent
            best = newest.setdefault(run, path)
            if _age(path) > _age(best):
                newest[run] = path
    return set(newest.values())


def _checkpoint_number(path: Path) -> int | None:
    word = path.parent.name.removeprefix("checkpoint-")
    return int(word) if word != path.parent.name and word.isdecimal() else None


def _age(path: Path) -> float:
    number = _checkpoint_number(path)
    return float("inf") if number is None else number


def _one_format_per_run(
    groups: dict[tuple[str, str], list[tuple[Path, list[Reading]]]],
) -> dict[tuple[str, str], list[tuple[Path, list[Reading]]]]:
    """Beside a trainer state, other logs in its directory tell the same run once more."""
    states = {Path(key).parent for key, _ in groups if Path(key).name == _STATE}
    states |= {place.parent for place in states if place.name.startswith("checkpoint-")}
    kept = {}
    for (key, name), members in groups.items():
        rollouts_only = all(not len(r.rows) for _, found in members for r in found)
        if name == HFTrainerState.name or Path(key).parent not in states or rollouts_only:
            kept[key, name] = members
    return _with_rollouts(kept)


def _with_rollouts(
    groups: dict[tuple[str, str], list[tuple[Path, list[Reading]]]],
) -> dict[tuple[str, str], list[tuple[Path, list[Reading]]]]:
    """Files that hold nothing but rollouts join the run beside them, where there is just one."""
    loose = {
        at: members
        for at, members in groups.items()
        if all(not len(reading.rows) for _, found in members for reading in found)
    }
    metric = {at: members for at, members in groups.items() if at not in loose}
    if len(metric) != 1:
        return groups
    (at, members), *_ = metric.items()
    return {at: [*members, *(member for found in loose.values() for member in found)]}


def _ranked(
    root: Path, members: Sequence[tuple[Path, list[Reading]]], found: list[Reading]
) -> list[Reading]:
    """Readings with the rank that their file's name tells, where the files are those of ranks."""
    ranks = {folders.rank_of(path, root) for path, _ in members}
    if len(members) < 2 or len(ranks) < 2 or None in ranks:
        return found
    path = next(path for path, readings in members if readings is found)
    for reading in found:
        reading.rank = folders.rank_of(path, root)
    return found
