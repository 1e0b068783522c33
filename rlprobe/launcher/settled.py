"""What a scan of the output has takes the place of what was recorded as it came, where they differ.

Times stay: a row that gets another step keeps its place in time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlprobe import schema
from rlprobe.recorder import replacing
from rlprobe.recorder.recorder import Recorder
from rlprobe.store import codec
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording
from rlprobe.store.table import TableRun
from rlprobe.values import BoolArray, Event, FloatArray, IntArray

_OF_THE_LAUNCHER = frozenset({"halted", "crash"})  # it sees itself how the command ends


def settle(recorder: Recorder, run: TableRun) -> None:
    """Record a run of the output, all of it.

    Args:
        recorder: the launcher's, which alone has recorded in this attempt.
        run: the same output as a scan of it has it.
    """
    recorder.flush()
    recorded = Recording(recorder.run_dir)
    rows = recorded.steps.attempt == recorder.attempt
    tables: dict[str, pa.Table] = {}
    times = _times(recorded.steps.time[rows], run.steps.step)
    if not _are_same(recorded.steps, rows, run.steps):
        tables["steps"] = _metrics("steps", run.steps, recorder.attempt, times)
    if len(run.ranks):
        of_ranks = np.interp(run.ranks.step, run.steps.step, times)
        tables["ranks"] = _metrics("ranks", run.ranks, recorder.attempt, of_ranks)
    before = [one for one in recorded.events if one.attempt == recorder.attempt and one.rank < 0]
    events = _events(before, run.events, recorder.attempt)
    if events != before:
        tables["events"] = codec.rows("events", map(codec.event_row, events))
    if tables:
        replacing.replace(recorder, tables)
    changes = {"framework": run.info.framework, "algorithm": run.info.algorithm}
    recorder.describe(
        **{name: value for name, value in changes.items() if value},
        config=dict(run.info.settings),
    )


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


def _metrics(table: str, frame: Frame, attempt: int, times: FloatArray) -> pa.Table:
    keys = {
        "step": frame.step,
        "attempt": np.full(len(frame), attempt),
        "rank": frame.rank,
        "time": times,
    }
    columns = {codec.metric_name(table, name): frame.load(name) for name in frame.names}
    return codec.metrics(table, keys, columns)


def _events(recorded: list[Event], of_the_output: tuple[Event, ...], attempt: int) -> list[Event]:
    """The launcher's own events, and those of the output with the time at which they came."""
    kinds = {known.kind for known in schema.messages()} - _OF_THE_LAUNCHER
    came = {(one.kind, one.message): one.time for one in reversed(recorded)}
    kept = [one for one in recorded if one.kind not in kinds]
    latest = max((one.time for one in kept), default=float("nan"))
    told = [
        replace(one, attempt=attempt, time=came.get((one.kind, one.message), latest))
        for one in of_the_output
        if one.kind not in _OF_THE_LAUNCHER
    ]
    return [*kept, *told] if told or len(kept) < len(recorded) else recorded
