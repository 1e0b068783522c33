"""How `rlprobe record` gets into the training process: by `sitecustomize.py` in this folder.

The launcher puts this folder first on PYTHONPATH. Every Python process that starts then runs
`sitecustomize`, which waits for `transformers.trainer` to be imported and calls `patch` here.
Nothing in this file is heavy to import, and nothing of it raises into the child.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

RUN = "RLPROBE_RUN"
LAUNCH = "RLPROBE_LAUNCH"
STATUS = "RLPROBE_STATUS"
FOLDER = Path(__file__).parent

_trained: dict[str, list[str]] = {}  # output directories by trainer class, in this process
_slots: list[str] = []  # trainings of this process, where there is no status folder


def patch(trainer_module: ModuleType) -> None:
    """Let `Trainer.train` attach its trainer first."""
    trainer_class = trainer_module.Trainer
    original = trainer_class.train

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = _session(self)
        if session is None:
            return original(self, *args, **kwargs)
        return session.run(original.__get__(self), args, kwargs)

    trainer_class.train = train


def _session(trainer: Any) -> Any:
    try:
        from rlprobe.integrations.trl import session_of

        return session_of(trainer)
    except Exception as error:
        report_python(error=f"{type(error).__name__}: {error}")
        return None


def run_dir_of_trainer(run_dir: Path, trainer: Any) -> Path:
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
    status = os.environ.get(STATUS)
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


def report_python(*, error: str | None) -> None:
    """Tell the launcher about this Python; the last word about a process counts."""
    status = os.environ.get(STATUS)
    if not status:
        return
    from rlprobe._version import __version__

    content = {"executable": sys.executable, "rlprobe": __version__, "error": error}
    with contextlib.suppress(OSError):
        path = Path(status) / f"python-{os.getpid()}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
