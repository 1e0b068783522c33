"""REGIME_CHANGE: several metrics broke at the same row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    fixed,
    knob,
)
from rlprobe.rule import (
    Break,
    LossKind,
    Signal,
    breaks_in,
    finding,
    held_until,
    listed,
    moments,
    number,
    restarts,
    restore,
    stretch_from,
    told_change,
)

FAMILIES = {  # metrics that move together by construction count once
    "reward": ("reward_mean", "score_mean", "token_accuracy", "preference_accuracy"),
    "margin": ("preference_margin",),
    "spread": ("reward_std", "reward_group_std_mean", "zero_variance_group_fraction"),
    "advantage": ("advantage_abs_mean", "advantage_std", "advantage_max"),
    "loss": ("loss", "policy_loss"),
    "gradient": ("grad_norm",),
    "reference": ("kl_mean", "kl_max"),
    "update": ("approx_kl", "clip_fraction"),
    "entropy": ("entropy",),
    "length": ("completion_length_mean",),
    "truncation": ("truncation_rate",),
    "value": ("value_loss", "explained_variance"),
    "mismatch": ("mismatch_kl", "logprob_diff_mean", "is_ratio_mean"),
}
SETTINGS = ("lr", "beta", "kl_coef", "entropy_coef", "temperature", "clip_range", "batch_size")
ACCURACIES = ("token_accuracy", "preference_accuracy")
EARNED = ("reward", "margin")


class _Cause(NamedTuple):
    """What explains a change.

    Attributes:
        intended: whether somebody wanted it.
    """

    text: str
    intended: bool
    evidence: Evidence | None = None


class RegimeChange(Detector):
    """Several metrics broke at the same row: something about the run is not what it was.

    What it detects
        One moment at which several unrelated metrics make changes that none of them had made
        before, and what else changed at it: an event, a restart, a logged setting, or nothing.

    Why it matters
        A lost optimizer state, another reference model, another temperature or a corrupted layer
        leaves each metric within limits that a fixed threshold allows. Together, at one row, they
        cannot be chance; where nothing that is logged explains it, somebody should look.

    How it is computed
        Of each metric, the median of four rows against that of the eight before, on a log scale
        where it is positive, in times the largest such change that it had made before. A metric
        broke where that is above `times` and most of the change happened from one row to the next.
        Metrics that move together by construction count once. A moment is reported where
        `families` of them broke, two by more than `strong`, or a likelihood loss and its accuracy
        for the worse. It is a warning if what followed
        harms: a reward or an accuracy fell by `lost` of what it was, the KL grew to `grown` times,
        the entropy to `grown` times or one part in as many, the length to `grown` times, a loss to
        `much`, one of likelihood to `undone` times and by `nats`, or `cut` more of the completions
        were cut, and no reward rose; info otherwise, and where an event tells that it was intended.
        A loss that is learnt falls, an accuracy rises: what is lost is compared with what was lost.

    What to do
        Look at what changed at that row: a restart, a checkpoint, the data, the configuration of
        the sampler. If nothing did, compare the weights before and after it.

    When it is wrong
        A task that is suddenly understood moves reward, length and entropy at once; that is info. A
        run whose metrics all come from the same few rollouts has jumps in common.

    References
        None: this is a choice of this project.
    """

    id = "REGIME_CHANGE"
    severity = Severity.WARNING
    needs = tuple((metric,) for metrics in FAMILIES.values() for metric in metrics)
    caused_by = (
        "RESTART_DISCONTINUITY",
        "NONFINITE_METRIC",
        "ADVANTAGE_NOISE",
        "ZERO_VARIANCE",
        "REWARD_COLLAPSE",
        "GRAD_PATHOLOGY",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "KL_BLOWUP",
        "POLICY_MISMATCH",
        "ENTROPY_COLLAPSE",
        "ENTROPY_EXPLOSION",
        "LENGTH_EXPLOSION",
        "LENGTH_COLLAPSE",
        "TRUNCATION",
    )

    times: float = knob(1.5, "times the largest change that a metric had made before", minimum=1)
    families: int = knob(3, "kinds of metrics that break at one moment", minimum=2)

    points = fixed(28, "rows that are needed: what is usual, and what came after")
    few = fixed(2, "kinds of metrics that are enough where all break by `strong`")
    aftermath = fixed(12, "rows after a moment in which whatever breaks belongs to it")
    strong = fixed(3.0, "the same for two kinds of metrics, which are few")
    lost = fixed(0.25, "part of the reward whose loss is harm, or of its scatter before, times 8")
    grown = fixed(2.0, "times the level before that is harm for KL, entropy and length")
    much = fixed(5.0, "times the level before that is harm for a loss that is always positive")
    undone = fixed(1.2, "times the level before that is harm for a likelihood loss ...")
    nats = fixed(0.2, "... which rose by so much")
    cut = fixed(0.2, "more of the completions cut, which is harm")
    moved = fixed(1.2, "times its value before, or one part in as many: a setting was changed")
    usual = fixed(5.0, "times its usual step: more than a schedule does")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per moment at which several metrics broke."""
        signals = list(_signals(run))
        longest = max(map(len, signals), default=0)
        if longest < self.points:
            raise Inconclusive(f"{longest} rows, needs {self.points} to know what is usual")
        broken = [
            item
            for signal in signals
            for item in breaks_in(signal, times=self.times, learnt=_learnt(signal))
        ]
        settled = -math.inf  # what breaks before it belongs to the moment before
        for moment in moments(broken, run.interval):
            members = _first_of_each(moment)
            strong = [item for item in members.values() if item.times >= self.strong]
            together = len(members) >= self.families or len(strong) >= self.few
            together = together or self._unlearnt(members)
            if together and moment[0].step > settled:
                settled = moment[0].step + self.aftermath * run.interval
                yield self._finding(run, members)

    def _finding(self, run: RunContext, members: dict[str, Break]) -> Finding:
        broken = sorted(members.values(), key=lambda item: -item.times)
        step = _step(broken)
        cause = self._cause(run, step)
        earns = any(family in EARNED and item.up for family, item in members.items())
        parts = () if earns else (self._harm(family, item) for family, item in members.items())
        harm = [part for part in parts if part]
        harmful = bool(harm) and not (cause and cause.intended)
        ends = [(item, held_until(item)) for item in broken]
        lead, until = max(ends, key=lambda pair: int(pair[0].signal.steps[pair[1]]))
        row = int(np.searchsorted(lead.signal.steps, step))
        followed = f"; since then {listed(harm)}" if harm else ""
        why = cause.text if cause else "nothing that is logged explains it"
        names = listed([_described(item) for item in broken], 6)
        return finding(
            self,
            stretch_from(lead.signal, min(row, until), until),
            f"Several metrics broke at step {step:,}: {names}{followed}; {why}.",
            severity=Severity.WARNING if harmful else Severity.INFO,
            confidence=0.85 if len(broken) > self.families else 0.7,
            evidence=(
                *(_evidence(item) for item in broken),
                cause.evidence if cause else None,
            ),
            remedies=_remedies(step, cause, harmful=harmful),
            metrics=[item.signal.metric for item in broken],
        )

    def _harm(self, family: str, item: Break) -> str:
        """What a break harms, in words; "" if nothing."""
        metric, far = item.signal.metric, item.ratio >= self.grown
        fell, grew = (self._lost(item), f"{metric} fell"), (self._grew(item), f"{metric} grew")
        harms = {
            "reward": fell,
            "margin": fell,
            "loss": grew,
            "value": grew,
            "reference": (far, "the policy left the reference"),
            "entropy": (far or item.ratio <= 1 / self.grown, "the entropy left its range"),
            "length": (far, "the length ran away"),
            "truncation": (item.after - item.before >= self.cut, "completions are cut"),
        }
        harmful, text = harms.get(family, (False, ""))
        return text if harmful else ""

    def _lost(self, item: Break) -> bool:
        values = item.signal.values[max(0, item.row - 64) : item.row]
        level = max(abs(item.before), 8 * stats.robust_std(values))
        return item.before - item.after > self.lost * level

    def _grew(self, item: Break) -> bool:
        far = item.ratio >= self.much and bool((item.signal.values > 0).all())
        return far or self._undone(item)

    def _undone(self, item: Break) -> bool:
        rose = item.ratio >= self.undone and item.after - item.before > self.nats
        return rose and item.signal.metric == "loss" and LossKind.of(item.signal).tokens

    def _unlearnt(self, members: dict[str, Break]) -> bool:
        """Whether a likelihood loss and its accuracy broke, both for the worse."""
        loss, accuracy = members.get("loss"), members.get("reward")
        if loss is None or accuracy is None:
            return False
        return self._undone(loss) and accuracy.signal.metric in ACCURACIES and not accuracy.up

    def _cause(self, run: RunContext, step: int) -> _Cause | None:
        if event := told_change(run, step):
            return _Cause(f"the run tells of it ({event})", intended=True)
        if any(step - run.interval <= at <= step + run.interval for at in restarts(run)):
            return _Cause("the run was restarted there", intended=False)
        for setting in (name for name in run.names() if name.rpartition("/")[2] in SETTINGS):
            if moved := self._moved(run, setting, step):
                return moved
        return None

    def _moved(self, run: RunContext, setting: str, step: int) -> _Cause | None:
        """Whether a logged setting was changed at a step, beyond what its schedule does."""
        series = Signal.logged(run, setting, above=0)
        if series is None or len(series) < 2:
            return None
        steps = np.abs(np.diff(np.log(series.values)))
        near = (series.steps[1:] >= step - run.interval) & (series.steps[1:] <= step + run.interval)
        limit = max(math.log(self.moved), self.usual * stats.median(steps))
        rows = np.flatnonzero(near & (steps > limit))
        if not len(rows):
            return None
        row = int(rows[0]) + 1
        before, after = float(series.values[row - 1]), float(series.values[row])
        return _Cause(
            f"{setting} went from {number(before)} to {number(after)} there",
            intended=False,
            evidence=Evidence(setting, int(series.steps[row]), after, before, note="setting"),
        )


def _signals(run: RunContext) -> Iterator[Signal]:
    for metrics in FAMILIES.values():
        for metric in metrics:
            if logged := Signal.logged(run, metric):
                yield logged


def _learnt(signal: Signal) -> int:
    """The direction in which learning moves a metric; 0 where it has none."""
    if signal.metric == "loss":
        return 0 if LossKind.of(signal).signed else -1
    return int(signal.metric in ACCURACIES)


def _step(broken: list[Break]) -> int:
    """The step at which most of the breaks, weighed by their size, took place."""
    weights: dict[int, float] = {}
    for item in broken:
        weights[item.step] = weights.get(item.step, 0.0) + min(item.times, 5.0)
    return max(sorted(weights), key=lambda step: weights[step])


def _first_of_each(moment: list[Break]) -> dict[str, Break]:
    """The largest break of each family."""
    largest: dict[str, Break] = {}
    for item in moment:
        family = next(name for name, metrics in FAMILIES.items() if item.signal.metric in metrics)
        if family not in largest or item.times > largest[family].times:
            largest[family] = item
    return largest


def _described(item: Break) -> str:
    return f"{item.signal.metric} {number(item.before)} -> {number(item.after)}"


def _evidence(item: Break) -> Evidence:
    note = "level of the next four rows, against the eight before"
    return Evidence(item.signal.metric, None, item.after, item.before, note=note)


def _remedies(step: int, cause: _Cause | None, *, harmful: bool) -> tuple[str, ...]:
    look = "look for what changed at that step and is not logged: weights, optimizer state, sampler"
    return (
        "" if cause else look,
        "compare the checkpoints, and a few completions, from before and after it",
        restore(step) if harmful else "",
    )
