"""rlwatch databases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import Source
from rlprobe.importers.steps import step_number
from rlprobe.importers.trackers.sqlite_file import Database, has_columns, opened
from rlprobe.values import Event, Problem

_METRICS = (
    "entropy",
    "kl_divergence",
    "reward_mean",
    "reward_std",
    "reward_min",
    "reward_max",
    "advantage_std",
    "loss",
    "learning_rate",
    "clip_fraction",
    "grad_norm",
)
_NEEDED = ("run_id", "step", "entropy", "kl_divergence", "extra_json")
# The detector that says of a metric that it is not finite.
_NAN_OF = {"loss": "loss_nan", "grad_norm": ""}
_OFTEN = tuple(_NAN_OF)
_FEW = 0.1  # of the rows: then a metric that is missing was dropped


class RLWatch(Importer):
    """rlwatch's SQLite databases (`rlwatch_logs/metrics.db`): one run for each `run_id`.

    SQLite keeps NaN as NULL, so that a loss that was NaN looks like one that was not logged. Where
    rlwatch raised its alert for it, and where a row lacks the loss or the gradient norm that nine
    in ten have, it is NaN again, and the notes say so. What else was logged (`extra_json`) keeps
    its own names. Alerts become events of the kind `alert`, which are shown and not judged.

    Source: rlwatch/storage.py (schema versions 1 and 2).
    """

    name = "rlwatch"
    description = "rlwatch databases (rlwatch_logs/metrics.db)"
    priority = 22

    def recognises(self, source: Source) -> bool:
        """An SQLite database with its table of metrics."""
        return has_columns(source, "metrics", *_NEEDED)

    def read(self, source: Source) -> list[Reading]:
        """Every run in the database."""
        with opened(source.path) as database:
            if not database.columns("metrics") >= set(_NEEDED):
                raise InputError(f"Couldn't read '{source.path}': no rlwatch table of metrics")
            alerts = _alerts(database)
            runs = _runs(database, alerts)
            settings = _settings(database)
        if not runs:
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no rows")
        return [run.reading(str(source.path), settings.get(name, {})) for name, run in runs.items()]


@dataclass
class _Run:
    name: str
    alerts: list[Event]
    steps: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad: int = 0

    def add(self, step: object, row: dict[str, Any]) -> None:
        """Take one row."""
        counted = step_number(step)
        if counted is None:
            self.bad += 1
        else:
            self.steps.append(counted)
            self.rows.append(row)

    def reading(self, path: str, settings: Mapping[str, Any]) -> Reading:
        """All of it."""
        notes = [note for key in _OFTEN if (note := self._restore(key))]
        table = RowTable()
        for step, row in zip(self.steps, self.rows, strict=True):
            table.add(step, row)
        problem = Problem(path, f"{self.bad:,} rows of {self.name} left out: no step")
        return Reading(
            rows=table,
            run=self.name,
            settings=settings,
            events=self.alerts,
            notes=notes,
            problems=[problem] if self.bad else [],
        )

    def _restore(self, key: str) -> str:
        """NaN where SQLite kept it as nothing; how often."""
        lacking = [place for place, row in enumerate(self.rows) if number(row.get(key)) is None]
        if len(lacking) > _FEW * len(self.rows):
            told = {event.step for event in self.alerts if event.data["detector"] == _NAN_OF[key]}
            lacking = [place for place in lacking if self.steps[place] in told]
        for place in lacking:
            self.rows[place][key] = float("nan")
        return f"`{key}` is missing in {len(lacking):,} rows: it was not finite" if lacking else ""


def _runs(database: Database, alerts: Mapping[str, list[Event]]) -> dict[str, _Run]:
    there = [name for name in _METRICS if name in database.columns("metrics")]
    runs: dict[str, _Run] = {}
    chosen = ", ".join(("run_id", "step", "extra_json", *there))
    for name, step, extra, *values in database.rows(f"SELECT {chosen} FROM metrics ORDER BY id"):  # noqa: S608
        row = {key: value for key, value in zip(there, values, strict=True) if value is not None}
        run = runs.setdefault(str(name), _Run(str(name), alerts.get(str(name), [])))
        run.add(step, {**_object(extra), **row})
    return {name: run for name, run in runs.items() if run.rows}


def _alerts(database: Database) -> dict[str, list[Event]]:
    needed = ("run_id", "step", "timestamp", "detector", "severity", "message")
    if not database.columns("alerts") >= set(needed):
        return {}
    alerts: dict[str, list[Event]] = {}
    rows = database.rows(f"SELECT {', '.join(needed)} FROM alerts ORDER BY rowid")  # noqa: S608
    for name, step, time, detector, severity, message in rows:
        at = number(time)
        event = Event(
            "alert",
            step_number(step),
            time=float("nan") if at is None else at,
            message=str(message),
            data={"detector": str(detector), "severity": str(severity), "by": "rlwatch"},
        )
        alerts.setdefault(str(name), []).append(event)
    return alerts


def _settings(database: Database) -> dict[str, dict[str, Any]]:
    if not database.columns("runs") >= {"run_id", "framework"}:
        return {}
    rows = database.rows("SELECT run_id, framework FROM runs")
    return {str(name): {"framework": framework} for name, framework in rows if framework}


def _object(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
