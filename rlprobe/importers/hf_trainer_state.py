"""Hugging Face `trainer_state.json`, and bare `log_history` lists.

Rows of three kinds share one list: training rows, evaluation rows (`eval_…`), and one summary row
at the end (`train_runtime`), which repeats the last step and is left out.
(transformers/trainer_callback.py, TrainerState)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.rows import RowTable, number
from rlprobe.store.table import TableRun
from rlprobe.values import Event, Problem

_SETTINGS = ("max_steps", "logging_steps", "num_train_epochs", "train_batch_size", "save_steps")


class HFTrainerState:
    """Importer of `trainer_state.json`."""

    name = "hf_trainer_state"
    description = "Hugging Face trainer_state.json, or a bare log_history list"

    def recognises(self, path: Path, head: bytes) -> bool:
        """JSON that starts an object or a list, with the keys of a trainer's history."""
        start = head.lstrip()
        if start.startswith(b"["):
            return b'"step"' in head and path.suffix == ".json"
        return start.startswith(b"{") and (
            b'"log_history"' in head or path.name == "trainer_state.json"
        )

    def read(self, path: Path) -> TableRun:
        """The run in the file."""
        raw = _load(path)
        state: Mapping[str, Any] = raw if isinstance(raw, dict) else {"log_history": raw}
        history = state.get("log_history")
        if not isinstance(history, list):
            raise InputError(f"Couldn't read '{path}' as a trainer state: no log_history list")
        table, problems = RowTable(), []
        for index, row in enumerate(history):
            problem = _add(table, row)
            if problem:
                problems.append(Problem(str(path), f"log_history[{index}] left out: {problem}"))
        if not table.steps:
            raise EmptyRunError(f"Couldn't find metrics in '{path}': log_history has no rows")
        settings = {key: state[key] for key in _SETTINGS if key in state}
        return table.run(
            path,
            self.name,
            framework="trl",
            settings=settings,
            events=_checkpoints(path),
            problems=problems,
        )


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"Couldn't read '{path}' as JSON: {error}",
            hint="A file cut by a crash? Give the one in the newest checkpoint-N instead.",
        ) from error


def _add(table: RowTable, row: Any) -> str:
    """Add one row; the reason if it cannot be."""
    if not isinstance(row, dict):
        return "not an object"
    if "train_runtime" in row:
        return ""
    step = number(row.get("step"))
    if step is None or not float(step).is_integer():
        return "no step"
    table.add(int(step), _values(row))
    return ""


def _values(row: Mapping[str, Any]) -> dict[str, float]:
    values = {}
    for key, raw in row.items():
        value = number(raw)
        if key != "step" and value is not None:
            values[key] = value
    return values


def _checkpoints(path: Path) -> Iterator[Event]:
    """Checkpoints that lie beside the file: `checkpoint-N` directories."""
    folder = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
    for entry in sorted(folder.glob("checkpoint-*")):
        number_ = entry.name.removeprefix("checkpoint-")
        if number_.isdigit() and entry.is_dir():
            yield Event("checkpoint", int(number_), message=entry.name, data={"path": str(entry)})
