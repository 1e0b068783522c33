"""Trackio databases."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source
from rlprobe.importers.step_axis import StepAxis
from rlprobe.importers.trackers.sqlite_file import Database, has_columns, opened
from rlprobe.values import Event, Problem

_NEEDED = ("metrics", "run_name", "step")
_MOST = 2**62  # no step is as large


class Trackio(Importer):
    """Trackio's SQLite databases: one per project, with all its runs.

    They lie in `$TRACKIO_DIR`, or in `~/.cache/huggingface/trackio/<project>.db`. Non-finite
    numbers are stored as words (`"NaN"`, `"Infinity"`). As with W&B, the trainer's step counts
    where a row carries it. The database may be open elsewhere: it is read without touching it, and
    a write-ahead log is taken into account. Alerts that the training raised become events of the
    kind `alert`, which are shown and not judged: their step counts calls of `log`.

    Source: trackio/sqlite_storage.py.
    """

    name = "trackio"
    description = "Trackio databases (<project>.db)"
    priority = 20

    def recognises(self, source: Source) -> bool:
        """An SQLite database with a table of metrics by run name."""
        return has_columns(source, "metrics", *_NEEDED)

    def read(self, source: Source) -> list[Reading]:
        """Every run in the database."""
        with opened(source.path) as database:
            columns = database.columns("metrics")
            if not columns >= set(_NEEDED):
                raise InputError(f"Couldn't read '{source.path}': no Trackio table of metrics")
            runs = _runs(database, columns)
            settings = _settings(database)
            alerts = _alerts(database)
        if not runs:
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no rows")
        return [
            run.reading(
                str(source.path),
                settings.get(key) or settings.get(run.name, {}),
                alerts.get(key, []),
            )
            for key, run in runs.items()
        ]


@dataclass
class _Run:
    name: str
    axis: StepAxis = field(default_factory=lambda: StepAxis("Trackio's own step"))
    bad: int = 0

    def add(self, step: object, text: object) -> None:
        """Take one row; what cannot be read is counted."""
        counted = number(step)
        try:
            row = json.loads(text if isinstance(text, bytes | str) else "")
        except (ValueError, RecursionError):
            row = None
        known = counted is not None and counted.is_integer() and abs(counted) < _MOST
        if not isinstance(row, dict) or counted is None or not known:
            self.bad += 1
            return
        self.axis.add(row, int(counted))

    def reading(self, path: str, settings: dict[str, Any], alerts: list[Event]) -> Reading:
        """All of it."""
        problems = [Problem(path, f"{self.bad:,} rows of {self.name} left out: not readable")]
        return Reading(
            rows=self.axis.table(),
            run=self.name,
            settings={key: value for key, value in settings.items() if not key.startswith("_")},
            events=alerts,
            notes=self.axis.notes(),
            problems=problems if self.bad else [],
        )


def _runs(database: Database, columns: set[str]) -> dict[str, _Run]:
    """By run id where there is one: names may be used again."""
    key = "run_id" if "run_id" in columns else "run_name"
    runs: dict[str, _Run] = {}
    for run, name, step, text in database.rows(
        f"SELECT {key}, run_name, step, metrics FROM metrics ORDER BY rowid"  # noqa: S608
    ):
        runs.setdefault(str(run or name), _Run(str(name))).add(step, text)
    return {key: run for key, run in runs.items() if len(run.axis.table())}


def _settings(database: Database) -> dict[str, dict[str, Any]]:
    columns = database.columns("configs")
    if not columns >= {"run_name", "config"}:
        return {}
    key = "run_id" if "run_id" in columns else "run_name"
    configs: dict[str, dict[str, Any]] = {}
    for run, name, text in database.rows(f"SELECT {key}, run_name, config FROM configs"):  # noqa: S608
        try:
            config = json.loads(text if isinstance(text, bytes | str) else "")
        except (ValueError, RecursionError):
            continue
        if isinstance(config, dict):
            configs[str(run or name)] = config
    return configs


def _alerts(database: Database) -> dict[str, list[Event]]:
    columns = database.columns("alerts")
    if not columns >= {"run_name", "title", "level", "step"}:
        return {}
    key = "run_id" if "run_id" in columns else "run_name"
    alerts: dict[str, list[Event]] = {}
    query = f"SELECT {key}, title, level, step FROM alerts ORDER BY rowid"  # noqa: S608
    for run, title, level, step in database.rows(query):
        data = {"severity": str(level), "by": "trackio", "logged": step}
        alerts.setdefault(str(run), []).append(Event("alert", None, message=str(title), data=data))
    return alerts
