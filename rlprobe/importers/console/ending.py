"""How a run ended, as the last lines of its output tell."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from rlprobe import schema
from rlprobe.importers.console.prefixes import ANSI, RANK, RAY
from rlprobe.values import Event

# What torchrun and accelerate say of a worker's failure comes last and tells nothing of its cause.
REPORT_OF_LAUNCHER = re.compile(
    r"ChildFailedError|torch[./]distributed[./]elastic|CalledProcessError: Command"
)
_LINES, _CHARACTERS = 400, 2_000  # kept of what came after the last row, and of each line
_SHOWN, _QUOTED = 20, 300  # lines that enter the event, and characters of each
_LAST, _PLAIN = 3, 12  # lines that may name an exception; lines of text that may follow a failure
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)|Exception)\b(?:\(\w+\))?(?::|\s*$)"
)
_LABEL = re.compile(r"^(?:\[\d,\d{1,6}\]<std(?:out|err)>:|\d{1,6}: )")  # of mpirun, of srun
_STOPPED = re.compile(
    r"\*\*\* STEP .{1,160}CANCELLED AT \S{1,40} \*\*\*|task[s ].{1,80}: Terminated"
)
_FRAME = re.compile(r'\bFile "([^"]*)"')
_PRINTED = re.compile(r"<|/tmp/|/dev/shm/")  # programs that the policy wrote, run by its reward
_AFTERMATH = re.compile(
    r"\s|$|\[|[-=*~^]{3}|frame #|wandb|slurm|srun|[EWI]\d{4} |.*(?:Error|Exception|exit|Signal|"
    r"Traceback|File \"|CUDA|NCCL|pid|rank|terminate|multiprocessing|resource_tracker)|.*%\|",
    re.IGNORECASE,
)
_DOCUMENT = ("}", "]", "</html>")  # the last line of a notebook or a page, which is no terminal
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class LastWords:
    """What was printed since the last row of metrics."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)

    def add(self, lines: Sequence[str]) -> None:
        """Lines, in order."""
        self._lines.extend(line[:_CHARACTERS] for line in lines[-4 * _LINES :] if line)

    def clear(self) -> None:
        """The run has gone on."""
        self._lines.clear()

    def event(self, step: int | None, *, followed: bool = False) -> Event | None:
        """The `crash` or `halted` event that they tell of; None where they tell of no end.

        Told are an exception that nobody caught, running out of memory, a collective that timed
        out, a signal, and a job that its scheduler ended; all only where little else follows.

        Args:
            followed: whether the run was launched again, so that what follows is of another launch.
        """
        lines = [_clean(line) for line in self._lines]
        spoken = [line for line in lines if line.strip()]
        most = len(lines) if followed else _PLAIN
        start = None if spoken and spoken[-1] in _DOCUMENT else _failure_at(lines, most)
        if start is None:
            return None
        own = [line for line in lines[start:] if not REPORT_OF_LAUNCHER.search(line)]
        if any(_EXCEPTION.match(line) for line in own):  # what died first ended the others
            own = [line for line in own if not _STOPPED.search(line)]
        data: dict[str, Any] = {"tail": [line[:_QUOTED] for line in spoken[-_SHOWN:]]}
        known = schema.classify_failure(own)
        line = next((line for line in own[::-1] if line.strip()), spoken[-1])
        if known is not None:
            failure, line = known
            data |= {"kind": failure.kind, "meaning": failure.meaning, "remedy": failure.remedy}
        kind = "halted" if data.get("kind") == "ended_by_scheduler" else "crash"
        if kind == "halted" and " DUE TO " in line:  # else somebody cancelled the job
            data["signal"] = "SIGTERM"
        return Event(kind, step, message=line.strip()[:_QUOTED], data=data)


def _clean(line: str) -> str:
    """Without colours, control characters, and the prefix of a worker or a rank."""
    text = ANSI.sub("", line) if "\x1b" in line else line
    return _UNPRINTABLE.sub(" ", _LABEL.sub("", RANK.sub("", RAY.sub("", text)))).rstrip()


def _failure_at(lines: Sequence[str], most: int) -> int | None:
    """The line at which the failure begins after which at most so many lines of text follow."""
    begins: list[int] = []
    ends: list[int] = []
    printed: set[int] = set()
    for place, line in enumerate(lines):
        if _TRACEBACK in line:
            end = _raised(lines, place)
            if _is_printed(lines[place:end]):
                printed.add(end)
            else:
                begins.append(place)
                ends.append(end)
        elif any(failure.alone and failure.pattern.search(line) for failure in schema.failures()):
            begins.append(place)
            ends.append(place)
    spoken = [place for place, line in enumerate(lines) if line.strip()]
    last = [place for place in spoken[-_LAST:] if place not in printed]
    named = [place for place in last if _EXCEPTION.match(lines[place])]
    begins += named[:1]
    ends += named[:1]
    after = lines[max(ends) + 1 :] if ends else []
    plain = sum(not _AFTERMATH.match(line) for line in after)
    return min(begins) if begins and plain <= most else None


def _raised(lines: Sequence[str], traceback: int) -> int:
    """The line that names the exception of a traceback, or the last of all."""
    for place in range(traceback + 1, len(lines)):
        if lines[place] and not lines[place][0].isspace() and _TRACEBACK not in lines[place]:
            return place
    return len(lines) - 1


def _is_printed(traceback: Sequence[str]) -> bool:
    """Whether a traceback is that of a program that the policy wrote."""
    files = [match[1] for line in traceback if (match := _FRAME.search(line))]
    return bool(files) and all(_PRINTED.match(name) for name in files)
