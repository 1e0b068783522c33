"""What a scan of the output has takes the place of what was recorded as it came, where they differ.

Times stay: a row that gets another step keeps its place in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlprobe import schema
from rlprobe.recorder import replacing
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import codec, manifest
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, Event, FloatArray, IntArray

_OF_THE_LAUNCHER = frozenset({"halted", "crash"})  # it sees itself how the command ends


def settle(recorder: Recorder, rank: int, run: TableRun) -> None:
    """Record a run of the output, all of it; each launch that the output tells is an attempt.

    Args:
        recorder: the launcher's, which alone has recorded in this attempt.
        rank: under which it tells events.
        run: the same output as a scan of it has it.
    """
    recorder.flush()
    recorded = Recording(recorder.run_dir)
    first = recorder.attempt
    numbers = [launch.number for launch in run.info.attempts] or [1]
    if len(numbers) > 1 and manifest.latest_attempt(Path(recorder.run_dir)) != first:
        return  # somebody else launched again, and knows it better
    rows = recorded.steps.attempt == first
    times = _times(recorded.steps.time[rows], run.steps.step)
    are_same = len(numbers) == 1 and _are_same(recorded.steps, rows, run.steps)
    own = [one for one in recorded.events if (one.attempt, one.rank) == (first, rank)]
    ended = "completed"
    for number in numbers:
        launch = _Launch(run, number, numbers[-1], first + number - 1, times)
        tables = {} if are_same else launch.steps()
        tables |= launch.ranks()
        events = _events(own if number == 1 else [], launch.events(), own)
        if events != (own if number == 1 else []):
            tables["events"] = codec.rows("events", map(codec.event_row, events))
        if number > 1:
            replacing.move(recorder, Attempt(launch.attempt, started=launch.started()), ended)
        if tables:
            replacing.replace(recorder, tables)
        ended = "crashed" if any(one.kind == "crash" for one in events) else "completed"
    changes = {"framework": run.info.framework, "algorithm": run.info.algorithm}
    recorder.describe(
        **{name: value for name, value in changes.items() if value},
        config=dict(run.info.settings),
    )


@dataclass(frozen=True, slots=True)
class _Launch:
    """One launch of a run, as it is recorded.

    Attributes:
        number, last: which it is in the output, and how many there are.
        attempt: under which it is recorded.
        times: of the run's rows.
    """

    run: TableRun
    number: int
    last: int
    attempt: int
    times: FloatArray

    @property
    def _rows(self) -> BoolArray:
        rows: BoolArray = self.run.steps.attempt == self.number
        return rows

    def started(self) -> float:
        """When its first row came."""
        times = self.times[self._rows]
        return float(times[0]) if len(times) else math.nan

    def steps(self) -> dict[str, pa.Table]:
        """Its rows."""
        rows = self._rows
        return {"steps": _metrics("steps", self.run.steps, rows, self.attempt, self.times[rows])}

    def ranks(self) -> dict[str, pa.Table]:
        """The rows of its ranks, if there are any."""
        frame, rows = self.run.ranks, self._rows
        own = frame.attempt == self.number
        if not own.any():
            return {}
        steps, times = self.run.steps.step[rows], self.times[rows]
        of_ranks = np.interp(frame.step[own], steps, times) if len(steps) else frame.time[own]
        return {"ranks": _metrics("ranks", frame, own, self.attempt, of_ranks)}

    def events(self) -> list[Event]:
        """What is told of it; how the last one ended, the launcher sees itself."""
        ends = _OF_THE_LAUNCHER if self.number == self.last else frozenset[str]()
        return [
            replace(one, attempt=self.attempt)
            for one in self.run.events
            if one.attempt == self.number and one.kind not in ends
        ]


def _are_same(recorded: Frame, rows: BoolArray, run: Frame) -> bool:
    """Whether rows that were recorded say what the run says."""
    before, after = _logged(recorded, rows), _logged(run, np.ones(len(run), np.bool_))
    return (
        np.array_equal(recorded.step[rows], run.step)
        and before.keys() == after.keys()
        and all(np.array_equal(column, after[name]) for name, column in before.items())
    )


def _logged(frame: Frame, rows: BoolArray) -> dict[str, NDArray[np.uint64]]:
    """The metrics that rows have: each value, bit by bit, and whether it is one."""
    columns = {}
    for name in frame.names:
        values, valid = (part[rows] for part in frame.load(name))
        if valid.any():
            bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
            columns[name] = np.stack([np.where(valid, bits, 0), valid.astype(np.uint64)])
    return columns


def _times(recorded: FloatArray, steps: IntArray) -> FloatArray:
    """A time for each step, in the order of those that were recorded."""
    if not len(recorded):
        return np.full(len(steps), np.nan)
    places = np.linspace(0, len(recorded) - 1, len(steps))
    times: FloatArray = np.interp(places, np.arange(len(recorded)), np.sort(recorded))
    return times


def _metrics(
    table: str, frame: Frame, rows: BoolArray, attempt: int, times: FloatArray
) -> pa.Table:
    keys = {
        "step": frame.step[rows],
        "attempt": np.full(int(rows.sum()), attempt),
        "rank": frame.rank[rows],
        "time": times,
    }
    columns = {}
    for name in frame.names:
        values, valid = frame.load(name)
        columns[codec.metric_name(table, name)] = values[rows], valid[rows]
    return codec.metrics(table, keys, columns)


def _events(recorded: list[Event], messages: list[Event], came: list[Event]) -> list[Event]:
    """The launcher's own events, and messages of the output with the time at which they came.

    Args:
        recorded: in this attempt, so far.
        messages: as a scan has them.
        came: all that was recorded while the output came.
    """
    kinds = {known.kind for known in schema.messages()} - _OF_THE_LAUNCHER
    times = {(one.kind, one.message): one.time for one in reversed(came)}
    own = [one for one in recorded if one.kind not in kinds]
    latest = max((one.time for one in came), default=math.nan)
    timed = [replace(one, time=times.get((one.kind, one.message), latest)) for one in messages]
    return [*own, *timed] if timed or len(own) < len(recorded) else recorded
