"""Runs that trainscope recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.documents.json_document import load
from rlprobe.importers.importer import FolderImporter, Reading
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.importers.source import Source
from rlprobe.values import BoolArray, Event, FloatArray, IntArray, Problem

_GLOBAL, _PLUGINS, _META = "global.arrow", "plugin_metrics.arrow", "meta.json"
# Names that are the vocabulary's, and the factor to its unit.
_NAMES = {
    "loss": ("loss", 1.0),
    "grad_norm_before_clip": ("grad_norm", 1.0),
    "grad_norm_after_clip": ("grad_norm_after_clip", 1.0),
    "lr": ("lr", 1.0),
    "optimizer_v_norm": ("optimizer_v_norm", 1.0),
    "step_time_ms": ("step_time", 0.001),
    "cuda_memory_mb": ("memory_allocated", 1 / 1024),
    "cpu_memory_mb": ("cpu_memory_mb", 1.0),
    "spike_score": ("spike_score", 1.0),
}
_NOUGHT_IS_NOTHING = frozenset(
    {"optimizer_v_norm", "step_time", "memory_allocated", "cpu_memory_mb", "spike_score"}
)
_MOST_LAYERS = 2_000
_NAMED = 20


class TrainScope(FolderImporter):
    """Runs of trainscope: a directory with `meta.json`, `global.arrow`, `layers/` and more.

    The global rows are the run, metrics of plug-ins are `<plug-in>/<metric>`. Times become seconds
    and memory GiB; a nought in a column where nothing was measured (memory without a GPU) is not
    logged. A layer whose gradient held NaN or Inf becomes an event that names it. Directories
    `<run>_rank<N>` are ranks of one run. A stream that was cut by a crash is read up to the cut.

    Source: trainscope/io/writer.py (1.8).
    """

    name = "trainscope"
    description = "trainscope runs (a directory with global.arrow)"
    priority = 19
    folder = True

    def claims(self, directory: Path) -> list[Path]:
        """All files of a run."""
        if not (directory / _GLOBAL).is_file() or not (directory / _META).is_file():
            return []
        others = (path for path in sorted(directory.rglob("*")) if path.is_file())
        return list(dict.fromkeys([directory / _GLOBAL, *others]))

    def read_folder(self, directory: Path) -> list[Reading]:
        """The run in a directory."""
        problems: list[Problem] = []
        steps, columns = _table(directory / _GLOBAL, problems)
        plugins = _plugins(directory / _PLUGINS, problems)
        if not len(steps):
            raise EmptyRunError(f"Couldn't find metrics in '{directory}': no global row")
        reading = Reading(
            rows=ColumnTable(steps, columns),
            settings=_settings(directory / _META),
            events=_bad_layers(directory / "layers", problems),
        )
        for step, row in plugins:
            reading.rows.add(step, row)
        reading.problems = problems
        return [reading]


def _settings(path: Path) -> dict[str, Any]:
    try:
        meta = load(Source(path))
    except InputError:
        return {}
    if not isinstance(meta, dict):
        return {}
    config = meta.get("model_config")
    named = {"model_name": meta["model_name"]} if meta.get("model_name") else {}
    return {**(config if isinstance(config, dict) else {}), **named}


def _columns(path: Path, names: list[str], problems: list[Problem]) -> Columns:
    from rlprobe.store.foreign_arrow import ForeignArrow

    file = ForeignArrow(path, names)
    if file.torn:
        problems.append(Problem(str(path), f"cut off: {file.torn}"))
    return file.numbers()


def _table(path: Path, problems: list[Problem]) -> tuple[IntArray, Columns]:
    """Steps, and metrics under the vocabulary's names and in its units."""
    read = _columns(path, ["step", *_NAMES], problems)
    steps, known = _steps(read)
    columns: Columns = {}
    for key, (name, factor) in _NAMES.items():
        values, valid = read.get(key, (np.zeros(len(known)), np.zeros_like(known)))
        if name in _NOUGHT_IS_NOTHING:
            valid = valid & (values != 0)
        if valid.any():
            columns[name] = values[known] * factor, valid[known]
    return steps, columns


def _steps(read: Columns) -> tuple[IntArray, BoolArray]:
    values, valid = read.get("step", (np.empty(0), np.empty(0, np.bool_)))
    return values[valid].astype(np.int64), valid


def _plugins(path: Path, problems: list[Problem]) -> Iterator[tuple[int, dict[str, float]]]:
    from rlprobe.store.foreign_arrow import ForeignArrow

    if not path.is_file() or not path.stat().st_size:
        return
    try:
        file = ForeignArrow(path, ["step", "plugin", "metric", "value"])
    except InputError as error:
        problems.append(Problem(str(path), str(error)))
        return
    for row in file.rows():
        step, value = row.get("step"), row.get("value")
        if isinstance(step, int) and isinstance(value, float):
            yield step, {f"{row.get('plugin')}/{row.get('metric')}": value}


def _bad_layers(folder: Path, problems: list[Problem]) -> list[Event]:
    """An event for each step at which gradients of layers held NaN or Inf."""
    at: dict[int, list[str]] = {}
    paths = sorted(path for path in folder.glob("*.arrow") if path.is_file())
    for path in paths[:_MOST_LAYERS]:
        try:
            read = _columns(path, ["step", "grad_nan_inf_ratio"], problems)
        except InputError as error:
            problems.append(Problem(str(path), str(error)))
            continue
        steps, known = _steps(read)
        ratio: FloatArray = read.get("grad_nan_inf_ratio", (np.zeros(len(known)), known))[0][known]
        for step in steps[ratio > 0].tolist():
            at.setdefault(step, []).append(unquote(path.stem))
    if len(paths) > _MOST_LAYERS:
        problems.append(Problem(str(folder), f"only the first {_MOST_LAYERS:,} layers were read"))
    return [
        Event(
            "nan_detected",
            step,
            message=f"gradients of {names[0]} and {len(names) - 1} others"
            if names[1:]
            else names[0],
            data={"source": "gradients", "names": names[:_NAMED]},
        )
        for step, names in sorted(at.items())
    ]
