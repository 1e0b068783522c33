"""What a block of rows is to its reader: evaluations named as such, runs of rows with a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe.importers import evaluations
from rlprobe.importers.documents.json_blocks import Block
from rlprobe.values import BoolArray, FloatArray

Columns = dict[str, tuple[FloatArray, BoolArray | None]]


def named(block: Block) -> Columns | None:
    """The columns, those of evaluations apart; None if rows have to be looked at one by one."""
    if any(key in block.columns for key in evaluations.KIND_KEYS):
        return None  # true, 1 or "1": what is said differs
    held_out = np.zeros(block.size, np.bool_)
    for key in evaluations.KIND_KEYS:
        words = block.texts.get(key, ())
        kinds = {
            word: word is not None and evaluations.is_evaluation({key: word}) for word in {*words}
        }
        if any(kinds.values()):
            held_out |= np.fromiter((kinds[word] for word in words), np.bool_, block.size)
    if not held_out.any():
        return block.columns
    columns: dict[str, tuple[FloatArray, BoolArray]] = {}
    for key, (values, valid) in block.columns.items():
        there = np.ones(block.size, np.bool_) if valid is None else valid
        (marked,) = evaluations.marked({key: 0.0})
        for name, rows in ((key, there & ~held_out), (marked, there & held_out)):
            before, known = columns.get(name, (values, rows))
            columns[name] = np.where(rows, values, before), rows | known
    return {name: column for name, column in columns.items() if column[1].any()}


def runs(stepped: BoolArray) -> Iterator[tuple[int, int, bool]]:
    """Where rows with a step and rows without one begin and end, in turns."""
    turns = (np.flatnonzero(stepped[1:] != stepped[:-1]) + 1).tolist()
    for start, stop in zip([0, *turns], [*turns, len(stepped)], strict=True):
        yield start, stop, bool(stepped[start])


def part(columns: Columns, start: int, stop: int) -> Columns:
    """Some of the rows, and of the columns those that they have."""
    cut = {
        key: (values[start:stop], None if valid is None else valid[start:stop])
        for key, (values, valid) in columns.items()
    }
    return {key: (v, valid) for key, (v, valid) in cut.items() if valid is None or valid.any()}
