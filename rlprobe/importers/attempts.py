"""Which launch a row belongs to, and rows of one step made one.

A log is read in its own order. A step that comes again with a metric it already has is a relaunch
that repeats it; one that comes again with other metrics is a late row of the same launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import order_statistics
from rlprobe.counters import is_counter
from rlprobe.importers.rows import Columns
from rlprobe.values import BoolArray, IntArray

# Rows of one step that carry the same metrics again are mini-batches, not relaunches, once they are
# more than a few.
_FEW_REPEATS = 5
_REPEAT_SHARE = 0.002
_MOST_ATTEMPTS = 50
_MOST_SHARE = 0.2
_MOST_KINDS = 500
_EVALUATIONS = ("eval", "val", "test", "Validation")


def continued(step: IntArray, columns: Columns) -> tuple[IntArray, bool]:
    """Steps that count anew in each epoch, counted on; and whether they had to be.

    Where the step goes back the epoch goes up: no relaunch does that.
    """
    name = next((name for name in columns if name.lower() == "epoch"), None)
    back = np.flatnonzero(np.diff(step) < 0)
    if name is None or not len(back):
        return step, False
    epoch, valid = columns[name]
    known = valid[back] & valid[back + 1]
    if not bool(known.all()) or not bool((epoch[back + 1] > epoch[back]).all()):
        return step, False
    ahead = np.diff(step)
    usual = int(order_statistics.median(ahead[ahead > 0])) if bool((ahead > 0).any()) else 1
    offset = np.zeros(len(step), dtype=np.int64)
    offset[back + 1] = step[back] + usual - step[back + 1]
    return step + np.cumsum(offset), True


def attempts_of(
    step: IntArray, columns: Columns, launches: Sequence[int] = ()
) -> tuple[IntArray, bool]:
    """The number of the launch of each row, from 1; and whether rows are too mixed to tell.

    Args:
        launches: rows with which a later launch begins, whatever their steps tell.
    """
    attempt, mixed = _by_steps(step, columns)
    known = [row for row in launches if 0 < row < len(step)]
    if mixed or not known:
        return attempt, mixed
    starts = np.diff(attempt, prepend=attempt[:1]) > 0
    starts[known] = True
    return np.cumsum(starts) + 1, False


def _by_steps(step: IntArray, columns: Columns) -> tuple[IntArray, bool]:
    ones = np.ones(len(step), dtype=np.int64)
    if len(step) < 2 or bool((step[1:] > step[:-1]).all()):
        return ones, False
    if not bool((step[1:] < step[:-1]).any()) and not columns:
        return ones, False
    back, again = _restarts(step, _kinds(columns, len(step)), columns)
    if len(again) <= max(_FEW_REPEATS, _REPEAT_SHARE * len(step)):
        back = sorted({*back, *again})
    if len(back) > _MOST_ATTEMPTS and len(back) > _MOST_SHARE * len(
        order_statistics.distinct(step)
    ):
        return ones, True
    starts = np.zeros(len(step), dtype=np.int64)
    starts[back] = 1
    return np.cumsum(starts) + 1, False


@dataclass(frozen=True)
class _Kinds:
    """For each row which metrics it has, as a number; and what these have in common.

    Attributes:
        alike: kinds that share half of the smaller one's metrics.
        same: pairs that share three quarters of the larger one's.
    """

    of_row: IntArray
    alike: Sequence[Sequence[int]]
    same: frozenset[tuple[int, int]]


def _tells(name: str) -> bool:
    """Whether a metric tells launches apart: counters and evaluations come as they like."""
    return not is_counter(name) and not name.startswith(_EVALUATIONS)


def _kinds(columns: Columns, size: int) -> _Kinds:
    valid = [mask for name, (_, mask) in sorted(columns.items()) if _tells(name)]
    if not valid:
        return _Kinds(np.zeros(size, dtype=np.int64), [[0]], frozenset({(0, 0)}))
    packed = np.packbits(np.array(valid), axis=0).T
    found, kind = np.unique(packed, axis=0, return_inverse=True)
    kind = kind.reshape(-1).astype(np.int64)
    if len(found) > _MOST_KINDS:  # too many to compare: rows of any two kinds may repeat
        return _Kinds(np.zeros(size, dtype=np.int64), [[0]], frozenset({(0, 0)}))
    bits = np.unpackbits(found, axis=1).astype(np.int64)
    shared, sizes = bits @ bits.T, bits.sum(axis=1)
    smaller = np.minimum(sizes[:, None], sizes[None, :])
    larger = np.maximum(sizes[:, None], sizes[None, :])
    alike = (shared * 2 >= smaller) & (shared > 0)
    same = np.argwhere((shared * 4 >= larger * 3) & (shared > 0))
    return _Kinds(
        kind,
        [np.flatnonzero(row).tolist() for row in alike],
        frozenset((int(a), int(b)) for a, b in same),
    )


def _restarts(step: IntArray, kinds: _Kinds, columns: Columns) -> tuple[list[int], list[int]]:
    """Rows at which a launch starts anew: those that go back, and those that say a step again."""
    back: list[int] = []
    again: list[int] = []
    furthest: dict[int, tuple[int, int]] = {}  # of each kind: the last step, and its row
    for index, (at, what) in enumerate(zip(step.tolist(), kinds.of_row.tolist(), strict=True)):
        met = [furthest[other] for other in kinds.alike[what] if other in furthest]
        last, row = max(met, default=(at - 1, -1))
        if last > at:
            back.append(index)
            furthest = {}
        elif last == at and row >= 0 and _again(kinds, columns, row, index):
            again.append(index)
        furthest[what] = (at, index)
    return back, again


def _again(kinds: _Kinds, columns: Columns, first: int, second: int) -> bool:
    """Whether the second row tells the first one's step anew, and tells something else."""
    pair = int(kinds.of_row[first]), int(kinds.of_row[second])
    return pair in kinds.same and not _says_the_same(columns, first, second)


def _says_the_same(columns: Columns, first: int, second: int) -> bool:
    """Whether two rows agree in all that both measure."""
    for name, (values, valid) in columns.items():
        if valid[first] and valid[second] and not is_counter(name):
            a, b = values[first], values[second]
            if a != b and not (np.isnan(a) and np.isnan(b)):
                return False
    return True


def merged(
    step: IntArray, attempt: IntArray, columns: Columns
) -> tuple[IntArray, IntArray, Columns]:
    """One row per step and launch, in order; of several values of a metric the last counts."""
    order = np.lexsort((np.arange(len(step)), step, attempt))
    ordered = bool((order[1:] > order[:-1]).all())
    step, attempt = step[order], attempt[order]
    first = np.ones(len(step), dtype=np.bool_)
    first[1:] = (np.diff(step) != 0) | (np.diff(attempt) != 0)
    if bool(first.all()):
        if not ordered:
            columns = {name: (v[order], m[order]) for name, (v, m) in columns.items()}
        return step, attempt, columns
    starts = np.flatnonzero(first)
    merged_columns: Columns = {}
    for name, (values, valid) in columns.items():
        where = _last_valid(valid[order], starts)
        mask: BoolArray = where >= 0
        merged_columns[name] = (np.where(mask, values[order][where], np.nan), mask)
    return step[starts], attempt[starts], merged_columns


def _last_valid(valid: BoolArray, starts: IntArray) -> IntArray:
    """For each group of rows, the last row that has a value; -1 where none has."""
    positions = np.where(valid, np.arange(len(valid)), -1)
    last: IntArray = np.maximum.reduceat(positions, starts)
    return last
