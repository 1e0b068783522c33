"""How `rlprobe record` gets into the training process: by `sitecustomize.py` in this folder.

The launcher puts this folder first on PYTHONPATH. Every Python process that starts then runs
`sitecustomize`, which waits for modules to be imported that `rlprobe.taps` can tap; the tap of
`transformers.trainer` calls `patch` here. Nothing in this file is heavy to import, and nothing of
it raises into the child.
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

from rlprobe import environment
from rlprobe._version import __version__

FOLDER = Path(__file__).parent


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


def report_python(*, error: str | None) -> None:
    """Tell the launcher about this Python; the last word about a process counts."""
    status = os.environ.get(environment.STATUS)
    if not status:
        return
    content = {"executable": sys.executable, "rlprobe": __version__, "error": error}
    with contextlib.suppress(OSError):
        path = Path(status) / f"python-{os.getpid()}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
