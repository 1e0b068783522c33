"""Which of two findings comes first, where their onsets alone do not tell.

Trouble travels through a training step in a fixed order: what the machines do, the rewards of a
group, the advantages made of them, the gradient, the loss, the policy, the next rollouts. An onset
is known to a row or two only, so that within two rows this order decides, not the severity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import STAGES, Detector, Stage
from rlprobe.findings import Finding
from rlprobe.scan.context import Context
from rlprobe.values import BoolArray, FloatArray

SLACK_ROWS = 2  # logged rows by which a consequence may seem to begin before its cause
_PAST_ROWS = 64  # logged rows before an onset that its first value is compared with
_BROKEN = 1.25  # times or part of its past, at which a metric broke at once
_SIGMAS = 5  # robust standard deviations by which it did so at least
_CUT = 0.1  # share of the completions by which more are cut, likewise
_GRADIENT = STAGES.index("gradient")
_OF_POLICY = frozenset({"kl_mean", "approx_kl", "entropy"})  # known before the rewards are


@dataclass(frozen=True, eq=False)
class Causes:
    """Declared cause edges, and those that follow when a pathology in between was not seen."""

    detectors: Mapping[str, type[Detector]]

    def direct(self, effect: str) -> frozenset[str]:
        """Ids of what the catalogue declares as causes of a pathology."""
        detector = self.detectors.get(effect)
        return frozenset(detector.caused_by) if detector else frozenset()

    @functools.cache  # noqa: B019 - lives as long as one scan
    def all(self, effect: str) -> frozenset[str]:
        """The same through any number of pathologies in between."""
        reached: set[str] = set()
        frontier = set(self.direct(effect))
        while frontier:
            reached |= frontier
            frontier = {cause for known in frontier for cause in self.direct(known)} - reached
        return frozenset(reached - {effect})

    def leads(self, cause: Finding, effect: Finding) -> bool:
        """Whether the catalogue declares one as a cause of the other."""
        return cause.detector in self.direct(effect.detector)

    def stage(self, finding: Finding) -> Stage:
        """Where in a training step the pathology shows."""
        detector = self.detectors.get(finding.detector)
        return detector.stage if detector else "outcome"


class CausalOrder:
    """The order in which findings of one run may cause each other."""

    def __init__(self, causes: Causes, context: Context) -> None:
        self.causes = causes
        self.context = context
        self._slack = SLACK_ROWS * context.interval

    def of(self, findings: Sequence[Finding]) -> list[Finding]:
        """By onset; within `SLACK_ROWS` rows, what goes ahead of another comes before it."""
        rest = sorted(findings, key=self._key)
        ordered: list[Finding] = []
        while rest:
            first = (f for slack in (self._slack, 0) for f in rest if self._free(f, rest, slack))
            chosen = next(first, rest[0])  # what goes round in a circle begins with its first row
            rest.remove(chosen)
            ordered.append(chosen)
        return ordered

    def ahead(self, cause: Finding, effect: Finding) -> bool:
        """Whether a cause that is not seen before its effect comes before it nevertheless.

        Where either may cause the other, the stage decides; but what has broken before a cause is
        seen is no effect of it.
        """
        lead = cause.first_bad_step - effect.first_bad_step
        if not (0 <= lead <= self._slack and self.causes.leads(cause, effect)):
            return False
        either = self.causes.leads(effect, cause)
        sharp = 0 if either else self.context.interval  # an onset is a row off now and then
        if lead > sharp and self._broken(effect, cause.first_bad_step - 1):
            return False
        if lead:
            return not either or self._stage(cause) < self._stage(effect)
        return not either or self._place(cause) < self._place(effect)

    def _stage(self, finding: Finding) -> int:
        return STAGES.index(self.causes.stage(finding))

    def _free(self, finding: Finding, rest: Sequence[Finding], slack: int) -> bool:
        """Whether nothing that is seen up to so many steps later goes ahead of it."""
        step = finding.first_bad_step
        near = (f for f in rest if step - self._slack <= f.first_bad_step <= step + slack)
        return not any(self.ahead(other, finding) or self._led(other, finding) for other in near)

    def _led(self, cause: Finding, effect: Finding) -> bool:
        """Whether a cause began before its effect and had broken by the time the effect did."""
        earlier = cause.first_bad_step < effect.first_bad_step
        may = earlier and self.causes.leads(cause, effect) and not self.ahead(effect, cause)
        return may and self._broken(cause, effect.first_bad_step)

    def _key(self, finding: Finding) -> tuple[object, ...]:
        place, step = self._place(finding), finding.first_bad_step
        return (step, place, -finding.severity, -finding.confidence, finding.detector, finding.key)

    def _place(self, finding: Finding) -> tuple[int, int]:
        """Stage by stage; a policy or rollouts that broke at once did so before the rewards.

        A completion is written before it is paid. What only begins to drift on the row on which
        rewards break comes after them. What is not finite in the forward pass was so before any
        gradient.
        """
        stage = self.causes.stage(finding)
        if stage == "outcome" and self._not_finite(finding):
            return 2, _GRADIENT - 1
        before = stage in ("policy", "rollout") or not _OF_POLICY.isdisjoint(finding.metrics)
        early = before and self._broken(finding, finding.first_bad_step)
        return 0 if stage == "machine" else 1 if early else 2, self._stage(finding)

    def _not_finite(self, finding: Finding) -> bool:
        """Whether its metric is NaN or Inf where it begins."""
        series = self.context.series(finding.metrics[0]) if finding.metrics else None
        at = np.array([finding.first_bad_step])
        there = series is not None and bool((series.steps == at).any())
        return there and not np.isfinite(stats.at_steps(series, at)).all()

    @functools.cache  # noqa: B019 - lives as long as one scan
    def _broken(self, finding: Finding, step: int) -> bool:
        """Whether its metric was, by this step, far from all that came before the finding.

        If not, a drift may have been followed back into the noise.
        """
        series = self.context.series(finding.metrics[0]) if finding.metrics else None
        if series is None:
            return False
        first = int(np.searchsorted(series.steps, finding.first_bad_step))
        values = series.values[first : int(np.searchsorted(series.steps, step, side="right"))]
        past = series.values[max(0, first - _PAST_ROWS) : first]
        if series.name == "truncation_rate":
            return bool((values - np.nan_to_num(stats.median(past)) >= _CUT).any())
        return bool((~np.isfinite(values) | _far(values, past)).any())


def _far(values: FloatArray, past: FloatArray) -> BoolArray:
    """Which values are far from their past in proportion and in standard deviations."""
    level = stats.median(past)
    if math.isnan(level):
        return np.ones(len(values), dtype=np.bool_)  # there from the first row
    apart: FloatArray = np.abs(values - level)
    outside = (values > _BROKEN * level) | (values < level / _BROKEN) if level > 0 else apart > 0
    return outside & (apart > _SIGMAS * stats.robust_std(past))
