"""Rows of metrics -> Arrow tables. Runs on the writer thread.

Rows with the same keys go through NumPy in one block; only rows with unusual values (arrays, device
tensors, text, None) are looked at one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlprobe import naming, schema
from rlprobe.store import codec
from rlprobe.store.faults import is_of_value
from rlprobe.store.frame import Column
from rlprobe.store.shards import TooWideError
from rlprobe.values import BoolArray, FloatArray, flat

MOST_COLUMNS = 20_000  # of one shard: what many names make of few rows is nearly all empty

MetricRow = tuple[int, float, dict[str, Any]]  # step, time, metrics


@dataclass
class MetricEncoder:
    """Turns metric rows of one table into Arrow tables under canonical names.

    Attributes:
        aliases: of the framework whose names the rows have.
        rejected: called with the name of a metric whose value is no number.
    """

    table: str
    aliases: naming.LiveAliases
    rejected: Callable[[str], None]

    def encode(self, rows: Sequence[MetricRow], constants: dict[str, int]) -> pa.Table:
        """One Arrow table, with one row for all of a step that stand in a row.

        `constants` are integer columns (attempt, rank) of one value.
        """
        rows = one_per_step(rows)
        size = len(rows)
        keys: dict[str, NDArray[Any]] = {
            "step": np.fromiter((row[0] for row in rows), np.int64, size),
            "time": np.fromiter((row[1] for row in rows), np.float64, size),
            **{name: np.full(size, value) for name, value in constants.items()},
        }
        return codec.metrics(self.table, keys, self._columns([row[2] for row in rows]))

    def _columns(self, rows: list[dict[str, Any]]) -> dict[str, Column]:
        """Values by name.

        Raises:
            TooWideError: rows have so many names together that fewer should share a shard.
        """
        columns: dict[str, Column] = {}
        start, size = 0, len(rows)
        for keys, block in itertools.groupby(rows, key=tuple):
            members = list(block)
            for name, values, logged in self._block(keys, members):
                if name not in columns:
                    columns[name] = (np.full(size, np.nan), np.zeros(size, dtype=np.bool_))
                into, valid = columns[name]
                into[start : start + len(members)] = values
                valid[start : start + len(members)] = logged
            start += len(members)
            if len(columns) > MOST_COLUMNS and size > 1:
                raise TooWideError
        return columns

    def _block(
        self, keys: tuple[str, ...], rows: list[dict[str, Any]]
    ) -> Iterable[tuple[str, FloatArray, BoolArray]]:
        if not keys:
            return
        matrix = _matrix(rows)
        if matrix is None:
            columns = self._careful(rows)
        else:
            whole = np.ones(len(rows), np.bool_)
            columns = {key: (matrix[:, at], whole) for at, key in enumerate(keys)}
        for name, (values, logged) in self.aliases.of(columns).apply(columns).items():
            yield codec.metric_name(self.table, name), values, logged

    def _careful(self, rows: list[dict[str, Any]]) -> dict[str, tuple[FloatArray, BoolArray]]:
        plain = [plain_numbers(row, self.rejected) for row in rows]
        return {
            key: (
                np.array([row.get(key, np.nan) for row in plain], dtype=np.float64),
                np.array([key in row for row in plain]),
            )
            for key in dict.fromkeys(key for row in plain for key in row)
        }


def plain_numbers(row: dict[str, Any], rejected: Callable[[str], None]) -> dict[str, float]:
    """The numbers of a row.

    Args:
        rejected: called with the name of a value that is none.
    """
    plain: dict[str, float] = {}
    for key, value in row.items():
        try:
            plain.update(_numbers(key, value))
        except BaseException as error:  # a value's own code may raise anything
            if not is_of_value(error):
                raise
            rejected(key)
    return plain


def one_per_step(rows: Sequence[MetricRow]) -> Sequence[MetricRow]:
    """Rows that follow each other and are of one step, as one: of a name the last value counts.

    Training may tell of a step bit by bit: one `add_scalar` after another, an evaluation after all.
    """
    if all(row[0] != before[0] for before, row in itertools.pairwise(rows)):
        return rows
    merged: list[MetricRow] = []
    own: dict[str, Any] = {}  # of the last row, if it is one of several
    for row in rows:
        if not merged or merged[-1][0] != row[0]:
            merged.append(row)
            own = {}
            continue
        if not own:
            own = dict(merged[-1][2])
            merged[-1] = (*merged[-1][:2], own)
        own.update((name, value) for name, value in row[2].items() if value is not None)
    return merged


def _matrix(rows: list[dict[str, Any]]) -> FloatArray | None:
    """All values as a matrix (rows x keys); None if some value needs a closer look."""
    width = len(rows[0])
    try:
        values = itertools.chain.from_iterable(row.values() for row in rows)
        matrix = np.fromiter(values, np.float64, width * len(rows)).reshape(len(rows), width)
    except BaseException as error:  # a value's own code may raise anything
        if not is_of_value(error):
            raise
        return None
    # NumPy reads None as NaN; to us the one means "not logged", the other "was NaN".
    if np.isnan(matrix).any() and any(value is None for row in rows for value in row.values()):
        return None
    return matrix


def _numbers(key: str, value: Any) -> dict[str, float]:
    """A value as one number, several (a distribution), or none (not logged)."""
    if value is None:
        return {}
    if _is_tensor(value):
        value = value.cpu().double().numpy()
    if isinstance(value, np.ndarray | list):
        if np.iscomplexobj(value):
            raise TypeError("complex numbers")
        array = np.asarray(value, dtype=np.float64)
        return {key: float(array)} if array.ndim == 0 else _distribution(key, array)
    return {key: float(value)}


def _is_tensor(value: Any) -> bool:
    try:
        return hasattr(value, "detach")
    except Exception:  # a property of somebody's class
        return False


def _distribution(key: str, array: FloatArray) -> dict[str, float]:
    """Mean, std, min, max and p95 of an array; group statistics of a matrix of rewards.

    A matrix of rewards has shape (groups, rollouts per group).
    """
    if array.size == 0:
        return {}
    base = schema.distributions().get(key, key)
    with np.errstate(all="ignore"):
        numbers = {
            f"{base}_mean": float(array.mean()),
            f"{base}_std": float(array.std()),
            f"{base}_min": float(array.min()),
            f"{base}_max": float(array.max()),
            f"{base}_p95": float(np.quantile(array, 0.95)),
        }
        if base == "reward" and array.ndim == 2:
            numbers["reward_group_std_mean"] = float(array.std(axis=1).mean())
            numbers["zero_variance_group_fraction"] = float(flat(array).mean())
    return numbers
