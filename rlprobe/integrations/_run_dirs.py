"""Which directory each trainer of a launch records into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlprobe.taps import slots

_trained: dict[str, list[str]] = {}  # output directories by trainer class, in this process


def of_trainer(run_dir: Path, trainer: Any) -> Path:
    """The directory for this trainer: one launch may train several, and each is a run of its own.

    SFT and then GRPO, in one process or in two, are two runs: the second goes beside the first. The
    same class again in another process is a restart: the same run, in a new attempt. All ranks must
    come to the same answer without asking each other, so output directories, which may hold a
    time, are only compared within a process.
    """
    kind = type(trainer).__name__
    places = _trained.setdefault(kind, [])
    if trainer.args.output_dir not in places:
        places.append(trainer.args.output_dir)
    number = slots.slot_of(f"{kind}.{places.index(trainer.args.output_dir)}")
    return Path(slots.directory(str(run_dir), number))
