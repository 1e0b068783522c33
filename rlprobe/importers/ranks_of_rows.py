"""Rows that say which rank they are of, the same steps once for each -> the ranks of one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from rlprobe.importers.gathered import taken
from rlprobe.importers.importer import Reading
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.values import BoolArray, IntArray

# Columns that number ranks, the better first: one of a node numbers only a part of them.
_KEYS = (
    *("global_rank", "rank", "process_index", "process_rank", "rank_id", "dp_rank"),
    *("data_parallel_rank", "local_rank", "local_process_index"),
)
_MOST_RANKS = 4_096
_LARGEST = 1_000_000


def told_apart(readings: Iterable[Reading]) -> Iterator[Reading]:
    """The readings, and beside those whose rows are of several ranks the rows of each rank."""
    for reading in readings:
        plain = {name.lower().replace(" ", "_"): name for name in reading.rows.names}
        key = next((plain[name] for name in _KEYS if name in plain), None)
        whole = reading.rank is None and not (reading.told or reading.launches)
        if key is None or not whole:
            yield reading
        else:
            yield from _by_rank(reading, key)


def _by_rank(reading: Reading, key: str) -> Iterator[Reading]:
    steps, columns = taken(reading)
    ranks = _ranks(columns, key)
    numbers: list[int] = np.unique(ranks[ranks >= 0]).tolist()
    if not 2 <= len(numbers) <= _MOST_RANKS or not _repeated(steps, ranks):
        yield reading
        return
    metrics = {name: column for name, column in columns.items() if name != key}
    said = f"metrics of the run: those of rank {numbers[0]}, of {len(numbers)} ranks"
    yield replace(
        reading, rows=_of_run(steps, metrics, ranks), notes=[*reading.notes, f"{said} (`{key}`)"]
    )
    for rank in numbers:
        rows = _part(steps, metrics, ranks == rank)
        yield Reading(rows, framework=reading.framework, rank=rank, step_key=reading.step_key)


def _ranks(columns: Columns, key: str) -> IntArray:
    """The rank of each row, -1 where it tells none."""
    values, valid = columns[key]
    with np.errstate(invalid="ignore"):
        good = valid & (values >= 0) & (values < _LARGEST) & (values == np.floor(values))
    return np.where(good, values, -1).astype(np.int64)


def _repeated(steps: IntArray, ranks: IntArray) -> bool:
    """Whether most steps come from several ranks."""
    known = ranks >= 0
    pairs = np.unique(np.stack([steps[known], ranks[known]]), axis=1)
    _, ranks_of_step = np.unique(pairs[0], return_counts=True)
    return 2 * int((ranks_of_step > 1).sum()) >= len(ranks_of_step)


def _of_run(steps: IntArray, columns: Columns, ranks: IntArray) -> ColumnTable:
    """What the first rank tells, and rows of none; what neither tells, of the next that does."""
    own = (ranks < 0) | (ranks == ranks[ranks >= 0].min())
    rows = own.copy()
    chosen: Columns = {}
    for name, (values, valid) in columns.items():
        here = valid & own
        if not here.any() and valid.any():
            here = valid & (ranks == ranks[valid].min())
        chosen[name] = values, here
        rows |= here
    return _part(steps, chosen, rows)


def _part(steps: IntArray, columns: Columns, rows: BoolArray) -> ColumnTable:
    part = {name: (values[rows], valid[rows]) for name, (values, valid) in columns.items()}
    return ColumnTable(steps[rows], {name: it for name, it in part.items() if it[1].any()})
