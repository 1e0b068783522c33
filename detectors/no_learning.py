"""NO_LEARNING: nothing is learnt, although nothing is broken to be seen."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    Levels,
    Reach,
    Signal,
    Stretch,
    beginning,
    equal,
    finding,
    flat_shares,
    from_drift,
    near_top,
    number,
    stretch_from,
)
from rlprobe.rule.flat import MOST_ROWS
from rlprobe.rule.levels import LEAST_ROWS
from rlprobe.values import BoolArray, FloatArray

_SIZES = ("advantage_std", "advantage_abs_mean", "advantage_max")
_SPREADS = ("reward_group_std_mean", "reward_std")


class NoLearning(Detector):
    """Nothing is learnt: advantages have died, or the reward does not move.

    What it detects
        Advantages that shrink to nothing while rewards still differ; a reward that is the same on
        every row; a reward that has stood still for a good part of the run, below its top.

    Why it matters
        The update follows the advantages. Where they are 0 although rewards differ, the signal is
        lost between the reward and the loss (a mask, a filter, a normalisation), and every row
        costs a rollout and teaches nothing.

    How it is computed
        Of advantages the standard deviation, the mean size or the largest, whichever is logged
        first; small is `part` of what the run began with, on the mean of `width` rows. Flat groups,
        or a spread of the rewards that shrank alike, explain small advantages: nothing is said
        then. The level of a reward is the median of blocks of rows; it stands still from where all
        blocks up to the end lie within `sigmas` standard deviations of its last level.

    What to do
        Advantages: compare those of one batch by hand with its rewards; look at masks, filters and
        what they are divided by. A reward that stands still: look at rollouts, then at the learning
        rate, the difficulty of the prompts and the verifier.

    When it is wrong
        A run that has converged stands still, and a hard task does so for long before it is learnt:
        that is info. With a critic, advantages shrink as it learns: that is not reported.

    References
        Liu et al., Understanding R1-Zero-like training (2025), on what advantages are divided by.
    """

    id = "NO_LEARNING"
    severity = Severity.WARNING
    needs = (
        ("reward_mean",),
        *((name,) for name in _SIZES),
        ("advantage_zero_fraction",),
    )
    stage = "reward"
    caused_by = (
        "ZERO_VARIANCE",
        "DEAD_GRADIENT",
        "TRUNCATION",
        "LENGTH_EXPLOSION",
        "ENTROPY_COLLAPSE",
        "CLIP_SATURATION",
        "KL_BLOWUP",
        "FORMAT_GAMING",
        "REWARD_COLLAPSE",
    )

    part: float = knob(0.25, "part of its beginning that an advantage shrinks to", maximum=1)
    zeros: float = knob(0.5, "share of advantages that are 0", minimum=0.05, maximum=1)

    zero_rise = fixed(0.3, "share by which more advantages are 0 than in the beginning")
    flat_share = fixed(0.75, "share of flat groups that explains advantages of 0")
    alike = fixed(2, "times the part that advantages shrank to, to which the spread shrank alike")
    width = fixed(8, "rows of which a level is the mean")
    lasting = fixed(10, "rows from which a state is a warning")
    fewest = fixed(3, "rows on which a reward is the same, at least")
    blocks = fixed(12, "blocks of five rows or more that show that a reward stands still")
    still = fixed(0.35, "part of the run for which it stands still, at least")
    sigmas = fixed(3, "standard deviations of a block around a level that stands still")

    @rule("advantages")
    def _advantages(self, run: RunContext) -> Iterator[Finding]:
        """Advantages at `part` of what they began with, or `zeros` of them 0 and `zero_rise` more
        than in the beginning, for `lasting` rows to the end, while rewards differ: a warning. A
        state: all are exactly 0 from the first row on; info, a warning where it lasts for `lasting`
        rows and rewards are known to differ.
        """
        if run.series("value_loss") is not None:
            return
        size = next((s for name in _SIZES if (s := _logged(run, name))), None)
        if size is not None and len(size):
            largest = np.abs(size.values)
            if size.metric == "advantage_max":
                largest = np.fmax(largest, np.abs(size.beside("advantage_min")))
            size = size.with_values(largest)
            if not largest.any():
                yield from self._none(size)
                return
            shrunk = next(self._shrunk(size), None)
            if shrunk is not None:
                yield shrunk
                return
        zero = _logged(run, "advantage_zero_fraction")
        if zero is not None and len(zero):
            yield from self._zeroed(zero)

    @rule("constant")
    def _constant(self, run: RunContext) -> Iterator[Finding]:
        """A state: the mean reward is the same on all rows, `fewest` or more, and no flat groups
        are logged that say so. Info; a warning on `lasting` rows, below the top.
        """
        reward = Signal.logged(run, "reward_mean")
        if reward is None:
            return
        reward.require(self.fewest)
        level = stats.median(reward.values)
        explained = next(flat_shares(run), None) is not None
        if explained or not equal(np.ptp(reward.values), level):
            return
        stretch = stretch_from(reward, 0)
        warned = len(reward) >= self.lasting and not near_top(stretch)
        yield finding(
            self,
            stretch,
            f"The mean reward is {number(level)} on every row{SINCE}.",
            variant="constant",
            severity=Severity.WARNING if warned else Severity.INFO,
            confidence=0.7,
            evidence=(stretch.in_all(level, None, "the same on every row"),),
            remedies=(
                "test the verifier by hand on a right and on a wrong answer",
                "look at the rollouts: cut, empty, or all the same?",
            ),
        )

    @rule("plateau")
    def _plateau(self, run: RunContext) -> Iterator[Finding]:
        """The reward stands still to the end for `still` of the run, and `blocks` blocks, below its
        top. Info.
        """
        reward = Signal.logged(run, "reward_mean")
        if reward is None:
            return
        reward.require(LEAST_ROWS * self.blocks)
        levels = Levels.of(_thinned(reward))
        if not levels.extent > 0:
            return
        band = self.sigmas * max(levels.noise, stats.robust_std(levels.values[-self.blocks :]))
        off = np.flatnonzero(np.abs(levels.values - levels.now) > band)
        first = int(off[-1]) + 1 if len(off) else 0
        long = len(levels) - first >= max(self.blocks, self.still * len(levels))
        if not long or _trend(levels.values[first:]) > levels.noise:
            return
        stretch = stretch_from(levels.signal, int(levels.starts[first]))
        if near_top(stretch):
            return
        top = Reach.of(levels.signal, levels.signal.values).top
        yield finding(
            self,
            stretch,
            f"The mean reward has stood at about {number(stretch.usual)}{SINCE}.",
            variant="plateau",
            severity=Severity.INFO,
            confidence=0.6,
            evidence=(
                stretch.in_all(stretch.usual, None, "median since"),
                stretch.in_all(top, None, "the most it can be") if np.isfinite(top) else None,
            ),
            remedies=(
                "look at rollouts that fail: what do they lack?",
                "raise the learning rate or the number of rollouts per prompt",
            ),
        )

    def _none(self, size: Signal) -> Iterator[Finding]:
        """All advantages are 0."""
        flat = _flat(size)
        if stats.median(flat) >= self.flat_share:
            return
        stretch = stretch_from(size, 0)
        lasting = len(size) >= self.lasting and np.isfinite(flat).any()
        yield self._dead(
            stretch,
            f"All advantages are 0{SINCE}, on {len(size):,} rows",
            Severity.WARNING if lasting else Severity.INFO,
            (stretch.in_all(0.0, None, "size of the advantages"),),
        )

    def _shrunk(self, size: Signal) -> Iterator[Finding]:
        """Advantages that have become small."""
        level = stats.rolling_mean(size.values, self.width)
        begun = beginning(size, self.width)
        if not begun > 0:
            return
        for stretch in self._lasting(size, level <= self.part * begun, level < 0.9 * begun, -level):
            now = float(size.values[stretch.end + 1 - self.width : stretch.end + 1].mean())
            if self._explained(stretch, now / begun):
                continue
            yield self._dead(
                stretch,
                f"The size of the advantages fell from {number(begun)} to {number(now)}{SINCE}",
                Severity.WARNING,
                (
                    stretch.in_all(now, begun, "mean of the last rows, against the beginning"),
                    self._of_flat(stretch),
                ),
            )

    def _zeroed(self, zero: Signal) -> Iterator[Finding]:
        """Advantages of which many have become 0."""
        level = stats.rolling_mean(zero.values, self.width)
        begun = beginning(zero, self.width)
        bad = level >= max(self.zeros, begun + self.zero_rise)
        for stretch in self._lasting(zero, bad, level > begun + 0.1 * (1 - begun), level):
            now = float(zero.values[stretch.end + 1 - self.width : stretch.end + 1].mean())
            if stats.median(_flat(zero)[stretch.core]) >= begun + 0.5 * (now - begun):
                continue
            yield self._dead(
                stretch,
                f"The share of advantages that are 0 rose from {begun:.0%} to {now:.0%}{SINCE}",
                Severity.WARNING,
                (
                    stretch.in_all(now, begun, "mean of the last rows, against the beginning"),
                    self._of_flat(stretch),
                ),
            )

    def _lasting(
        self, signal: Signal, bad: BoolArray, departed: BoolArray, rising: FloatArray
    ) -> list[Stretch]:
        """The last episode, if it goes on, from where the drift to it set in."""
        stretches = Judged(signal, bad, departed).persistent(gap=self.lasting)
        slow = from_drift(stretches, rising)[-1:]
        return [s for s in slow if not s.recovered and s.end + 1 - s.sure >= self.lasting]

    def _explained(self, stretch: Stretch, part: float) -> bool:
        """Whether the rewards themselves differ as much less as the advantages do."""
        if stats.median(_flat(stretch.signal)[stretch.core]) >= self.flat_share:
            return True
        spread = next((n for n in _SPREADS if stretch.signal.run.series(n) is not None), None)
        if spread is None:
            return False
        values = stretch.signal.beside(spread)
        now, begun = (
            stats.median(values[stretch.end + 1 - self.width :]),
            stats.median(values[: self.width]),
        )
        return bool(now <= self.alike * part * begun)

    def _of_flat(self, stretch: Stretch) -> Evidence | None:
        best = next(flat_shares(stretch.signal.run), None)
        if best is None or best[0].metric != "zero_variance_group_fraction":
            return None
        change = stretch.beside(best[0].metric)
        return change.evidence()

    def _dead(
        self,
        stretch: Stretch,
        what: str,
        severity: Severity,
        evidence: tuple[Evidence | None, ...],
    ) -> Finding:
        unknown = not np.isfinite(_flat(stretch.signal)[stretch.core]).any()
        why = "" if unknown else ", although rewards differ inside most groups"
        return finding(
            self,
            stretch,
            f"{what}{why}: there is next to nothing to learn from.",
            variant="advantages",
            severity=severity,
            confidence=0.6 if unknown else 0.8,
            evidence=evidence,
            remedies=(
                "compute the advantages of one batch by hand from its rewards",
                "look at masks and filters, and at what advantages are divided by",
                "check that rewards reach the trainer as they were paid",
            ),
        )


def _logged(run: RunContext, metric: str) -> Signal | None:
    signal = Signal.logged(run, metric)
    return None if signal is None else _thinned(signal)


def _thinned(signal: Signal) -> Signal:
    """Rows at equal distances of a long log: levels need no more."""
    apart = math.ceil(len(signal) / MOST_ROWS)
    return signal if apart <= 1 else signal.where(np.arange(len(signal)) % apart == 0)


def _flat(signal: Signal) -> FloatArray:
    """The share of flat groups at the rows of a signal; NaN where it is not known."""
    best = next(flat_shares(signal.run), None)
    if best is None:
        return np.full(len(signal), np.nan)
    share, values = best
    return share.with_values(values).at(signal.steps)


def _trend(levels: FloatArray) -> float:
    """By how much the second half of some levels is off the first."""
    half = len(levels) // 2
    return abs(stats.median(levels[half:]) - stats.median(levels[:half]))
