"""LOSS_SCALE_COLLAPSE: the fp16 loss scale halves step after step, or sits at its floor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Severity, knob

SEARCH_FROM = 4096.0  # a run that begins at this scale or above is looking for its scale
NEVER_FOUND = 4.0  # a search that ends here found none
AT_FLOOR_ROWS = 2


class LossScaleCollapse(Detector):
    """The fp16 loss scale is halved step after step, or sits at its floor.

    What it detects
        `halving`: the scale falls on most steps until little is left of it. `floor`: it sits at 1
        or below after it had been higher.

    Why it matters
        Each halving is a step whose gradient overflowed and was thrown away. When no scale is
        left, either every step is skipped or the trainer stops: the run is dead, and usually the
        loss or the data is what overflows.

    How it is computed
        From the logged scale. At least `halvings` halvings, on at least `share` of the steps of
        the stretch, that end at a scale of `low` or below. A run that begins at a high scale
        searches for its own: that first fall is healthy unless it ends near 1. A single halving is
        the scaler doing its work. A scale of 1 on all rows, or below 0, means that none is used.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Stretches of halving, then the floor."""
        series = run.series("loss_scale")
        if series is None:
            return
        steps, scale = stats.measured(series, above=0.0)
        if len(scale) < 2 or bool((scale == scale[0]).all()):
            return
        falls = np.zeros(len(scale), dtype=np.bool_)
        falls[1:] = scale[1:] < scale[:-1]
        covered = -1
        for episode in stats.episodes(falls, gap=1):
            if self._collapsed(steps, scale, episode):
                first = _from(steps, scale, episode)
                whole = stats.Episode(first, _until(scale, episode.end), recovered=True)
                covered = whole.end
                yield _finding(run, steps, scale, whole, "halving")
        yield from _floor(run, steps, scale, covered)

    def _collapsed(
        self, steps: stats.IntArray, scale: stats.FloatArray, episode: stats.Episode
    ) -> bool:
        before = max(0, episode.start - 1)
        start, end = float(scale[before]), float(scale[episode.end])
        count = float(np.log2(start / end))
        span = int(steps[episode.end] - steps[before])
        searching = before == 0 and start >= SEARCH_FROM and end > NEVER_FOUND
        return (
            not searching
            and count >= self.halvings - 1e-9
            and count >= self.share * span
            and end <= self.low
        )


def _from(steps: stats.IntArray, scale: stats.FloatArray, episode: stats.Episode) -> int:
    """A log that opens with the fall shows the result of its first halving on the first row."""
    opens = episode.start == 1 and scale[0] < SEARCH_FROM and steps[1] - steps[0] == 1
    return 0 if opens else episode.start


def _until(scale: stats.FloatArray, row: int) -> int:
    """Last row before the scale has risen again."""
    higher = np.flatnonzero(scale[row:] > scale[row])
    return row + int(higher[0]) - 1 if len(higher) else len(scale) - 1


def _floor(
    run: RunContext, steps: stats.IntArray, scale: stats.FloatArray, covered: int
) -> Iterator[Finding]:
    """At 1 or below after it had been higher; rows that a halving already explains are left."""
    higher = np.maximum.accumulate(scale) > 1
    for episode in stats.episodes((scale <= 1) & higher, least=AT_FLOOR_ROWS):
        if episode.start > covered:
            yield _finding(run, steps, scale, episode, "floor")


def _finding(
    run: RunContext,
    steps: stats.IntArray,
    scale: stats.FloatArray,
    episode: stats.Episode,
    variant: str,
) -> Finding:
    before = max(0, episode.start - 1)
    first, last = int(steps[episode.start]), int(steps[episode.end])
    start, lowest = float(scale[before]), float(scale[episode.rows].min())
    whole = stats.Episode(episode.start, episode.end, episode.end < len(scale) - 1)
    stuck = not whole.recovered and lowest <= 1
    what = "was halved step after step" if variant == "halving" else "sits at its floor"
    return Finding(
        detector="LOSS_SCALE_COLLAPSE",
        variant=variant,
        severity=Severity.CRITICAL if stuck else Severity.WARNING,
        confidence=0.9,
        first_bad_step=first,
        last_bad_step=last if whole.recovered else run.last_step,
        state=stats.outcome(whole, ended=run.ended),
        summary=(
            f"The fp16 loss scale {what}: from {stats.number(start)} to {stats.number(lowest)} "
            f"from step {first:,} on; the update of each of these steps was thrown away."
        ),
        evidence=(
            Evidence("loss_scale", first, float(scale[episode.start]), start, note="onset"),
            Evidence("loss_scale", None, lowest, start, note="lowest"),
        ),
        remedies=(
            "train in bf16, which needs no loss scale",
            f"look at the batch of step {first:,}: what overflows there?",
            "lower the learning rate and clip the gradient norm",
        ),
        metrics=("loss_scale",),
    )
