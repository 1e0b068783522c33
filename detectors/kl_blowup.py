"""KL_BLOWUP: the policy leaves the model it is tied to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Judged,
    Signal,
    Stretch,
    beginning,
    breaks_in,
    drift_onset,
    early,
    finding,
    from_drift,
    held_until,
    number,
    restore,
    shifts,
    still_gains,
    stretch_from,
    told_change,
)


class _Kind(NamedTuple):
    """One of the three KLs."""

    metric: str
    variant: str | None
    between: str
    floor: float
    ceiling: float = math.inf


class KLBlowup(Detector):
    """The policy's KL runs far away: it left the reference model.

    What it detects
        A KL far above the run's own past, for a while or for good; one that has got so far, however
        slowly, that little is left of the reference; one that is far from 0 before anything was
        learnt. Three KLs are three metrics: to the reference model, to the policy before the
        update, and between trainer and inference engine.

    Why it matters
        Beyond a few nats per token the policy has nothing left of the model it started from;
        rewards, lengths and text go next. Large update drift voids the importance ratios, large
        mismatch makes every update off-policy.

    How it is computed
        On a log scale, against the median of the run's whole past, which is not updated while the
        series is outside. A row is bad above `ratio` times that level and a quarter of the floor,
        in the first `settled` rows the floor itself: `floor` nats for the reference. Above
        `ceiling` nats a reference KL is bad whatever went before, so a run may be bad from its
        first row. `gap` rows do not part an episode. The onset is walked back over rows above
        `departed` times the level and `sigmas` robust standard deviations; where the KL took more
        than a few rows to get there, to the bend at which its climb set in. A single row is info,
        as are fewer than `lasting` rows below the floor; two rows that pass are a warning, as is
        what lasts below the floor; the rest is critical.

    What to do
        Restore a checkpoint from before the onset. Lower the learning rate, raise the KL
        coefficient or use an adaptive one; look for a gradient spike just before it.

    When it is wrong
        A KL summed over the completion instead of averaged over its tokens has another scale: raise
        `floor` and `ceiling`. With a KL coefficient of 0 the reference is not meant to hold. The
        usual estimator has rare huge single values, which is why single rows weigh little.

    References
        Schulman, Approximating KL divergence (2020), on the estimators. Ziegler et al., Fine-tuning
        language models from human preferences (2019), on the adaptive coefficient. TRL
        `grpo_trainer.py`, verl `core_algos.py`, for what their KL keys mean.
    """

    id = "KL_BLOWUP"
    severity = Severity.CRITICAL
    needs = (("kl_mean",), ("approx_kl",), ("mismatch_kl",))
    stage = "policy"
    caused_by = (
        "GRAD_PATHOLOGY",
        "ADVANTAGE_NOISE",
        "ZERO_VARIANCE",
        "POLICY_MISMATCH",
        "LOSS_SPIKE",
        "CLIP_SATURATION",
        "REWARD_HACKING",
        "RESTART_DISCONTINUITY",
    )

    ratio: float = knob(10, "times the run's own past", minimum=2)
    floor: float = knob(
        2.0, "reference KL that leaves little of the reference", unit="nats/token", minimum=0.001
    )
    ceiling: float = knob(30, "reference KL that is bad in any run", unit="nats/token", minimum=1)
    update_floor: float = knob(0.5, "the same floor for the update drift", unit="nats/token")
    mismatch_floor: float = knob(0.5, "the same floor for trainer against sampler", unit="nats")

    gap = fixed(2, "rows that do not part two episodes")
    departed = fixed(3, "times the level at which a row has left the usual range")
    sigmas = fixed(3, "robust standard deviations above the level at which it has")
    settled = fixed(20, "first rows of a run, which only the whole floor is used in")
    lasting = fixed(5, "bad rows that are no passing event")
    span = fixed(10, "rows looked at together, most of which must be above `floor`")
    nothing = fixed(0.01, "nats: a smaller reference KL is as good as none")
    at_start = fixed(0.25, "part of `floor` that no first update explains")
    fallen = fixed(0.5, "part of it that is left where a KL to a teacher falls by being learnt")
    shifted = fixed(1.5, "times the level before, at one row and for good")
    broken = fixed(1.5, "times the largest change before, which is enough for a KL ...")
    doubled = fixed(2.0, "... that is so many times the level before, at one row and for good")
    beside = fixed(8, "rows on either side of such a row that are compared")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The three KLs in turn; what one rule told of the reference, the next does not repeat."""
        yield from self._reference(run)
        yield from self._update(run)
        yield from self._mismatch(run)
        for (metric,) in self.needs:
            if logged := Signal.logged(run, metric):
                logged.require(2)

    @rule(None)
    def _reference(self, run: RunContext) -> Iterator[Finding]:
        """The KL to the reference model."""
        kind = _Kind("kl_mean", None, "reference model", self.floor, self.ceiling)
        kl = _magnitude(run, kind.metric)
        if kl is None:
            return
        reported = np.zeros(len(kl), dtype=np.bool_)
        for stretch in self._sudden(kl, kind):
            reported[stretch.rows] = True
            yield self._finding(stretch, kind)
        jumps = [jump for jump in self._jumps(kl) if not reported[jump.sure]]
        yield from self._shift(jumps)
        if run.series("preference_margin") is None:  # there it is a sum over the completion
            yield from self._far(kl, reported, [jump.sure for jump in jumps])
            yield from self._start(kl, reported)

    @rule("far")
    def _far(self, kl: Signal, reported: stats.BoolArray, jumps: list[int]) -> Iterator[Finding]:
        """Most of `span` rows in a row are above `floor`, however slowly they got there. A warning;
        critical where half of the reward is lost, info where the reward still grows.
        """
        for stretch in Judged(kl, kl.values > self.floor).persistent(self.span):
            jump = max((row for row in jumps if row <= stretch.sure), default=0)
            known = reported[stretch.rows].any() or (jump and stretch.sure - jump <= self.span)
            reported[stretch.rows] = True
            (slow,) = from_drift([stretch.starting(0)], kl.values)
            if not known and not slow.start <= jump > 0:
                yield self._far_finding(slow)

    @rule("start")
    def _start(self, kl: Signal, reported: stats.BoolArray) -> Iterator[Finding]:
        """The first row of the run is above `at_start` of the floor, when there was nothing to
        learn yet, and the KL does not fall to `fallen` of it. Info; a warning from `lasting` rows.
        """
        limit = self.at_start * self.floor
        first = kl.run.first_step <= kl.run.interval
        if not len(kl) or not first or reported[:1].any() or not kl.values[0] > limit:
            return
        near = Judged(kl, kl.values > limit).runs(gap=self.gap)[0]
        if stats.median(near.values[-self.lasting :]) >= self.fallen * near.onset:
            yield self._start_finding(near, limit)

    @rule("shift")
    def _shift(self, jumps: list[Stretch]) -> Iterator[Finding]:
        """The level is `shifted` times as high from one row on and for good, which is far more than
        it usually changes, or `doubled` and `broken` times the largest change. A warning; info
        where an event of the run tells of a change at that row.
        """
        yield from map(self._shift_finding, jumps)

    @rule("update")
    def _update(self, run: RunContext) -> Iterator[Finding]:
        """The KL to the policy before the update, with `update_floor` as its floor and without a
        ceiling. A warning at most.
        """
        kind = _Kind("approx_kl", "update", "policy before the update", self.update_floor)
        yield from self._of_kind(run, kind)

    @rule("mismatch")
    def _mismatch(self, run: RunContext) -> Iterator[Finding]:
        """The KL between trainer and inference engine, with `mismatch_floor` as its floor and
        without a ceiling. A warning at most.
        """
        kind = _Kind("mismatch_kl", "mismatch", "inference engine", self.mismatch_floor)
        yield from self._of_kind(run, kind)

    def _of_kind(self, run: RunContext, kind: _Kind) -> Iterator[Finding]:
        kl = _magnitude(run, kind.metric)
        if kl is not None:
            yield from (self._finding(stretch, kind) for stretch in self._sudden(kl, kind))

    def _sudden(self, kl: Signal, kind: _Kind) -> list[Stretch]:
        if not (kl.values > kind.floor / 4).any():
            return []
        beyond = kl.values > kind.ceiling
        past = kl.past(
            log=max(kind.floor / 4, 1e-6) / self.ratio,
            above=math.log(self.ratio),
            warmup=1,
            window=WHOLE,  # a slow climb must not carry the level along
            without=beyond,
        )
        least = np.where(early(self.settled, len(kl)), kind.floor, kind.floor / 4)
        bad = beyond | (past.times(self.ratio) & (kl.values > least))
        departed = beyond | past.above(sigmas=self.sigmas, at_least=math.log(self.departed))
        found = Judged(kl, bad, departed).runs(gap=self.gap)
        worth = (
            stretch
            for stretch in found
            if stretch.values.max() > kind.floor or len(stretch) > 1 + stretch.recovered
        )
        return from_drift(worth, self._logs(kl))

    def _jumps(self, kl: Signal) -> list[Stretch]:
        """Lasting rises from one row to the next, of a KL that was there before."""
        jumps = [
            stretch_from(kl, shift.row)
            for shift in shifts(kl)
            if shift.up and shift.lasts and shift.after > self.shifted * shift.before
            if shift.before > self.nothing
        ]
        jumps = jumps or [
            stretch_from(kl, item.row)
            for item in breaks_in(kl, times=self.broken)
            if item.ratio > self.doubled and item.before > self.nothing
            if len(kl) - item.row > self.span and held_until(item) == len(kl) - 1
        ]
        return [jump.starting(self._left(jump)) for jump in jumps]

    def _left(self, jump: Stretch) -> int:
        """The row at which the KL left its line, some rows before the largest step; else that."""
        onset = drift_onset(self._logs(jump.signal), jump.sure)
        return onset if 1 < jump.sure - onset <= self.beside else jump.sure

    def _logs(self, kl: Signal) -> stats.FloatArray:
        return stats.logs(kl.values, self.nothing)

    def _finding(self, stretch: Stretch, kind: _Kind) -> Finding:
        before = stretch.before(64)
        logged = stretch.of(stretch.signal.alongside(kind.metric))  # with its sign
        step, top = int(stretch.signal.steps[stretch.top]), float(logged.signal.values[stretch.top])
        known = math.isfinite(before)
        against = f"against {number(before)} before" if known else "from the first row on"
        departure = (
            f"; it left its usual range at step {stretch.first:,}" if len(stretch) > 1 else ""
        )
        severity = self._severity(stretch, kind)
        return finding(
            self,
            stretch,
            f"{kind.metric if kind.variant else 'KL'} to the {kind.between} reached {number(top)} "
            f"nats at step {step:,}, {against}{departure}.",
            variant=kind.variant,
            severity=severity,
            confidence=0.95 if len(stretch) >= self.lasting else 0.8,
            evidence=(
                logged.at_onset(before if known else kind.ceiling),
                Evidence(
                    kind.metric, step, top, kind.floor, note="highest" if top > 0 else "farthest"
                ),
            ),
            remedies=_remedies(stretch, kind.variant, severity),
        )

    def _severity(self, stretch: Stretch, kind: _Kind) -> Severity:
        usual = np.fmax(self.departed * stretch.before(64), kind.floor / 4)
        high = stretch.signal.values[stretch.core] > usual
        rows = int(high.sum())
        if rows < self.lasting:  # rows that stand alone are no run of them
            rows = max(map(len, stats.episodes(high)), default=1)
        top = float(stretch.values.max())
        then = stats.median(stretch.signal.values[stretch.end + 1 :][: self.lasting])
        passed = top <= kind.ceiling or then <= max(kind.floor, usual)
        if (rows == 1 and passed) or (top <= kind.floor and rows < self.lasting):
            return Severity.INFO
        if kind.variant is not None or rows == 1 or (stretch.recovered and rows == 2):
            return Severity.WARNING
        below = stats.median(stretch.signal.values[stretch.core]) <= kind.floor
        return Severity.WARNING if below and rows >= self.lasting else Severity.CRITICAL

    def _far_finding(self, stretch: Stretch) -> Finding:
        usual = stats.median(stretch.signal.values[stretch.core])
        start = beginning(stretch.signal, self.lasting)
        reward = dataclasses.replace(stretch, start=stretch.sure).beside("reward_mean")
        gains = still_gains(stretch)
        lost = reward.known and reward.before > 0 and reward.fell(0.5)
        went = "the reward still grows" if gains else "the reward does not grow"
        severity = Severity.CRITICAL if lost else Severity.INFO if gains else Severity.WARNING
        return finding(
            self,
            stretch,
            f"KL to the reference model climbed{SINCE}: {number(usual)} nats per token at the "
            f"median since step {int(stretch.signal.steps[stretch.sure]):,}, against "
            f"{number(start)} at the beginning{f'; {went}' if reward.known else ''}.",
            variant="far",
            severity=severity,
            confidence=0.85,
            evidence=(
                stretch.at_onset(start),
                stretch.in_all(usual, start, "level since it is far, against the beginning"),
                stretch.at_top(self.floor),
                reward.evidence("level since it is far, against before"),
            ),
            remedies=_remedies(stretch, None, severity),
        )

    def _start_finding(self, stretch: Stretch, limit: float) -> Finding:
        lasts = len(stretch) >= self.lasting
        return finding(
            self,
            stretch,
            f"KL to the reference model is {number(stretch.onset)} nats in the first row, before "
            f"anything was learnt, and {number(stretch.usual)} over {len(stretch):,} rows.",
            variant="start",
            severity=Severity.WARNING if lasts else Severity.INFO,
            confidence=0.8 if lasts else 0.5,
            evidence=(
                stretch.at_onset(limit),
                stretch.in_all(stretch.usual, 0.0, "median of its rows, against equal models"),
                stretch.in_all(len(stretch), None, "rows"),
            ),
            remedies=(
                "check the reference model: its weights, its adapter, its chat template",
                "compare log-probabilities of policy and reference on one text before training",
            ),
        )

    def _shift_finding(self, jump: Stretch) -> Finding:
        before = jump.before(self.beside)
        after = stats.median(jump.signal.values[jump.core][: self.beside])
        rows = jump.sure - jump.start + 1
        cause = told_change(jump.signal.run, int(jump.signal.steps[jump.sure]))
        why = f" ({cause})" if cause else ""
        return finding(
            self,
            jump,
            f"KL to the reference model went from {number(before)} to {number(after)} nats in "
            f"{'one row' if rows == 1 else f'{rows} rows'}{SINCE}{why}, and does not come back.",
            variant="shift",
            severity=Severity.INFO if cause else Severity.WARNING,
            confidence=0.8,
            evidence=(
                jump.at_onset(before),
                jump.in_all(after, before, "level of the next rows, against those before"),
                jump.in_all(rows, None, "rows that it took") if rows > 1 else None,
            ),
            remedies=(
                "check whether the reference model, its adapter or its template was changed there",
                "look for a jump of the policy: a restart, another learning rate, a lost state",
                restore(jump.first),
            ),
        )


def _magnitude(run: RunContext, metric: str) -> Signal | None:
    logged = Signal.logged(run, metric)
    return logged.with_values(np.abs(logged.values)) if logged else None


def _remedies(stretch: Stretch, variant: str | None, severity: Severity) -> tuple[str, ...]:
    if variant == "mismatch":
        return (
            "check that the inference engine got the latest weights, in the same precision",
            "correct with truncated importance weights, or drop samples that disagree",
        )
    if variant == "update":
        return (
            "lower the learning rate or the number of updates per batch",
            "stop the inner epochs when the drift passes a target",
        )
    coefficient = (
        "set a KL coefficient above 0: nothing ties the policy to the reference"
        if stretch.signal.run.setting("beta") == 0
        else "raise the KL coefficient, or make it adaptive"
    )
    if severity is Severity.INFO:
        return (
            "watch whether it comes back: single rows of this estimate may be huge by chance",
            coefficient,
        )
    return (
        restore(stretch.first),
        "lower the learning rate and clip the gradient norm",
        coefficient,
        "check the reference model: wrong weights or adapter show as a huge KL in the first row",
    )
