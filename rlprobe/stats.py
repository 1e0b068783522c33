"""Robust statistics on series of measurements: baselines from the past, excursions, episodes.

Everything is vectorised and linear in the number of rows. A non-finite value never enters a
baseline, a baseline never looks ahead, and it stands still while the series is outside its band,
so that a fault cannot become the standard it is measured by.

A mask is a boolean array over rows; an `Episode` is a stretch of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from rlprobe import order_statistics
from rlprobe.order_statistics import SortedWindow

if TYPE_CHECKING:
    from rlprobe import values as _values

    BoolArray = _values.BoolArray
    FloatArray = _values.FloatArray
    IntArray = _values.IntArray
    Series = _values.Series

Array = TypeVar("Array", bound="np.ndarray[tuple[int, ...], np.dtype[np.generic]]")

SIGMA_PER_MAD = 1.4826  # of a normal distribution
SIGMA_PER_IQR = 0.7413
SIGMA_PER_MEAN = 1.2533  # of the mean absolute deviation
NOISE_ROWS = 10_000  # rows that the scatter of a whole series is taken from
BLOCK_ROWS = 1_024  # rows of a long block that its level is taken from, evenly spread
MOST_EPISODES = 24  # nobody reads more of one kind
MAX_BLOCKS = 256  # a baseline is computed per block of rows, so that its cost stays linear


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of rows.

    Attributes:
        start, end: first and last row, both inclusive.
        recovered: whether the series goes on after it.
    """

    start: int
    end: int
    recovered: bool

    def __len__(self) -> int:
        return self.end - self.start + 1

    @property
    def rows(self) -> slice:
        """The rows as a slice."""
        return slice(self.start, self.end + 1)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a series was like before each row; NaN where too little was known.

    Attributes:
        center: robust level (a median of the past), one per row.
        robust_std: robust standard deviation of the past, one per row; may be 0.
    """

    center: FloatArray
    robust_std: FloatArray


# --- values ---------------------------------------------------------------------------------------


def finite(values: FloatArray) -> FloatArray:
    """The values, with NaN for what is not finite."""
    return np.where(np.isfinite(values), values, np.nan)


def logs(values: FloatArray, floor: float) -> FloatArray:
    """Natural logarithms; below `floor` counts as `floor`, NaN and Inf become NaN."""
    return np.log(np.maximum(finite(values), floor))


def median(values: FloatArray) -> float:
    """Median of the finite values; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return order_statistics.median(kept) if len(kept) else math.nan


def quantile(values: FloatArray, share: float) -> float:
    """Quantile of the finite values; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return order_statistics.quantile(kept, share) if len(kept) else math.nan


def distinct(values: Array) -> Array:
    """The different values, ascending."""
    return cast("Array", order_statistics.distinct(values))


def robust_std(values: FloatArray) -> float:
    """Robust standard deviation (from the MAD) of the finite values; NaN if there are none."""
    return SIGMA_PER_MAD * median(np.abs(values - median(values)))


def row_medians(values: FloatArray) -> FloatArray:
    """Median of each row, shape (n, m) -> (n,), of values that are finite or NaN.

    NaN is passed over; a row without values has a median of NaN.
    """
    if values.shape[1] and bool(np.isfinite(values).all()):
        return order_statistics.row_medians(values)
    ordered = np.sort(values, axis=1)  # NaN goes last
    return _order(ordered, np.isfinite(ordered).sum(axis=1), 0.5)


def rolling_mean(values: FloatArray, width: int) -> FloatArray:
    """Mean of the last `width` finite values up to each row; NaN where none is finite."""
    known = np.isfinite(values)
    total = _trailing_sum(np.where(known, values, 0.0), width)
    count = _trailing_sum(known.astype(np.float64), width)
    out = np.full(len(values), np.nan)
    np.divide(total, count, out=out, where=count > 0)
    return out


def _trailing_sum(values: FloatArray, width: int) -> FloatArray:
    total: FloatArray = np.cumsum(values)
    out = total.copy()
    out[width:] -= total[:-width]
    return out


def rolling_max(values: FloatArray) -> FloatArray:
    """Largest finite value up to each row; NaN before the first."""
    known = np.where(np.isfinite(values), values, -np.inf)
    highest = np.maximum.accumulate(known) if len(known) else known
    return np.where(np.isfinite(highest), highest, np.nan)


def measured(series: Series, *, above: float = -math.inf) -> tuple[IntArray, FloatArray]:
    """Steps and values where the value is finite and above a limit."""
    kept = np.isfinite(series.values) & (series.values > above)
    if kept.all():
        return series.steps, series.values
    return series.steps[kept], series.values[kept]


def at_steps(series: Series | None, steps: IntArray) -> FloatArray:
    """Values of a series at these steps; NaN where it has none."""
    out = np.full(len(steps), np.nan)
    if series is None or not len(series):
        return out
    if np.array_equal(series.steps, steps):  # the usual case, and far cheaper
        return series.values.copy()
    place = np.minimum(np.searchsorted(series.steps, steps), len(series) - 1)
    found = series.steps[place] == steps
    out[found] = series.values[place[found]]
    return out


# --- baselines ------------------------------------------------------------------------------------


def past_baseline(
    values: FloatArray,
    *,
    above: float = math.inf,
    below: float = math.inf,
    warmup: int = 5,
    window: int = 64,
    blocks: int = MAX_BLOCKS,
) -> Baseline:
    """Rolling median and spread of the past, frozen while the series is out of its band.

    Args:
        values: one per row; non-finite ones are passed over.
        above: how far over the level a value still belongs to the series; a block of rows whose
            median is higher is not learnt from.
        below: the same downwards.
        warmup: blocks with finite values that must have passed before there is a baseline.
        window: learnt blocks that the baseline looks back on.
        blocks: upper limit of the number of blocks; up to so many rows, a block is one row.
    """
    size = max(1, math.ceil(len(values) / blocks))
    middles, inner = _block_levels(values, size)
    centers, spreads = _walk(middles, inner, above, below, warmup, window)
    return Baseline(_per_row(centers, size, len(values)), _per_row(spreads, size, len(values)))


def _per_row(of_blocks: FloatArray, size: int, rows: int) -> FloatArray:
    return np.repeat(of_blocks, size)[:rows]


def _block_levels(values: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Median and spread of the finite values of each block; NaN where a block has none."""
    count = math.ceil(len(values) / size)
    grid = np.full(count * size, np.nan)
    grid[: len(values)] = values
    shown = grid.reshape(count, size)[:, :: max(1, size // BLOCK_ROWS) | 1]
    grid = np.sort(finite(shown), axis=1)  # NaN goes last
    known = np.isfinite(grid).sum(axis=1)
    quarter = _order(grid, known, 0.75) - _order(grid, known, 0.25)
    return _order(grid, known, 0.5), SIGMA_PER_IQR * quarter


def _order(sorted_rows: FloatArray, known: IntArray, share: float) -> FloatArray:
    """The quantile of each sorted row over its first `known` entries (mean of two neighbours)."""
    place = share * np.maximum(known - 1, 0)
    low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
    row = np.arange(len(sorted_rows))
    out: FloatArray = (sorted_rows[row, low] + sorted_rows[row, high]) / 2
    return out


def _walk(
    middles: FloatArray, inner: FloatArray, above: float, below: float, warmup: int, window: int
) -> tuple[FloatArray, FloatArray]:
    """Baseline before each block, learning from block to block (at most `blocks` of them)."""
    centers, spreads = np.full(len(middles), np.nan), np.full(len(middles), np.nan)
    learnt, inners = SortedWindow(window), SortedWindow(window)
    center, sigma, count = math.nan, math.nan, 0
    for block, (middle, width) in enumerate(zip(middles.tolist(), inner.tolist(), strict=True)):
        if count >= warmup:
            centers[block], spreads[block] = center, sigma
        if math.isnan(middle):
            continue
        if count >= warmup and not center - below <= middle <= center + above:
            continue
        count += 1
        learnt.add(middle)
        inners.add(width)
        center = learnt.median
        sigma = math.hypot(SIGMA_PER_MAD * learnt.deviation(center), inners.median)
    return centers, spreads


# --- episodes -------------------------------------------------------------------------------------


def clusters(positions: IntArray, reach: int, most: int = MOST_EPISODES) -> list[tuple[int, int]]:
    """Index ranges (both ends inclusive) of positions that lie at most `reach` apart.

    Args:
        positions: ascending.
        reach: positions at most so far apart belong together.
        most: where there are more clusters, the closest are joined until so many are left.
    """
    if not len(positions):
        return []
    apart = np.diff(positions)
    breaks = np.flatnonzero(apart > reach)
    if len(breaks) >= most:
        widest = np.argpartition(apart[breaks], len(breaks) - most + 1)[len(breaks) - most + 1 :]
        breaks = breaks[np.sort(widest)]
    starts = [0, *(breaks + 1).tolist()]
    return list(zip(starts, [*breaks.tolist(), len(positions) - 1], strict=True))


def episodes(
    mask: BoolArray, *, gap: int = 0, least: int = 1, most: int = MOST_EPISODES
) -> tuple[Episode, ...]:
    """Runs of True, in order; runs at most `gap` False rows apart are one.

    Args:
        mask: one per row.
        gap: so many False rows do not end a run.
        least: an episode needs so many True rows; the others are left out.
        most: where there are more episodes, the closest are joined until so many are left.
    """
    rows = np.flatnonzero(mask)
    if least > 1:
        rows = _in_long_runs(rows, gap, least)
    found = clusters(rows, gap + 1, most)
    last = len(mask) - 1
    return tuple(
        Episode(int(rows[start]), int(rows[end]), recovered=int(rows[end]) < last)
        for start, end in found
    )


def _in_long_runs(rows: IntArray, gap: int, least: int) -> IntArray:
    """The rows of those runs that have at least so many of them."""
    if not len(rows):
        return rows
    run = np.concatenate(([0], np.cumsum(np.diff(rows) > gap + 1)))
    kept: IntArray = rows[np.bincount(run)[run] >= least]
    return kept


def persistent(mask: BoolArray, *, width: int, share: float, gap: int = 0) -> tuple[Episode, ...]:
    """Stretches in which every window of `width` rows has at least `share` of its rows True.

    Noise that leaves the band for a row or two is no episode, and a row or two back inside it do
    not end one. An episode begins and ends with a True row. Stretches with at most `gap` rows
    between them are one.
    """
    width = min(width, len(mask))
    if not width or not mask.any():
        return ()
    counts = _trailing_sum(mask.astype(np.float64), width)[width - 1 :]
    dense = counts >= share * width - 1e-9
    cover = np.zeros(len(mask) + 1)
    cover[:-width] += dense
    cover[width:] -= dense
    covered = np.cumsum(cover[:-1]) > 0
    return tuple(_trimmed(mask, episode) for episode in episodes(covered, gap=gap))


def _trimmed(mask: BoolArray, episode: Episode) -> Episode:
    rows = np.flatnonzero(mask[episode.rows]) + episode.start
    first, last = int(rows[0]), int(rows[-1])
    return Episode(first, last, recovered=episode.recovered)


def extend_back(outside: BoolArray, start: int, *, slack: int = 0) -> int:
    """First row of the stretch outside the band that leads to `start`.

    Goes back from `start` while rows are outside, over at most `slack` rows inside at a time.
    """
    first = start
    row = start - 1
    while row >= 0 and first - row <= slack + 1:
        inside = np.flatnonzero(~outside[max(0, row - 4096) : row + 1])
        if outside[row]:
            block_first = max(0, row - 4096) + (int(inside[-1]) + 1 if len(inside) else 0)
            first, row = block_first, block_first - 1
        else:
            row -= 1
    return first


def drift_onset(z: FloatArray, row: int, *, allowance: float = 1.0, reach: int = 25) -> int:
    """Row at which the drift that leads to `row` began (a one-sided cumulative sum).

    Args:
        z: robust distances from the baseline; NaN counts as on it.
        row: first row that is surely part of the drift.
        allowance: distance that is noise.
        reach: so many rows before `row` are looked at.
    """
    first = max(0, row - reach)
    steps = np.clip(np.nan_to_num(z[first : row + 1]), -2, 2) - allowance
    path = np.concatenate(([0.0], np.cumsum(steps)))
    lowest = len(path) - 1 - int(np.argmin(path[::-1]))
    return min(row, first + lowest)


def change_point(values: FloatArray) -> int | None:
    """First row of the second part when the series is best cut in two by level; None below 4 rows.

    Maximises the difference of the two means, weighted by how much they hold.
    """
    rows = np.flatnonzero(np.isfinite(values))
    if len(rows) < 4:
        return None
    kept = values[rows]
    count = len(kept)
    left = np.arange(1, count, dtype=np.float64)
    total = np.cumsum(kept)
    means = total[:-1] / left - (total[-1] - total[:-1]) / (count - left)
    score = np.abs(means) * np.sqrt(left * (count - left))
    return int(rows[int(np.argmax(score)) + 1])


# --- scatter --------------------------------------------------------------------------------------


def noise(values: FloatArray) -> float:
    """Scatter from row to row, as a standard deviation; a trend or a step does not enter it."""
    steps = np.abs(np.diff(values))[:: max(1, len(values) // NOISE_ROWS)]
    return SIGMA_PER_MAD * median(steps) / math.sqrt(2)


def past_quantile(values: FloatArray, share: float, blocks: int = 64) -> FloatArray:
    """Quantile of the finite values before each row's block; NaN where there are none.

    Args:
        blocks: upper limit of the number of blocks, so that the cost stays linear.
    """
    size = max(1, math.ceil(len(values) / blocks))
    starts = range(0, len(values), size)
    levels = [quantile(values[: start : max(1, start // NOISE_ROWS)], share) for start in starts]
    return _per_row(np.array(levels), size, len(values))


def scatter(values: FloatArray) -> FloatArray:
    """The same before each row, from its past only."""
    steps = np.abs(np.diff(values, prepend=values[0]))
    return past_baseline(steps, warmup=1).center * (SIGMA_PER_MAD / math.sqrt(2))
