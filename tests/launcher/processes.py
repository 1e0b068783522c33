"""`rlprobe record` as a process: started, waited for, and what it left."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORD = [
    sys.executable,
    "-c",
    "import sys; from rlprobe.cli import main; sys.exit(main())",
    "record",
]
# What any Python of ours needs, and nothing of an outer recording or of pytest.
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith("RLPROBE_")},
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "1",
}


def python(code: str, *arguments: str) -> list[str]:
    """A command that runs this code, unbuffered."""
    return [sys.executable, "-u", "-c", textwrap.dedent(code), *arguments]


def start(run_dir: Path, *command: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a recorded command in a session of its own."""
    given = {"env": ENVIRONMENT, "start_new_session": True, **options}
    return subprocess.Popen([*RECORD, "--run", str(run_dir), "--", *command], **given)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that comes by itself."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def read_until(terminal: int, pattern: bytes, shown: bytes = b"") -> bytes:
    """What a terminal shows, until a pattern is in it."""
    while not re.search(pattern, shown):
        shown += os.read(terminal, 4096)
    return shown


def in_terminal(*command: str) -> tuple[int, int]:
    """Start a command in a terminal of its own; its process id, and our end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, ENVIRONMENT)
    return pid, terminal


def ended(pid: int, terminal: int) -> int:
    """The exit code of a command in a terminal."""
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status)
