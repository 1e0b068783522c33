"""Where a fall began."""

from __future__ import annotations

import numpy as np

from rlprobe import stats
from rlprobe.values import FloatArray


def descent_onset(values: FloatArray, row: int, *, reach: int = 32) -> int:
    """Row at which the fall that leads to `row` began.

    Two lines are laid through `reach` rows (least squares): a level and a slope that begins
    somewhere, or two levels. Where they fit no better than one line, the fall is older, or hidden
    in the scatter, and twice as many rows are taken. An earlier level, higher and left long ago, is
    so left out of sight.

    Args:
        values: finite.
        row: a row that the fall has reached; best some rows after the first that is sure.
    """
    sigma = float(np.nan_to_num(stats.noise(values)))
    while True:
        first = max(0, row + 1 - reach)
        part = values[first : row + 1]
        size = float(np.abs(part).max()) or 1.0
        slopes, levels = _reductions(part / size)
        best = max(float(slopes.max()), float(levels.max()))
        surplus = best - float(slopes[0])
        if first == 0 or surplus > 16 * (sigma / size) ** 2 + 1e-9:
            break
        reach *= 2
    sloping = float(slopes.max()) >= float(levels.max())
    return min(row, first + 1 + int(np.argmax(slopes if sloping else levels)))


def _reductions(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """By how much a slope, or a lower level, from after each row on reduces the squares; 0 for up.

    The last row has none; a single value has 0.
    """
    count = len(values)
    if count < 2:
        return np.zeros(1), np.zeros(1)
    centred = values - values.mean()
    after = np.cumsum(centred[::-1])[::-1][1:]  # sums of what comes after each row
    rows = np.arange(count, dtype=np.float64)
    moments = np.cumsum((rows * centred)[::-1])[::-1][1:]
    behind = np.arange(count - 1, 0, -1, dtype=np.float64)  # rows after each row
    across = moments - rows[:-1] * after
    total = behind * (behind + 1) / 2
    spread = total * (2 * behind + 1) / 3 - total**2 / count
    slopes = np.where(across < 0, across**2 / spread, 0.0)
    levels = np.where(after < 0, after**2 * count / (behind * (count - behind)), 0.0)
    return slopes, levels
