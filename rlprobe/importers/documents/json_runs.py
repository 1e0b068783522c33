"""What a block of rows is to its reader: no evaluations, and runs of rows with a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe.importers import evaluations
from rlprobe.importers.documents.json_blocks import Block
from rlprobe.values import BoolArray, FloatArray

Columns = dict[str, tuple[FloatArray, BoolArray | None]]


def of_training(block: Block) -> bool:
    """Whether no row says that it is one of an evaluation: these are placed one by one."""
    if any(key in block.columns for key in evaluations.KIND_KEYS):
        return False  # true, 1 or "1": what is said differs
    words = {(key, word) for key in evaluations.KIND_KEYS for word in block.texts.get(key, ())}
    return not any(evaluations.is_evaluation({key: word}) for key, word in words)


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
