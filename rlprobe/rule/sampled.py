"""What rollouts show at the recorded steps of a run, and the episodes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe.detector import RunContext
from rlprobe.findings import Evidence
from rlprobe.rule.episodes import Judged, Period
from rlprobe.rule.rollouts import sampled_steps
from rlprobe.rule.signals import Signal
from rlprobe.values import BoolArray, Rollout

MOST_STEPS = 100  # recorded steps that are read
SPAN, SHARE = 3, 0.6  # persistent: most of three recorded steps in a row


@dataclass(frozen=True, slots=True)
class Shown:
    """What the rollouts of one step show.

    Attributes:
        share: part of them, or of their groups, that is bad.
        bad: the bad ones, or all of the bad groups.
        group: the group of the first bad one; any group where none is.
    """

    step: int
    share: float
    bad: Sequence[Rollout]
    group: Sequence[Rollout]

    @property
    def group_id(self) -> str:
        """Name of the group."""
        return self.group[0].group_id


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """Recorded steps in a row at which rollouts are bad.

    Attributes:
        onset: the first bad step, also among those that were passed over at first.
        before: the last step before it that was read; None where there is none.
        shown: the steps of it that were read.
    """

    period: Period
    onset: Shown
    before: Shown | None
    shown: Sequence[Shown]

    @property
    def share(self) -> float:
        """The mean share that is bad."""
        return float(np.mean([step.share for step in self.shown]))

    @property
    def confidence(self) -> float:
        """More where more steps show it."""
        return 0.85 if len(self.shown) >= SPAN else 0.7

    @property
    def samples(self) -> list[str]:
        """The group at the onset, and the one before it to compare with."""
        healthy = () if self.before is None else self.before.group
        return [rollout.sample_id for rollout in (*self.onset.group, *healthy)]

    def evidence(self, what: str, *others: Evidence | None) -> Iterator[Evidence | None]:
        """The share at the onset, in all, and before.

        Args:
            what: what the share at the onset is.
            others: what else the finding rests on, after the shares of the episode.
        """
        onset, before = self.onset, self.before
        usual = None if before is None else before.share
        note = f"{what}; see the whole group {onset.group_id}"
        yield Evidence("samples", onset.step, onset.share, usual, note=note)
        note = "mean share over the recorded steps of it"
        yield Evidence("samples", None, self.share, note=note)
        yield from others
        if before is not None:
            note = f"share before it; compare with group {before.group_id}"
            yield Evidence("samples", before.step, before.share, note=note)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the rollouts of a run show, one entry per recorded step that was read.

    Attributes:
        steps: all that were read.
        shares: part of the rollouts, or groups, that is bad at each entry, as a signal.
        look: what a step shows; None where it has too few rollouts.
    """

    steps: Sequence[int]
    shares: Signal
    shown: Sequence[Shown]
    look: Callable[[int], Shown | None]

    @classmethod
    def of(cls, run: RunContext, look: Callable[[int], Shown | None]) -> Sampled:
        """Read steps of a run, evenly spread, and the last ones."""
        steps = sampled_steps(run.sample_steps(), MOST_STEPS, SPAN)
        shown = [step for step in map(look, steps) if step is not None]
        at = np.array([step.step for step in shown], dtype=np.int64)
        shares = np.array([step.share for step in shown], dtype=np.float64)
        return cls(steps, Signal(run, "samples", at, shares), shown, look)

    def episodes(self, bad: BoolArray, share: float) -> Iterator[SampledEpisode]:
        """Stretches of bad steps. A single one among others, and a start that passes, is none.

        Args:
            bad: one per entry.
            share: from which on a step between two that were read is bad, too.
        """
        for stretch in Judged(self.shares, bad).persistent(SPAN, SHARE):
            if len(stretch) < min(2, len(self.shown)) or (not stretch.start and stretch.recovered):
                continue
            before = self.shown[stretch.start - 1] if stretch.start else None
            onset = self._first(before, self.shown[stretch.start], share)
            run = self.shares.run
            period = Period(run, onset.step, stretch.seen, stretch.recovered)
            yield SampledEpisode(period, onset, before, self.shown[stretch.rows])

    def _first(self, good: Shown | None, bad: Shown, share: float) -> Shown:
        """The first bad step, by halving the recorded steps between a good and a bad one."""
        if good is None:
            return bad
        steps = self.shares.run.sample_steps()
        between = [step for step in steps if good.step < step < bad.step]
        while between:
            middle = len(between) // 2
            shown = self.look(between[middle])
            if shown is not None and shown.share >= share:
                bad, between = shown, between[:middle]
            else:
                between = between[middle + 1 :]
        return bad
