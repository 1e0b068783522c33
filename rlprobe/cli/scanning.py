"""What `scan` and `gate` share: configuration plus flags, and scans of many paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rlprobe import catalog
from rlprobe.cli.output import complain
from rlprobe.cli.progress import reading
from rlprobe.config import Config
from rlprobe.errors import InputError
from rlprobe.exit_codes import UNREADABLE
from rlprobe.findings import ScanReport
from rlprobe.importers import open_runs
from rlprobe.importers.faults import fault
from rlprobe.importers.looked_at import beside
from rlprobe.scan.engine import scan
from rlprobe.store.layout import recordings_in
from rlprobe.store.run import Run


@dataclass
class Scans:
    """What could be scanned, and the paths that could not be read."""

    reports: list[ScanReport] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def exit_code(self, judged: int) -> int:
        """The judgement's own code, unless a path could not be read."""
        return UNREADABLE if self.unread or not self.reports else judged


def configuration(
    file: Path | None,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    detectors: Sequence[Path] | None = None,
) -> Config:
    """The project's configuration; detectors selected by a flag replace its selection.

    Raises:
        ConfigError, DetectorError: a bad file, or an id that no detector has.
    """
    config = Config.load(file)
    folders = (*config.detector_folders, *(detectors or ()))
    chosen, left_out = _ids(select, folders), _ids(ignore, folders)
    if chosen:
        config = replace(config, select=chosen, ignore=())
    return replace(config, ignore=(*config.ignore, *left_out), detector_folders=folders)


def _ids(words: Sequence[str] | None, folders: Sequence[Path]) -> tuple[str, ...]:
    split = [part.strip() for word in words or () for part in word.split(",")]
    return tuple(catalog.get(part, folders).id for part in split if part)


class Place(NamedTuple):
    """What is to be scanned, and what is to be said of what lies beside it."""

    path: str
    note: str = ""


def places(paths: Sequence[str]) -> list[Place]:
    """The paths, with the recordings of a directory one by one: a bad one loses no other."""
    wanted: list[Place] = []
    for path in paths:
        recordings = recordings_in(Path(path))
        if len(recordings) > 1:
            first, *others = map(str, recordings)
            wanted.append(Place(first, beside(recordings, Path(path))))
            wanted += map(Place, others)
        else:
            wanted.append(Place(path))
    return wanted


def scan_all(places: Sequence[Place], config: Config, step_key: str | None = None) -> Scans:
    """Scan every run at every place; one that cannot be read is named on stderr and passed over."""
    done = Scans()
    for place in places:
        try:
            with reading():
                runs = open_runs(place.path, step_key)
        except InputError as error:
            _pass_over(place.path, error, done)
            continue
        for run in runs:
            _scan_into(done, run, config, place.note)
    return done


def _scan_into(done: Scans, run: Run, config: Config, note: str) -> None:
    try:
        report = scan(run, config)
        notes = (*report.run.notes, note) if note else report.run.notes
        done.reports.append(replace(report, run=replace(report.run, notes=notes)))
    except InputError as error:
        _pass_over(run.info.path, error, done)
    except Exception as error:  # the others are scanned all the same
        failed = fault(f"Couldn't scan '{run.info.path}'", error)
        failed.__cause__ = error
        _pass_over(run.info.path, failed, done)


def _pass_over(path: str, error: InputError, done: Scans) -> None:
    complain(error)
    done.unread.append(path)
