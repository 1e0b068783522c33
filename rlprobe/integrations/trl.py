"""Record a Hugging Face `Trainer` or any of TRL's trainers.

    from rlprobe.integrations.trl import attach

    trainer = GRPOTrainer(...)
    attach(trainer, "runs/my-run")
    trainer.train()

Under `rlprobe record` this happens by itself, and the launcher's directory is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlprobe import environment
from rlprobe.integrations import _run_dirs as run_dirs
from rlprobe.recorder import Recorder
from rlprobe.taps.hub import HUB

if TYPE_CHECKING:
    from rlprobe.integrations._session import Session


def attach(
    trainer: Any, run_dir: str | os.PathLike[str] | None = None, **recorder_options: Any
) -> Recorder:
    """Record this trainer from now on: scalars, every rank's own, gradients, weights, rollouts.

    Training itself is not changed: same weights, same random numbers. Attaching twice is the same
    as once. The recording is closed when `train` returns or raises.

    Args:
        trainer: a `transformers.Trainer` or a subclass, on every rank.
        run_dir: where to record. Under `rlprobe record` its directory is used instead; without
            either, `rlprobe` in the trainer's output directory.
        recorder_options: for `Recorder`: `samples`, `flush_seconds`, `config`, ….

    Raises:
        InputError: the directory cannot be created or written.
        UsageError: an option makes no sense.
    """
    return session_of(trainer, run_dir, **recorder_options).recorder


def session_of(
    trainer: Any, run_dir: str | os.PathLike[str] | None = None, **recorder_options: Any
) -> Session:
    """The trainer's session; a new one the first time."""
    from rlprobe.integrations._callback import RecorderCallback
    from rlprobe.integrations._session import Session

    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, RecorderCallback) and callback.session is not None:
            known: Session = callback.session
            return known
    launched = os.environ.get(environment.RUN)
    if launched:
        HUB.make_way()
        place = run_dirs.of_trainer(Path(launched), trainer)
    else:
        place = Path(run_dir or Path(trainer.args.output_dir) / "rlprobe")
    session = Session(trainer, place, recorder_options)
    trainer.add_callback(RecorderCallback(session))
    return session
