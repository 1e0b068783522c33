"""Detector cases: a tiny run written down in TOML, and what a detector must say about it.

A file `<id in lower case>.toml` is a list of `[[case]]`:

    name       what is special about it, in a few words
    rows       number of rows (120); their steps are first, first + interval, …
    first      first step (1)
    interval   distance between steps (1)
    framework  who wrote the metrics (none)
    columns    metric = generator (see below)
    ranks      rank = { metric = generator }
    settings   setting = value
    events     list of { kind, step, attempt, rank, message, data }
    attempts   list of { number, ended, first_step, last_step }; where all have steps, the rows are
               theirs, and steps that several have were logged by each
    samples    list of { step, … } fields of a rollout
    knobs      knob = value
    tags       what the case stands for: "look-alike" for a healthy run that resembles a sick one

and one verdict:

    fires         list of what is found, at least; fields that are given must match. A step may be
                  given as [from, to].
    quiet         true: nothing at warning or above
    inconclusive  true: the detector says that it has too little data
    not_checked   true: a metric that it needs is missing

A generator is a list of values ("-" = not logged at that row) or a table:

    level      constant value (0), or
    ramp       [from, to] over the run
    noise      standard deviation around that; of the logarithm with log = true
    seed       of the noise (0)
    set        list of changes, in order: { at = step } or { from = step, to = step, every = rows },
               with value, times, add or ramp = [from, to]; value = "-" for not logged
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe.errors import InputError
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray, Rollout

Case = Mapping[str, Any]
Column = tuple[FloatArray, BoolArray]

VERDICTS = ("fires", "quiet", "inconclusive", "not_checked")
_FIELDS = (
    "name rows first interval framework columns ranks settings events attempts samples knobs tags"
)
KEYS = frozenset((*_FIELDS.split(), *VERDICTS))
_MISSING = "-"


def load_cases(path: str | Path) -> list[dict[str, Any]]:
    """The cases of one file.

    Raises:
        InputError: it cannot be read, is no TOML, or holds no list of cases.
    """
    try:
        cases: list[dict[str, Any]] = tomllib.loads(Path(path).read_text(encoding="utf-8"))["case"]
    except OSError as error:
        raise InputError(f"Couldn't read the cases in '{path}': {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"Couldn't read the cases in '{path}': {error}") from error
    except KeyError as error:
        raise InputError(f"Couldn't read the cases in '{path}': there is no [[case]]") from error
    return cases


def run_of(case: Case) -> TableRun:
    """The run that a case describes."""
    steps = _steps(case)
    events = tuple(Event(**{"step": None, **event}) for event in case.get("events", ()))
    info = RunInfo(
        path="case",
        id=case["name"],
        source="recording",
        framework=case.get("framework"),
        settings=case.get("settings", {}),
        attempts=tuple(Attempt(**attempt) for attempt in case.get("attempts", ())),
    )
    rollouts = [Rollout(**rollout) for rollout in case.get("samples", ())]
    return TableRun(
        info, _frame(case, steps), ranks=_ranks(case, steps), events=events, rollouts=rollouts
    )


def _steps(case: Case) -> IntArray:
    lengths = [len(spec) for spec in case.get("columns", {}).values() if isinstance(spec, list)]
    rows = int(case.get("rows", lengths[0] if lengths else 120))
    interval = int(case.get("interval", 1))
    return int(case.get("first", 1)) + interval * np.arange(rows, dtype=np.int64)


def _frame(case: Case, steps: IntArray) -> Frame:
    columns = {name: _column(spec, steps) for name, spec in case.get("columns", {}).items()}
    launches = case.get("attempts", ())
    if len(launches) < 2 or not all({"first_step", "last_step"} <= set(item) for item in launches):
        return frame_of(steps, columns)
    spans = [(steps >= item["first_step"]) & (steps <= item["last_step"]) for item in launches]
    rows = np.concatenate([np.flatnonzero(span) for span in spans])
    attempt = np.repeat([item["number"] for item in launches], [span.sum() for span in spans])
    chosen = {name: (values[rows], valid[rows]) for name, (values, valid) in columns.items()}
    return frame_of(steps[rows], chosen, attempt=attempt.astype(np.int64))


def _ranks(case: Case, steps: IntArray) -> Frame | None:
    ranks = case.get("ranks", {})
    if not ranks:
        return None
    names = sorted({name for columns in ranks.values() for name in columns})
    absent: Column = (np.full(len(steps), np.nan), np.zeros(len(steps), dtype=np.bool_))
    parts = {
        name: [_column(own[name], steps) if name in own else absent for own in ranks.values()]
        for name in names
    }
    return frame_of(
        np.tile(steps, len(ranks)),
        {
            name: (
                np.concatenate([values for values, _ in part]),
                np.concatenate([valid for _, valid in part]),
            )
            for name, part in parts.items()
        },
        rank=np.repeat([int(rank) for rank in ranks], len(steps)).astype(np.int64),
    )


def _column(spec: Any, steps: IntArray) -> Column:
    """Values and validity of one generated metric."""
    if isinstance(spec, list):
        valid = np.array([value != _MISSING for value in spec])
        return np.array([np.nan if value == _MISSING else value for value in spec], float), valid
    values = _base(spec, len(steps))
    valid = np.ones(len(steps), dtype=np.bool_)
    for change in spec.get("set", ()):
        _change(values, valid, steps, change)
    return values, valid


def _base(spec: Mapping[str, Any], rows: int) -> FloatArray:
    ends = spec["ramp"] if "ramp" in spec else [spec["level"], spec["level"]]
    level = _ramp(ends, rows)
    noise = np.random.default_rng(spec.get("seed", 0)).normal(0, spec.get("noise", 0), rows)
    values: FloatArray = level * np.exp(noise) if spec.get("log") else level + noise
    return values


def _ramp(ends: list[float], rows: int) -> FloatArray:
    return np.linspace(ends[0], ends[1], rows)


def _change(
    values: FloatArray, valid: BoolArray, steps: IntArray, change: Mapping[str, Any]
) -> None:
    first = change.get("at", change.get("from"))
    last = change.get("at", change.get("to", int(steps[-1])))
    rows = np.flatnonzero((steps >= first) & (steps <= last))[:: change.get("every", 1)]
    if change.get("value") == _MISSING:
        valid[rows] = False
    elif "value" in change:
        values[rows] = change["value"]
    elif "times" in change:
        values[rows] *= change["times"]
    elif "ramp" in change:
        values[rows] = _ramp(change["ramp"], len(rows))
    else:
        values[rows] += change["add"]
