"""How the command ended, and what is known of it from outside."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from typing import Any

from rlprobe.importers.console.ending import REPORT_OF_LAUNCHER
from rlprobe.recorder import failure

FIRST_REAL_TIME = int(getattr(signal, "SIGRTMIN", 65))


def name_of(number: int) -> str:
    """A signal's name, those of real time included."""
    with contextlib.suppress(ValueError):
        if number != FIRST_REAL_TIME:
            return signal.Signals(number).name
    return f"SIGRTMIN+{number - FIRST_REAL_TIME}" if number >= FIRST_REAL_TIME else f"{number}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How the command ended.

    Attributes:
        code: what a shell would report.
        killed_by: the signal that killed it.
        halted_by: the signal that somebody sent us to end it.
    """

    code: int
    killed_by: int | None
    halted_by: int | None


def explain(ending: Ending, tail: list[str]) -> dict[str, Any]:
    """What is known of a failure from outside: exit code, signal, last lines, what they mean."""
    name = name_of(ending.killed_by) if ending.killed_by else None
    own_words = [line for line in tail if not REPORT_OF_LAUNCHER.search(line)]
    data = {"exit_code": ending.code, "signal": name, **failure.event_data(tail, own_words)}
    if name is None or data.get("kind", "exception") not in {"exception", "interrupted"}:
        return data
    meaning = f"the command was killed by {name}"
    if ending.killed_by == signal.SIGKILL:
        meaning += "; out of memory, a job limit, or somebody's kill -9"
    remedy = "look into the machine's log (dmesg, the job scheduler) at the time of the end"
    return data | {"kind": "killed", "meaning": meaning, "remedy": remedy, "line": meaning}
