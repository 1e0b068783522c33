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

from rlprobe.values import BoolArray, FloatArray, IntArray

STEP_KEYS = ("step", "global_step", "training_step", "_step", "iteration", "iter", "update")
_BLOCK = 4096
_DEEPEST = 8  # levels of nesting that are flattened
_WORDS = {"infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}

Null = Literal["missing", "nan"]


def number(value: object) -> float | None:
    """A logged value as a number; None if it is none. Never evaluates anything."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _spelled(value)
    return None


def _spelled(text: str) -> float | None:
    word = text.strip()
    if not word or len(word) > 64:
        return None
    try:
        return float(word)
    except ValueError:
        return _WORDS.get(word.lower())


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step of a row, under the usual keys; None if it has none."""
    for key in STEP_KEYS:
        value = number(row.get(key))
        if value is not None and value.is_integer() and abs(value) < 2**63:
            return int(value)
    return None


class RowTable:
    """Collects rows and gives columns.

    Attributes:
        null: what a JSON null means in this format: not logged, or a value that was not finite.
    """

    def __init__(self, null: Null = "missing") -> None:
        self.null: Null = null
        self._waiting: list[Mapping[str, Any]] = []
        self._steps: list[int] = []
        self._blocks: list[tuple[int, tuple[str, ...], FloatArray]] = []
        self._flushed = 0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, row: Mapping[str, Any]) -> None:
        """Add one row. Values that are no numbers are left out; nested objects are flattened."""
        self._steps.append(step)
        self._waiting.append(row)
        if len(self._waiting) >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        first = self._flushed
        for keys, group in itertools.groupby(self._waiting, key=tuple):
            rows = list(group)
            matrix = _matrix(rows, len(keys))
            if matrix is not None:
                self._blocks.append((first, keys, matrix))
            else:
                self._careful(first, rows)
            first += len(rows)
        self._flushed = first
        self._waiting = []

    def _careful(self, first: int, rows: list[Mapping[str, Any]]) -> None:
        plain = (dict(self._numbers(row)) for row in rows)
        start = first
        for keys, group in itertools.groupby(plain, key=tuple):
            members = list(group)
            matrix = np.array([list(row.values()) for row in members], dtype=np.float64)
            self._blocks.append((start, keys, matrix.reshape(len(members), len(keys))))
            start += len(members)

    def _numbers(
        self, row: Mapping[str, Any], prefix: str = "", depth: int = 0
    ) -> Iterator[tuple[str, float]]:
        for key, raw in row.items():
            name = f"{prefix}{key}"
            value = number(raw)
            if value is not None:
                yield name, value
            elif raw is None and self.null == "nan":
                yield name, math.nan
            elif isinstance(raw, Mapping) and depth < _DEEPEST:
                yield from self._numbers(raw, f"{name}/", depth + 1)

    def steps(self) -> IntArray:
        """The step of each row, int64, in the order of the file."""
        return np.array(self._steps, dtype=np.int64)

    def columns(self) -> dict[str, tuple[FloatArray, BoolArray]]:
        """Values and validity of each key that was ever a number. Empties the table."""
        self._flush()
        size = len(self._steps)
        found: dict[str, tuple[FloatArray, BoolArray]] = {}
        while self._blocks:
            first, keys, matrix = self._blocks.pop()
            for position, key in enumerate(keys):
                if key not in found:
                    found[key] = (np.full(size, np.nan), np.zeros(size, dtype=np.bool_))
                values, valid = found[key]
                values[first : first + len(matrix)] = matrix[:, position]
                valid[first : first + len(matrix)] = True
        return found


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
