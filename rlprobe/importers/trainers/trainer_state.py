"""Hugging Face `trainer_state.json`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.documents.json_document import load
from rlprobe.importers.importer import Complaints, Importer, Reading
from rlprobe.importers.source import Source
from rlprobe.importers.steps import step_of
from rlprobe.values import Event

_SETTINGS = ("max_steps", "logging_steps", "num_train_epochs", "train_batch_size", "save_steps")


class HFTrainerState(Importer):
    """The state that the Hugging Face Trainer saves with every checkpoint.

    Rows of three kinds share one list: training rows, evaluation rows (`eval_…`), and one summary
    row at the end (`train_runtime`), which repeats the last step and is left out. Checkpoints that
    lie beside the file become restore points. A null is not logged: TRL writes it for a metric
    that was NaN over a whole logging window only since 1.0, and others for what they did not
    measure.

    Source: transformers/trainer_callback.py (TrainerState), trl/trainer/grpo_trainer.py (log).
    """

    name = "hf_trainer_state"
    description = "Hugging Face trainer_state.json"
    priority = 45
    final = True
    whole_run = "trainer_state.json"

    def recognises(self, source: Source) -> bool:
        """JSON that starts an object, with the keys or the name of a trainer's state."""
        return source.head.lstrip().startswith(b"{") and (
            b'"log_history"' in source.head or source.name == self.whole_run
        )

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        raw = load(source)
        history = raw.get("log_history") if isinstance(raw, dict) else None
        if not isinstance(history, list):
            raise InputError(f"Couldn't read '{source.path}' as a trainer state: no log_history")
        reading = Reading(
            framework="trl",
            settings={key: raw[key] for key in _SETTINGS if key in raw},
            events=list(checkpoints_in(_output(source.path))),
        )
        complaints = Complaints(source, "log_history row")
        for index, row in enumerate(history):
            if problem := _add(reading, row):
                complaints.say(f"log_history[{index}] left out: {problem}")
        reading.problems = complaints.all()
        if not len(reading.rows):
            raise EmptyRunError(
                f"Couldn't find metrics in '{source.path}': log_history has no rows"
            )
        return [reading]


def _add(reading: Reading, row: Any) -> str:
    """Add one row; the reason if it cannot be."""
    if not isinstance(row, dict):
        return "not an object"
    if "train_runtime" in row:
        return ""
    step = step_of(row, HFTrainerState.step_keys)
    if step is None:
        return "no step"
    reading.rows.add(step, row)
    return ""


def checkpoints_in(folder: Path) -> Iterator[Event]:
    """The checkpoints that the Trainer left in its output directory: `checkpoint-N`."""
    found = [entry for entry in folder.glob("checkpoint-*") if entry.is_dir()]
    numbered = [(entry.name.removeprefix("checkpoint-"), entry) for entry in found]
    for number, entry in sorted((int(n), entry) for n, entry in numbered if n.isdigit()):
        yield Event("checkpoint", number, message=entry.name, data={"path": str(entry)})


def _output(path: Path) -> Path:
    """The Trainer's output directory, by the state's own place in it."""
    return path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
