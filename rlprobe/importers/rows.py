"""Rows of {key: value} -> columns of numbers. What every row-shaped format shares.

Rows are kept as columns: a block of rows with the same keys becomes one matrix at once, so memory
is bounded by numbers and not by objects. Only values that are no plain numbers (text, null, nested
objects) are looked at one by one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from rlprobe.importers.numbers import looks_like_number, number
from rlprobe.importers.steps import COUNTERS
from rlprobe.importers.unread import UnreadCount
from rlprobe.values import BoolArray, FloatArray, IntArray

_BLOCK = 4096
_DEEPEST = 8  # levels of nesting that are flattened
_MOST_CELLS = 120_000_000  # of all columns; a key beyond that is left out
_MOST_KEYS = 20_000
_EVALUATION = frozenset({"eval_loss", "eval_runtime"})
_TRAINING = frozenset({"loss", "train_loss", "grad_norm", "learning_rate"})

Null = Literal["missing", "nan"]
Columns = dict[str, tuple[FloatArray, BoolArray]]
_Block = tuple[int, int, Mapping[str, tuple[FloatArray, BoolArray | None]]]


def _of_evaluation(keys: tuple[str, ...], *, asked: bool = True) -> tuple[str, ...]:
    """The keys of a row of an evaluation, all of them named as such.

    Trainers print the loss of an evaluation as `eval_loss`, and beside it what they log in training
    too under its usual name: such a row is no step of training, which has a `loss`.
    """
    if asked and _TRAINING.intersection(keys):
        return keys
    named = (key if key in COUNTERS or key.startswith("eval") else f"eval_{key}" for key in keys)
    return tuple(named)


class RowTable:
    """Collects rows and gives columns.

    Attributes:
        null: what a JSON null means in this format: not logged, or a value that was not finite.
        left_out: keys beyond what memory allows; filled by `columns`.
        odd: values that look like numbers and spell none, by the number of their row.
    """

    def __init__(self, null: Null = "missing") -> None:
        self.null: Null = null
        self.left_out = 0
        self.odd = UnreadCount("cell")
        self._waiting: list[Mapping[str, Any]] = []
        self._steps: list[IntArray] = []
        self._waiting_steps: list[int] = []
        self._blocks: list[_Block] = []
        self._flushed = 0

    def __len__(self) -> int:
        return self._flushed + len(self._waiting)

    def add(self, step: int, row: Mapping[str, Any]) -> None:
        """Add one row. Values that are no numbers are left out; nested objects are flattened."""
        self._waiting_steps.append(step)
        self._waiting.append(row)
        if len(self._waiting) >= _BLOCK:
            self._flush()

    def add_columns(
        self, steps: IntArray, columns: Mapping[str, tuple[FloatArray, BoolArray | None]]
    ) -> None:
        """Add many rows at once, as columns of values and validity (None: all valid)."""
        self._flush()
        self._steps.append(steps)
        self._blocks.append((self._flushed, len(steps), _evaluations_named(columns, len(steps))))
        self._flushed += len(steps)

    def _flush(self) -> None:
        first = self._flushed
        for keys, group in itertools.groupby(self._waiting, key=tuple):
            rows = list(group)
            matrix = _matrix(rows, len(keys))
            if matrix is not None:
                self._keep(first, keys, matrix)
            else:
                self._careful(first, rows)
            first += len(rows)
        if self._waiting:
            self._steps.append(np.array(self._waiting_steps, dtype=np.int64))
        self._flushed = first
        self._waiting, self._waiting_steps = [], []

    def _keep(self, first: int, keys: tuple[str, ...], matrix: FloatArray) -> None:
        names = _of_evaluation(keys) if _EVALUATION.intersection(keys) else keys
        columns = {name: (matrix[:, position], None) for position, name in enumerate(names)}
        self._blocks.append((first, len(matrix), columns))

    def _careful(self, first: int, rows: list[Mapping[str, Any]]) -> None:
        plain = (dict(self._numbers(row, place)) for place, row in enumerate(rows, first + 1))
        start = first
        for keys, group in itertools.groupby(plain, key=tuple):
            members = list(group)
            matrix = np.array([list(row.values()) for row in members], dtype=np.float64)
            self._keep(start, keys, matrix.reshape(len(members), len(keys)))
            start += len(members)

    def _numbers(
        self, row: Mapping[str, Any], place: int, prefix: str = "", depth: int = 0
    ) -> Iterator[tuple[str, float]]:
        for key, raw in row.items():
            name = f"{prefix}{key}"
            value = number(raw)
            if value is not None:
                yield name, value
            elif raw is None and self.null == "nan":
                yield name, math.nan
            elif isinstance(raw, Mapping) and depth < _DEEPEST:
                yield from self._numbers(raw, place, f"{name}/", depth + 1)
            elif isinstance(raw, str) and looks_like_number(raw):
                self.odd.add(place, f"{name}: {raw}")

    def steps(self) -> IntArray:
        """The step of each row, int64, in the order of the file."""
        waiting = np.array(self._waiting_steps, dtype=np.int64)
        return np.concatenate([*self._steps, waiting]).astype(np.int64, copy=False)

    @property
    def empty(self) -> bool:
        """Whether no row has a number, not even a step under its own key."""
        self._flush()
        return not any(columns for _, _, columns in self._blocks)

    @property
    def names(self) -> set[str]:
        """The keys of its numbers."""
        self._flush()
        return {key for _, _, columns in self._blocks for key in columns}

    def set_steps(self, steps: IntArray) -> None:
        """Replace the steps of all rows, where a format learns them only at its end."""
        self._flush()
        self._steps = [steps]

    def columns(self) -> Columns:
        """Values and validity of each key that was ever a number. Empties the table."""
        self._flush()
        most = min(_MOST_KEYS, _MOST_CELLS // max(1, self._flushed))
        whole: Columns = {}
        refused: set[str] = set()
        for index, (first, size, columns) in enumerate(self._blocks):
            self._blocks[index] = (0, 0, {})  # let go of each block as it is copied
            for key, (values, valid) in columns.items():
                if key not in whole:
                    if len(whole) >= most:
                        refused.add(key)
                        continue
                    whole[key] = (np.empty(self._flushed), np.zeros(self._flushed, np.bool_))
                into, mask = whole[key]
                into[first : first + size] = values
                mask[first : first + size] = True if valid is None else valid
        for values, mask in whole.values():
            if not mask.all():
                values[~mask] = np.nan
        self._blocks = []
        self.left_out += len(refused)
        return whole


def _evaluations_named(
    columns: Mapping[str, tuple[FloatArray, BoolArray | None]], size: int
) -> Mapping[str, tuple[FloatArray, BoolArray | None]]:
    """Columns in which rows of an evaluation have all their metrics named as such."""
    if not _EVALUATION.intersection(columns):
        return columns
    evaluated, trained = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    for name, (_, valid) in columns.items():
        into = evaluated if name in _EVALUATION else trained if name in _TRAINING else None
        if into is not None:
            into |= True if valid is None else valid
    apart = evaluated & ~trained
    named: dict[str, tuple[FloatArray, BoolArray | None]] = {}
    for name, new in zip(columns, _of_evaluation(tuple(columns), asked=False), strict=True):
        values, valid = columns[name]
        if new == name or not apart.any():
            named[name] = values, valid
            continue
        there = np.ones(size, np.bool_) if valid is None else valid
        named[name] = values, there & ~apart
        before, known = columns.get(new, (values, np.zeros(size, np.bool_)))
        moved = there & apart
        known = np.ones(size, np.bool_) if known is None else known
        named[new] = np.where(moved, values, before), moved | known
    return {name: column for name, column in named.items() if column[1] is None or column[1].any()}


def _matrix(rows: list[Mapping[str, Any]], width: int) -> FloatArray | None:
    """All values as (rows x keys); None if some value is no plain number."""
    flat = itertools.chain.from_iterable(row.values() for row in rows)
    values = list(flat)
    if not {*map(type, values)} <= {float, int}:
        return None
    try:
        return np.array(values, dtype=np.float64).reshape(len(rows), width)
    except OverflowError:
        return None
