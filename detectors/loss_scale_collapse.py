"""LOSS_SCALE_COLLAPSE: the fp16 loss scale is halved and never regained, or sits at its floor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, number, stretch_from
from rlprobe.values import BoolArray


class LossScaleCollapse(Detector):
    """The fp16 loss scale is halved again and again, or sits at its floor.

    What it detects
        A scale that falls step after step until little is left of it; one that is halved every few
        steps and never regains what it lost; one that sits at its floor while updates are skipped.

    Why it matters
        Each halving is a step whose gradient overflowed and was thrown away. When no scale is
        left, either every step is skipped or the trainer stops: the run is dead, and usually the
        loss or the data is what overflows.

    How it is computed
        From the logged scale and the steps that were skipped. A single halving is the scaler doing
        its work: it takes 1,000 steps or more without an overflow to double, so that halvings at
        most `spacing` steps apart use the scale up. A scale of 1 on all rows with updates, or
        below 0, means that none is used. It is critical where a scale of 1 or below lasts to the
        end.

    What to do
        Train in bf16 where the hardware has it. Otherwise lower the learning rate, look at the
        batch at which the halving began, and clip the gradient.

    When it is wrong
        A log that begins in the middle of a search from a low scale looks the same as a collapse.
        With a long logging interval the rows do not show on which steps it was halved.

    References
        Micikevicius et al., Mixed precision training (2018). PyTorch `GradScaler`, which doubles
        after 2,000 steps; DeepSpeed `loss_scaler.py`, which does after 1,000 and stops at the
        minimum scale; Megatron-LM `grad_scaler.py`.
    """

    id = "LOSS_SCALE_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (("loss_scale",),)
    stage = "gradient"
    caused_by = ("LOSS_SPIKE", "DIVERGENCE", "NONFINITE_METRIC", "GRAD_PATHOLOGY", "RANK_OUTLIER")

    halvings: float = knob(4, "halvings in one stretch", minimum=2)
    share: float = knob(0.5, "halvings per step of a fall", minimum=0.05, maximum=1)
    low: float = knob(64, "scale at which little is left", minimum=1)

    search_from = fixed(4096, "a run that begins at this scale or above looks for its scale")
    never_found = fixed(4, "a search that ends here or below has failed")
    searches = fixed(5, "first rows in which a search begins")
    spacing = fixed(100, "steps between two halvings of a scaler that starves")
    lost_share = fixed(0.8, "share of skipped updates that shows a floor from the first row on")
    stuck_rows = fixed(5, "skipped steps in a row at one scale that show a floor above 1")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of halving, then what none of them explains: a starving scaler, a floor."""
        scale = Signal.of(run, "loss_scale", minimum=0, above=0)
        if not len(scale):
            return
        covered = np.zeros(len(scale), dtype=np.bool_)
        for variant, judge in (
            ("halving", self._halving),
            ("starving", self._starving),
            ("floor", self._floor),
        ):
            for stretch in judge(scale):
                if not covered[stretch.rows].any():
                    yield self._finding(stretch, variant)
                covered[stretch.rows] = True

    @rule("halving")
    def _halving(self, scale: Signal) -> Iterator[Stretch]:
        """A change: at least `halvings` halvings, on at least `share` of the steps of the stretch,
        that end at a scale of `low` or below. A run that begins at a high scale searches for its
        own: that first fall is healthy unless it ends near 1.
        """
        for fall in Judged(scale, _falls(scale)).runs(gap=1):
            if self._collapsed(fall):
                start = 0 if self._opens_the_log(fall) else fall.start
                yield stretch_from(scale, start, _until(scale, fall.end))

    @rule("starving")
    def _starving(self, scale: Signal) -> Iterator[Stretch]:
        """A change: `halvings` falls or more, at most `spacing` steps from one to the next, of
        which none is regained in between. A warning; info once the scale rises again.
        """
        rows = np.flatnonzero(_falls(scale))
        if not len(rows):
            return
        rises = np.cumsum(np.diff(scale.values, prepend=scale.values[0]) > 0)
        parted = (np.diff(scale.steps[rows]) > self.spacing) | (np.diff(rises[rows]) > 0)
        breaks = np.flatnonzero(parted)
        first, last = np.append(0, breaks + 1), np.append(breaks, len(rows) - 1)
        many = np.flatnonzero(last - first + 1 >= self.halvings)[: stats.MOST_EPISODES]
        for start, end in zip(rows[first[many]].tolist(), rows[last[many]].tolist(), strict=True):
            if not self._searching(scale, start, end):
                yield stretch_from(scale, start, _until(scale, end))

    @rule("floor")
    def _floor(self, scale: Signal) -> Iterator[Stretch]:
        """A state: two rows or more at 1 or below after it had been higher; a scale of 1 or below
        from the first row on, with `lost_share` of all updates skipped; any scale that stands still
        while `stuck_rows` updates in a row are skipped. One row alone is info.
        """
        at_floor = scale.values <= 1
        skips = Signal.logged(scale.run, "update_skipped")
        if at_floor.all():
            if skips is not None and (skips.values > 0).mean() >= self.lost_share:
                yield stretch_from(scale, 0)
            return
        higher = np.maximum.accumulate(scale.values) > 1
        yield from Judged(scale, at_floor & higher).runs(least=2)
        if skips is None:
            return
        for lost in Judged(skips, skips.values > 0).runs(least=self.stuck_rows):
            rows = np.flatnonzero((scale.steps >= lost.first) & (scale.steps <= lost.seen))
            if len(rows) >= self.stuck_rows and np.ptp(scale.values[rows]) == 0:
                yield stretch_from(scale, int(rows[0]), int(rows[-1]))

    def _collapsed(self, fall: Stretch) -> bool:
        scale, before = fall.signal, max(0, fall.start - 1)
        start, end = float(scale.values[before]), float(scale.values[fall.end])
        halvings = math.log2(start / end)
        span = int(scale.steps[fall.end] - scale.steps[before])
        searching = before == 0 and self._searching(scale, before, fall.end)
        enough = halvings >= self.halvings - 1e-9 and halvings >= self.share * span
        return enough and end <= self.low and not searching

    def _searching(self, scale: Signal, start: int, end: int) -> bool:
        """Whether a fall from the top of the log is the search for a scale, and finds one."""
        high = scale.values[max(0, start - 1)] >= self.search_from
        return bool(start <= self.searches and high and scale.values[end] > self.never_found)

    def _opens_the_log(self, fall: Stretch) -> bool:
        """Whether the first row already shows the result of the first halving."""
        scale = fall.signal
        first = fall.start == 1 and scale.steps[1] - scale.steps[0] == 1
        return bool(first and scale.values[0] < self.search_from)

    def _finding(self, stretch: Stretch, variant: str) -> Finding:
        signal = stretch.signal
        start = float(signal.values[max(0, stretch.start - 1)])
        lowest = float(stretch.values.min())
        skipped = int((signal.beside("update_skipped")[stretch.rows] > 0).sum())
        stuck = not stretch.recovered and lowest <= 1
        severity = Severity.CRITICAL if stuck else Severity.WARNING
        passed = len(stretch) == 1 or (variant == "starving" and stretch.recovered)
        return finding(
            self,
            stretch,
            _sentence(variant, start, lowest, skipped, len(stretch)),
            variant=variant,
            severity=Severity.INFO if passed else severity,
            confidence=0.9,
            evidence=(
                stretch.at_onset(start),
                stretch.in_all(lowest, start, "lowest"),
                Evidence(
                    "update_skipped", None, float(skipped), note="rows whose update was skipped"
                )
                if skipped
                else None,
            ),
            remedies=(
                "train in bf16, which needs no loss scale",
                f"look at the batch of step {stretch.first:,}: what overflows there?",
                "lower the learning rate and clip the gradient norm",
            ),
        )


def _sentence(variant: str, start: float, lowest: float, skipped: int, rows: int) -> str:
    fell = f"from {number(start)} to {number(lowest)}{SINCE}"
    if variant == "floor":
        of = f" on {skipped:,} of {rows:,} rows" if rows > 1 else ""
        lost = f", with the update skipped{of}" if skipped else ""
        return f"The fp16 loss scale sits at its floor of {number(lowest)}{SINCE}{lost}."
    if variant == "halving":
        return (
            f"The fp16 loss scale was halved step after step: {fell}; the update of each of these "
            "steps was thrown away."
        )
    times = round(math.log2(start / lowest))
    return (
        f"The fp16 loss scale was halved {times} times without regaining anything: {fell}; each "
        "halving threw an update away."
    )


def _falls(scale: Signal) -> BoolArray:
    """Rows on which the scale is lower than on the row before."""
    result: BoolArray = np.diff(scale.values, prepend=scale.values[0]) < 0
    return result


def _until(scale: Signal, row: int) -> int:
    """Last row before the scale has risen again."""
    higher = np.flatnonzero(scale.values[row:] > scale.values[row])
    return row + int(higher[0]) - 1 if len(higher) else len(scale) - 1
