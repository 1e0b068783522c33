"""Parts of one run that were opened one by one -> the run."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlprobe import order_statistics
from rlprobe.importers.formats import named
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import Run
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, FloatArray, IntArray, Rollout, Unread, together

Columns = dict[str, tuple[FloatArray, BoolArray]]


def joined(runs: Sequence[Run]) -> Run:
    """One run of its parts, in the order in which they are given.

    Logs of metrics follow one another; where the steps of one go back, a new attempt begins.
    Rollouts are laid beside them.
    """
    rollouts = [run for run in runs if _holds_rollouts(run)]
    metrics = [run for run in runs if not _holds_rollouts(run)]
    if not metrics:
        return functools.reduce(_followed, rollouts)
    return functools.reduce(with_rollouts, rollouts, functools.reduce(_followed, metrics))


def _holds_rollouts(run: Run) -> bool:
    importer = named(run.info.source)
    return importer is not None and importer.rollouts


def _followed(first: Run, second: Run) -> Run:
    """A log, and the one after it."""
    steps = _stacked(first.steps, second.steps)
    shift = int(steps.attempt[len(first.steps)]) - 1 if len(second.steps) else 0
    info = replace(
        first.info,
        source=" + ".join(dict.fromkeys([first.info.source, second.info.source])),
        framework=first.info.framework or second.info.framework,
        algorithm=first.info.algorithm or second.info.algorithm,
        settings={**first.info.settings, **second.info.settings},
        attempts=_attempts(steps),
        notes=tuple(dict.fromkeys([*first.info.notes, *second.info.notes])),
        unmapped=tuple(sorted({*first.info.unmapped, *second.info.unmapped})),
        unread=together([*_unread(first), *_unread(second)]),
    )
    later = [_shifted(second, step, shift) for step in second.sample_steps()]
    return TableRun(
        info,
        steps,
        ranks=_stacked(first.ranks, second.ranks),
        events=[
            *first.events,
            *(replace(event, attempt=event.attempt + shift) for event in second.events),
        ],
        rollouts=[*_rollouts(first), *(rollout for part in later for rollout in part)],
        problems=[*first.problems, *second.problems],
    )


def _unread(run: Run) -> list[Unread]:
    """What of a part was not understood, and in which file it stands."""
    name = Path(run.info.path).name
    return [
        item if item.files else replace(item, files=(name,) * len(item.examples))
        for item in run.info.unread
    ]


def _rollouts(run: Run) -> list[Rollout]:
    return [rollout for step in run.sample_steps() for rollout in run.rollouts(step)]


def _shifted(run: Run, step: int, shift: int) -> list[Rollout]:
    return [replace(item, attempt=item.attempt + shift) for item in run.rollouts(step)]


def _attempts(frame: Frame) -> tuple[Attempt, ...]:
    numbers = (int(number) for number in order_statistics.distinct(frame.attempt))
    own = ((number, frame.step[frame.attempt == number]) for number in numbers)
    return tuple(
        Attempt(number, first_step=int(steps.min()), last_step=int(steps.max()))
        for number, steps in own
    )


def _stacked(first: Frame, second: Frame) -> Frame:
    if not len(first) or not len(second):
        return first if len(first) else second
    latest = int(first.attempt.max())
    reached = int(first.step[first.attempt == latest].max())
    shift = latest - (int(second.step[0]) > reached)
    columns: Columns = {}
    for name in sorted({*first.names, *second.names}):
        parts = [_column(frame, name) for frame in (first, second)]
        columns[name] = (
            np.concatenate([values for values, _ in parts]),
            np.concatenate([valid for _, valid in parts]),
        )
    return frame_of(
        np.concatenate([first.step, second.step]),
        columns,
        attempt=np.concatenate([first.attempt, second.attempt + shift]),
        rank=np.concatenate([first.rank, second.rank]),
        time=np.concatenate([first.time, second.time]),
    )


def _column(frame: Frame, name: str) -> tuple[FloatArray, BoolArray]:
    if name in frame.names:
        return frame.load(name)
    return np.full(len(frame), np.nan), np.zeros(len(frame), dtype=np.bool_)


def with_rollouts(metrics: Run, rollouts: Run) -> TableRun:
    """The run of `metrics` with the rollouts of the other, which are about the same steps.

    What the rollouts tell of each step is added where the run has no such metric of its own: its
    own counts every completion, and logs keep only some.
    """
    missing = [name for name in rollouts.steps.names if name not in metrics.steps.names]
    steps = _extended(metrics.steps, rollouts.steps, missing)
    latest = _latest_attempt(metrics.steps)
    return TableRun(
        replace(
            metrics.info,
            source=f"{metrics.info.source} + {rollouts.info.source}",
            notes=(*metrics.info.notes, *rollouts.info.notes),
            unmapped=tuple(sorted({*metrics.info.unmapped, *rollouts.info.unmapped})),
            unread=together([*_unread(metrics), *_unread(rollouts)]),
        ),
        steps,
        ranks=metrics.ranks,
        events=metrics.events,
        rollouts=[
            *_rollouts(metrics),
            *(_of_attempt(rollout, latest) for rollout in _rollouts(rollouts)),
        ],
        problems=[*metrics.problems, *rollouts.problems],
    )


def _latest_attempt(frame: Frame) -> dict[int, int]:
    """The last attempt that logged each step: logs of rollouts are overwritten by a restart."""
    latest: dict[int, int] = {}
    for step, attempt in zip(frame.step.tolist(), frame.attempt.tolist(), strict=True):
        latest[step] = max(attempt, latest.get(step, 1))
    return latest


def _of_attempt(rollout: Rollout, latest: Mapping[int, int]) -> Rollout:
    return replace(rollout, attempt=latest.get(rollout.step, max(latest.values(), default=1)))


def _extended(own: Frame, other: Frame, missing: list[str]) -> Frame:
    """Further columns; steps that the run has not logged get rows of its last attempt."""
    last = int(own.attempt.max()) if len(own) else 1
    new = ~np.isin(other.step, own.step)
    row = _rows_of(own, other.step[~new])
    size, more = len(own), int(new.sum())
    columns: Columns = {name: _padded(own.load(name), more) for name in own.names}
    for name in missing:
        values, valid = other.load(name)
        into, mask = np.full(size + more, np.nan), np.zeros(size + more, dtype=np.bool_)
        into[row], mask[row] = values[~new], valid[~new]
        into[size:], mask[size:] = values[new], valid[new]
        columns[name] = (into, mask)
    return frame_of(
        np.concatenate([own.step, other.step[new]]),
        columns,
        attempt=np.concatenate([own.attempt, np.full(more, last, dtype=np.int64)]),
        rank=np.concatenate([own.rank, np.zeros(more, dtype=np.int64)]),
        time=np.concatenate([own.time, np.full(more, np.nan)]),
    )


def _rows_of(own: Frame, steps: IntArray) -> IntArray:
    """The last row of each of these steps, in the latest attempt that has it."""
    order = np.lexsort((own.attempt, own.step))
    found: IntArray = order[np.searchsorted(own.step[order], steps, side="right") - 1]
    return found


def _padded(column: tuple[FloatArray, BoolArray], more: int) -> tuple[FloatArray, BoolArray]:
    values, valid = column
    return (
        np.concatenate([values, np.full(more, np.nan)]),
        np.concatenate([valid, np.zeros(more, dtype=np.bool_)]),
    )
