"""LOSS_SCALE_COLLAPSE: the fp16 loss scale halves step after step, or sits at its floor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe.detector import Detector, Finding, RunContext, Severity, fixed, knob, rule
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, number, stretch_from


class LossScaleCollapse(Detector):
    """The fp16 loss scale is halved step after step, or sits at its floor.

    What it detects
        A scale that falls on most steps until little is left of it, or that sits at 1 or below
        after it had been higher.

    Why it matters
        Each halving is a step whose gradient overflowed and was thrown away. When no scale is
        left, either every step is skipped or the trainer stops: the run is dead, and usually the
        loss or the data is what overflows.

    How it is computed
        From the logged scale. A single halving is the scaler doing its work. A scale of 1 on all
        rows, or below 0, means that none is used. It is critical where a scale of 1 or below lasts
        to the end.

    What to do
        Train in bf16 where the hardware has it. Otherwise lower the learning rate, look at the
        batch at which the halving began, and clip the gradient.

    When it is wrong
        A log that begins in the middle of a search from a low scale looks the same as a collapse.
        With a long logging interval the rows do not show on which steps it was halved.

    References
        Micikevicius et al., Mixed precision training (2018). PyTorch `GradScaler`, DeepSpeed
        `loss_scaler.py`, which stops at the minimum scale; Megatron-LM `grad_scaler.py`.
    """

    id = "LOSS_SCALE_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (("loss_scale",),)
    caused_by = ("LOSS_SPIKE", "DIVERGENCE", "NONFINITE_METRIC", "GRAD_PATHOLOGY", "RANK_OUTLIER")

    halvings: float = knob(4, "halvings in one stretch", minimum=2)
    share: float = knob(0.5, "halvings per step of the stretch", minimum=0.05, maximum=1)
    low: float = knob(64, "scale at which little is left", minimum=1)

    search_from = fixed(4096, "a run that begins at this scale or above looks for its scale")
    never_found = fixed(4, "a search that ends here or below has failed")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of halving, then a floor that none of them explains."""
        scale = Signal.of(run, "loss_scale", minimum=0, above=0)
        if len(scale) < 2 or bool((scale.values == scale.values[0]).all()):
            return
        covered = -1
        for stretch in self._halving(scale):
            covered = stretch.end
            yield self._finding(stretch, "halving", "was halved step after step")
        for stretch in self._floor(scale):
            if stretch.start > covered:
                yield self._finding(stretch, "floor", "sits at its floor")

    @rule("halving")
    def _halving(self, scale: Signal) -> Iterator[Stretch]:
        """At least `halvings` halvings, on at least `share` of the steps of the stretch, that end
        at a scale of `low` or below. A run that begins at a high scale searches for its own: that
        first fall is healthy unless it ends near 1.
        """
        falls = np.diff(scale.values, prepend=scale.values[0]) < 0
        for fall in Judged(scale, falls).runs(gap=1):
            if self._collapsed(fall):
                start = 0 if self._opens_the_log(fall) else fall.start
                yield stretch_from(scale, start, _until(scale, fall.end))

    @rule("floor")
    def _floor(self, scale: Signal) -> tuple[Stretch, ...]:
        """Two rows or more at 1 or below, after it had been higher."""
        higher = np.maximum.accumulate(scale.values) > 1
        return Judged(scale, (scale.values <= 1) & higher).runs(least=2)

    def _collapsed(self, fall: Stretch) -> bool:
        scale, before = fall.signal, max(0, fall.start - 1)
        start, end = float(scale.values[before]), float(scale.values[fall.end])
        halvings = math.log2(start / end)
        span = int(scale.steps[fall.end] - scale.steps[before])
        searching = before == 0 and start >= self.search_from and end > self.never_found
        enough = halvings >= self.halvings - 1e-9 and halvings >= self.share * span
        return enough and end <= self.low and not searching

    def _opens_the_log(self, fall: Stretch) -> bool:
        """Whether the first row already shows the result of the first halving."""
        scale = fall.signal
        first = fall.start == 1 and scale.steps[1] - scale.steps[0] == 1
        return bool(first and scale.values[0] < self.search_from)

    def _finding(self, stretch: Stretch, variant: str, what: str) -> Finding:
        start = float(stretch.signal.values[max(0, stretch.start - 1)])
        lowest = float(stretch.values.min())
        stuck = not stretch.recovered and lowest <= 1
        return finding(
            self,
            stretch,
            f"The fp16 loss scale {what}: from {number(start)} to {number(lowest)}{SINCE}; the "
            "update of each of these steps was thrown away.",
            variant=variant,
            severity=Severity.CRITICAL if stuck else Severity.WARNING,
            confidence=0.9,
            evidence=(stretch.at_onset(start), stretch.in_all(lowest, start, "lowest")),
            remedies=(
                "train in bf16, which needs no loss scale",
                f"look at the batch of step {stretch.first:,}: what overflows there?",
                "lower the learning rate and clip the gradient norm",
            ),
        )


def _until(scale: Signal, row: int) -> int:
    """Last row before the scale has risen again."""
    higher = np.flatnonzero(scale.values[row:] > scale.values[row])
    return row + int(higher[0]) - 1 if len(higher) else len(scale) - 1
