"""Readings of one run -> the run, under canonical names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe import schema
from rlprobe.importers.importer import Reading
from rlprobe.importers.rows import STEP_KEYS
from rlprobe.store.frame import Frame, frame_of
from rlprobe.store.run import RunInfo
from rlprobe.store.table import TableRun
from rlprobe.values import Attempt, BoolArray, FloatArray, IntArray

Columns = dict[str, tuple[FloatArray, BoolArray]]


def assemble(path: Path, source: str, readings: Sequence[Reading]) -> TableRun:
    """The run that these readings are about, in the order in which they are given."""
    parts = [(reading.rows.steps(), reading.rows.columns(), reading.rank) for reading in readings]
    keys = [key for _, columns, _ in parts for key in columns]
    given = next((reading.framework for reading in readings if reading.framework), None)
    framework = given or schema.detect_framework(keys)
    aliases = schema.aliases()[framework or "generic"]
    steps = _stack([(s, c) for s, c, rank in parts if rank is None], aliases)
    ranks = _stack_ranks([(s, c, rank) for s, c, rank in parts if rank is not None], aliases)
    frame = steps if len(steps) else ranks
    info = RunInfo(
        path=str(path),
        id=path.name,
        source=source,
        framework=framework,
        algorithm=_first(reading.algorithm for reading in readings) or _algorithm(keys),
        settings={key: v for reading in readings for key, v in reading.settings.items()},
        attempts=_attempts(frame.step, frame.attempt),
        notes=tuple(dict.fromkeys(note for reading in readings for note in reading.notes)),
        unmapped=_unmapped(keys, aliases),
    )
    return TableRun(
        info,
        steps,
        ranks=ranks,
        events=[event for reading in readings for event in reading.events],
        rollouts=[rollout for reading in readings for rollout in reading.rollouts],
        problems=[problem for reading in readings for problem in reading.problems],
    )


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _unmapped(keys: Iterable[str], aliases: schema.Aliases) -> tuple[str, ...]:
    unknown = {key for key in keys if key not in STEP_KEYS and aliases.canonical(key) is None}
    return tuple(sorted(unknown))


def _stack(parts: Sequence[tuple[IntArray, Columns]], aliases: schema.Aliases) -> Frame:
    """Tables one after another; a step that goes back opens a new attempt."""
    sizes = [len(steps) for steps, _ in parts]
    step: IntArray = np.concatenate([steps for steps, _ in parts]) if parts else np.empty(0, int)
    columns: Columns = {}
    offset = 0
    for size, (_, part) in zip(sizes, parts, strict=True):
        for name, (values, valid) in _canonical(part, aliases).items():
            into = columns.setdefault(name, _blank(len(step)))
            into[0][offset : offset + size] = values
            into[1][offset : offset + size] = valid
        offset += size
    back = np.concatenate([[0], np.cumsum(np.diff(step) < 0)]) if len(step) else step
    return frame_of(step, columns, attempt=back.astype(np.int64) + 1)


def _stack_ranks(
    parts: Sequence[tuple[IntArray, Columns, int | None]], aliases: schema.Aliases
) -> Frame:
    stacked = _stack([(steps, columns) for steps, columns, _ in parts], aliases)
    ranks = [np.full(len(steps), rank, dtype=np.int64) for steps, _, rank in parts]
    columns = {name: stacked.load(name) for name in stacked.names}
    rank = np.concatenate(ranks) if ranks else np.empty(0, dtype=np.int64)
    return frame_of(stacked.step, columns, rank=rank)


def _blank(size: int) -> tuple[FloatArray, BoolArray]:
    return np.full(size, np.nan), np.zeros(size, dtype=np.bool_)


def _canonical(columns: Columns, aliases: schema.Aliases) -> Columns:
    """Under canonical names; of two keys that mean the same, the better one counts."""
    named: Columns = {}
    for key in sorted(columns, key=aliases.rank):
        if key in STEP_KEYS:
            continue
        values, valid = columns[key]
        sentinel = aliases.sentinel(key)
        if sentinel is not None:
            valid = valid & (values != sentinel)
        named[aliases.canonical(key) or key] = (values, valid)
    return named


def _attempts(step: IntArray, attempt: IntArray) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            int(number),
            first_step=int(step[attempt == number].min()),
            last_step=int(step[attempt == number].max()),
        )
        for number in np.unique(attempt)
    )


def _algorithm(keys: Iterable[str]) -> str | None:
    present: set[Any] = {key.removeprefix("train/") for key in keys}
    if present & {"frac_reward_zero_std", "completions/mean_length", "completion_length"}:
        return "GRPO"
    if {"rewards/chosen", "rewards/rejected"} <= present:
        return "DPO"
    return "SFT" if "mean_token_accuracy" in present else None
