"""The last values of a series in order of size, for medians that move along with it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


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
