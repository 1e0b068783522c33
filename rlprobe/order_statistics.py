"""Medians, quantiles and distinct values, of arrays and of a window that moves along a series.

NumPy has all of them; but those import its masked arrays, which cost a small scan a tenth of its
time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


def median(values: NDArray[Any]) -> float:
    """Median of at least one value, none of them NaN."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    parted = np.partition(values, (half - 1, half))
    return float((parted[half - 1] + parted[half]) / 2)


def row_medians(values: NDArray[Any]) -> FloatArray:
    """Median of each row, shape (n, m) -> (n,), m at least 1, none of the values NaN."""
    half = values.shape[1] // 2
    if values.shape[1] % 2:
        middles: FloatArray = np.partition(values, half, axis=1)[:, half]
        return middles
    parted = np.partition(values, (half - 1, half), axis=1)
    between: FloatArray = (parted[:, half - 1] + parted[:, half]) / 2
    return between


def quantile(values: NDArray[Any], share: float) -> float:
    """Quantile of at least one value, none of them NaN; linear between two neighbours."""
    place = share * (len(values) - 1)
    low, high = math.floor(place), math.ceil(place)
    parted = np.partition(values, (low, high))
    below, above = float(parted[low]), float(parted[high])
    return below if low == high else below + (above - below) * (place - low)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The different values, ascending."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


class SortedWindow:
    """The last values, in order of size: their median and its median deviation at little cost.

    To take in a value, and to ask for either, costs a logarithm of their number. Values must be
    finite.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: deque[float] = deque()
        self._ordered: list[float] = []

    def add(self, value: float) -> None:
        """Take in a value; the oldest goes where there are too many."""
        self._values.append(value)
        insort(self._ordered, value)
        if len(self._values) > self._size:
            del self._ordered[bisect_left(self._ordered, self._values.popleft())]

    @property
    def median(self) -> float:
        """Median of the values; there must be one."""
        half = len(self._ordered) // 2
        if len(self._ordered) % 2:
            return self._ordered[half]
        return (self._ordered[half - 1] + self._ordered[half]) / 2

    def deviation(self, center: float) -> float:
        """Median distance from `center`."""
        half = len(self._ordered) // 2
        if len(self._ordered) % 2:
            return self._nearest(center, half)
        return (self._nearest(center, half - 1) + self._nearest(center, half)) / 2

    def _nearest(self, center: float, rank: int) -> float:
        """The distance of the value that so many others are nearer than.

        The nearest values lie side by side; the first place of them is looked for by halves.
        """
        ordered = self._ordered
        low, high = 0, len(ordered) - rank - 1
        while low < high:
            place = (low + high) // 2
            if ordered[place + rank] - center >= center - ordered[place]:
                high = place
            else:
                low = place + 1
        distance = max(center - ordered[low], ordered[low + rank] - center)
        return min(distance, center - ordered[low - 1]) if low else distance
