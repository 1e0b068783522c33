"""Where a command is recorded unless somebody says: a directory that is named after it."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path


def default_run_dir(command: Sequence[str], parent: Path = Path("runs")) -> Path:
    """A new directory `runs/<command name>-<time>`."""
    base = f"{command_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    for name in (base, *(f"{base}-{number}" for number in range(2, 1000))):
        with contextlib.suppress(FileExistsError):
            parent.mkdir(parents=True, exist_ok=True)
            (parent / name).mkdir(mode=0o700)
            return parent / name
    return parent / f"{base}-{uuid.uuid4().hex[:8]}"


def command_name(command: Sequence[str]) -> str:
    """What a person would call the command: the script, the module, or the program."""
    scripts = [word for word in command if word.endswith(".py") and not word.startswith("-")]
    modules = [after for word, after in itertools.pairwise(command) if word == "-m"]
    name = Path(scripts[0]).stem if scripts else ""
    name = name or (modules[0].rpartition(".")[2] if modules else Path(command[0]).name)
    return re.sub(r"[^\w.-]+", "_", name)[:64].strip("._-") or "command"
