"""What was recorded, in one line: rows, ranks, rollouts, and where they came from."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlprobe.launcher import children
from rlprobe.numbers import plural
from rlprobe.store import manifest
from rlprobe.store.recording import Recording

_INSIDE = "rlprobe.Recorder"
OUTPUT = "the output"
_UNCALLED = "none of the calls that are recorded was made"
_TO_DO = (
    "log with a tracker (wandb.log, SummaryWriter, ...) or print metrics by name; "
    "`rlprobe doctor -- COMMAND` tells beforehand"
)


@dataclass(frozen=True, slots=True)
class Account:
    """What the latest attempt of a recording holds.

    Attributes:
        steps: rows of the steps table, one for each step.
        ranks: that recorded.
        sampled: steps with rollouts.
        reported: rows of processes that are no ranks.
        last: the step of the row that was recorded last.
    """

    steps: int
    ranks: int
    sampled: int
    reported: int = 0
    last: int | None = None

    def __str__(self) -> str:
        parts = [plural(self.steps, "row")]
        if self.ranks > 1:
            parts.append(plural(self.ranks, "rank"))
        if self.sampled:
            parts.append(f"{plural(self.sampled, 'step')} with rollouts")
        if self.reported:
            parts.append(f"{plural(self.reported, 'row')} of workers")
        return ", ".join(parts)


def of_recording(run_dir: Path) -> Account:
    """What the latest attempt holds; nothing where it cannot be read."""
    with contextlib.suppress(Exception):
        run = Recording(run_dir)
        attempt = manifest.latest_attempt(run_dir)
        steps = run.steps.step[run.steps.attempt == attempt]
        ranks = run.ranks.rank[run.ranks.attempt == attempt]
        claimed = {one.rank for one in manifest.processes(run_dir, attempt) if one.rank >= 0}
        return Account(
            steps=len(np.unique(steps)),
            ranks=max(len(np.unique(ranks)), len(claimed)),
            sampled=len(run.sample_steps()),
            reported=sum(rows for rows, _ in run.workers.values()),
            last=int(steps[-1]) if len(steps) else None,
        )
    return Account(0, 0, 0)


class Meanwhile(threading.Thread):
    """Says, every so many seconds while the command runs, what has been recorded.

    Args:
        say: called with a line.
    """

    def __init__(self, seconds: float, run_dir: Path, say: Callable[[str], object]) -> None:
        super().__init__(name="rlprobe-account", daemon=True)
        self._seconds, self._run_dir, self._say = seconds, run_dir, say

    def run(self) -> None:
        """Say it as long as the launcher lives."""
        while True:
            time.sleep(self._seconds)
            account = of_recording(self._run_dir)
            latest = "" if account.last is None else f", the last one of step {account.last:,}"
            self._say(f"{account} so far{latest}")


def closing(
    run_dir: str, status: Path, calls: Mapping[str, Sequence[str]], command: Sequence[str] = ()
) -> list[str]:
    """What the recordings of a command have got, one line each.

    Args:
        run_dir: the launcher's; there may be others beside it.
        status: where processes left word.
        calls: whose rows a recording holds, by directory.
        command: that was run.
    """
    inside = dict.fromkeys(map(_whole, children.run_dirs(status)))
    by_place: dict[str, list[str]] = {}
    for place, sources in calls.items():
        by_place.setdefault(_whole(place), []).extend(sources)
    why = _UNCALLED if inside else children.why_outside(status, command)[0]
    lines = []
    for place in dict.fromkeys([_whole(run_dir), *inside]):
        sources = by_place.get(place) or ([_INSIDE] if place in inside else [])
        lines.append(_line(of_recording(Path(place)), _shortest(place), sources, why))
    return lines


def _line(account: Account, shown: str, sources: Sequence[str], why: str) -> str:
    if not account.steps:
        kept = f" ({account})" if account.sampled or account.reported else ""
        return f"0 rows recorded in {shown}{kept}: {why}; {_TO_DO}"
    rows, *more = str(account).split(", ")
    told = f" from {listed(sources)}" if sources else ""
    return f"{', '.join([rows + told, *more])}; recorded in {shown}"


def _whole(place: str) -> str:
    """A directory's one name: a launcher's and a process's may go by different ways."""
    return os.path.realpath(place)


def _shortest(place: str) -> str:
    """Relative to the working directory where that is shorter."""
    with contextlib.suppress(ValueError, OSError):
        return min(os.path.relpath(place), place, key=len)
    return place


def listed(sources: Iterable[str]) -> str:
    """`wandb.log`, `wandb.log and mlflow.log_metric`, ...."""
    *firsts, last = dict.fromkeys(sources)
    return f"{', '.join(firsts)} and {last}" if firsts else last
