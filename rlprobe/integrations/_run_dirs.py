"""Which directory each trainer of a launch records into."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rlprobe import environment

_trained: dict[str, list[str]] = {}  # output directories by trainer class, in this process
_slots: list[str] = []  # trainings of this process, where there is no status folder


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
    number = _slot(f"{kind}.{places.index(trainer.args.output_dir)}")
    return run_dir if number == 1 else run_dir.with_name(f"{run_dir.name}-{number}")


def _slot(key: str) -> int:
    """Which of this launch's trainings this is, from 1; links in the status folder agree on it."""
    status = os.environ.get(environment.STATUS)
    number = 1
    while status and number < 1000:
        link = Path(status) / f"trainer-{number}"
        try:
            link.symlink_to(key)  # exclusive, and never seen without its content
        except FileExistsError:
            if str(link.readlink()) == key:
                return number
            number += 1
        except OSError:  # another machine: the folder is not there
            break
        else:
            return number
    if key not in _slots:
        _slots.append(key)
    return _slots.index(key) + 1
