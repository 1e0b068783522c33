"""MLflow: SQLite stores, and file stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.points import Points, rows_of
from rlprobe.importers.source import Source
from rlprobe.importers.trackers.mlflow_files import FileRun, file_runs
from rlprobe.importers.trackers.sqlite_file import Database, has_columns, opened
from rlprobe.values import Event, Problem

_LARGEST = 1.7976931348623157e308  # what MLflow stores for an infinite value
_SYSTEM = "system/"  # MLflow's own machine metrics: their step counts samples of the machine
_NEEDED = ("run_uuid", "key", "value", "timestamp", "step", "is_nan")
_ENDS = {"FAILED": "crash", "KILLED": "halted"}


class MLflow(Importer):
    """MLflow stores: SQLite (`mlflow.db`, `mlruns.db`) and files (`mlruns/<experiment>/<run>`).

    A store holds many runs; deleted ones are left out. In SQLite a NaN is a zero with a mark beside
    it, and an infinite value is the largest double; both become what they were. Points are put in
    order of time, so that a run that was resumed under its id shows its restart. Machine metrics
    (`system/…`), whose steps are not the trainer's, are left out.

    Source: mlflow/store/tracking/{sqlalchemy_store,file_store}.py.
    """

    name = "mlflow"
    description = "MLflow stores: mlflow.db, or a folder mlruns/<experiment>/<run>"
    priority = 25

    def recognises(self, source: Source) -> bool:
        """An SQLite database with MLflow's tables."""
        return has_columns(source, "metrics", *_NEEDED)

    def read(self, source: Source) -> list[Reading]:
        """Every run in a database."""
        with opened(source.path) as database:
            if not database.columns("metrics") >= set(_NEEDED):
                raise InputError(f"Couldn't read '{source.path}': no MLflow table of metrics")
            runs = _runs(database)
            _add_points(database, runs)
        return _readings(source.path, runs.values())

    def claims(self, directory: Path) -> list[Path]:
        """The files of a directory that is a store, an experiment or a run of one."""
        return [path for run in file_runs(directory) for path in run.files()]

    def read_folder(self, directory: Path) -> list[Reading]:
        """Every run in a file store."""
        return _readings(directory, [_from_files(run) for run in file_runs(directory)])


@dataclass
class _Run:
    id: str
    name: str
    status: str = ""
    ended: float = float("nan")
    settings: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int, float, float]] = field(default_factory=list)
    bad: int = 0

    def add(self, key: str, step: object, millis: object, value: object) -> None:
        """Take one point."""
        match step, millis, value:
            case int(), int() | float(), int() | float() if abs(step) < 2**62:
                number = self.keys.setdefault(key, len(self.keys))
                self.rows.append((number, step, millis / 1000.0, float(value)))
            case _:
                self.bad += 1

    def points(self) -> Points:
        """All points in order of time."""
        points = Points.of(*zip(*self.rows, strict=True))
        return points.take(np.argsort(points.time, kind="stable"))

    def events(self) -> list[Event]:
        """How the run ended, where MLflow says so."""
        kind = _ENDS.get(self.status)
        if kind is None:
            return []
        return [Event(kind, None, time=self.ended, message=f"MLflow run status {self.status}")]


def _readings(path: Path, runs: Any) -> list[Reading]:
    known = [run for run in runs if run.rows]
    if not known:
        raise EmptyRunError(f"Couldn't find metrics in '{path}': no run has any")
    names = [run.name for run in known]
    return [_reading(path, run, unique=names.count(run.name) == 1) for run in known]


def _reading(path: Path, run: _Run, *, unique: bool) -> Reading:
    problem = Problem(str(path), f"{run.bad:,} points of run {run.id} left out: not readable")
    return Reading(
        rows=rows_of(list(run.keys), run.points()),
        run=run.name if unique else f"{run.name} ({run.id[:8]})",
        settings=run.settings,
        events=run.events(),
        problems=[problem] if run.bad else [],
    )


def _runs(database: Database) -> dict[str, _Run]:
    columns = database.columns("runs")
    if "run_uuid" not in columns:
        return {}
    wanted = ("name", "status", "end_time", "lifecycle_stage")
    chosen = ", ".join(name if name in columns else "NULL" for name in wanted)
    runs: dict[str, _Run] = {}
    for id_, name, status, ended, stage in database.rows(f"SELECT run_uuid, {chosen} FROM runs"):  # noqa: S608
        if stage != "deleted":
            end = ended / 1000.0 if isinstance(ended, int | float) else float("nan")
            runs[str(id_)] = _Run(str(id_), str(name or id_), str(status or ""), end)
    if database.columns("params") >= {"run_uuid", "key", "value"}:
        for id_, key, value in database.rows("SELECT run_uuid, key, value FROM params"):
            if str(id_) in runs:
                runs[str(id_)].settings[str(key)] = _plain(value)
    return runs


def _add_points(database: Database, runs: Mapping[str, _Run]) -> None:
    sql = "SELECT run_uuid, key, value, timestamp, step, is_nan FROM metrics"
    for id_, key, value, millis, step, is_nan in database.rows(sql):
        run = runs.get(id_)
        if run is not None and not str(key).startswith(_SYSTEM):
            run.add(str(key), step, millis, float("nan") if is_nan else _infinite(value))


def _infinite(value: object) -> object:
    if isinstance(value, float) and abs(value) >= _LARGEST:
        return float("inf") if value > 0 else float("-inf")
    return value


def _plain(value: object) -> Any:
    """A parameter, which MLflow stores as text, as a number where it is one."""
    text = str(value)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False, "None": None}.get(text, text)


def _from_files(run: FileRun) -> _Run:
    settings = {key: _plain(value) for key, value in run.settings.items()}
    found = _Run(run.id, run.name, run.status, run.ended, settings)
    for key, step, millis, value in _file_points(run):
        found.add(key, step, millis, _infinite(value))
    found.bad += run.bad
    return found


def _file_points(run: FileRun) -> Iterator[tuple[str, int, int, float]]:
    for key, step, millis, value in run.points():
        if not key.startswith(_SYSTEM):
            yield key, step, millis, value
