"""KL_BLOWUP: the policy leaves the model it is tied to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rlprobe.detector import Detector, RunContext, fixed, knob, rule
from rlprobe.findings import Finding, Severity
from rlprobe.rule import WHOLE, Judged, Signal, Stretch, finding, number


class _Kind(NamedTuple):
    """One of the three KLs."""

    metric: str
    variant: str | None
    between: str
    floor: float
    ceiling: float = math.inf


class KLBlowup(Detector):
    """The policy's KL runs far away from its own past: it left the reference model.

    What it detects
        A KL far above the run's own past and above an absolute floor, for a while or for good; or
        a KL so large that no past is needed. Three KLs are three metrics: to the reference model
        (no variant), to the policy before the update, and between trainer and inference engine.

    Why it matters
        Beyond a few nats per token the policy has nothing left of the model it started from;
        rewards, lengths and text go next. Large update drift voids the importance ratios, large
        mismatch makes every update off-policy.

    How it is computed
        On a log scale, against the median of the run's whole past, which is not updated while the
        series is outside. A row is bad above both `ratio` times that level and the floor: `floor`
        nats for the reference; a value below the floor over `ratio` counts as that, so that rises
        far below it are no news. Above `ceiling` nats a reference KL is bad whatever went before,
        so a run may be bad from its first row. `gap` rows do not part an episode. The onset is
        walked back over rows above `departed` times the level and `sigmas` robust standard
        deviations. A single row that passes is info, or a warning from `far` times `ratio` times
        what was before; two that pass are a warning, the rest is critical.

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
    floor: float = knob(2.0, "reference KL below which nothing is said", unit="nats/token")
    ceiling: float = knob(30, "reference KL that is bad in any run", unit="nats/token", minimum=1)
    update_floor: float = knob(0.5, "the same floor for the update drift", unit="nats/token")
    mismatch_floor: float = knob(0.5, "the same floor for trainer against sampler", unit="nats")

    gap = fixed(2, "rows that do not part two episodes")
    departed = fixed(3, "times the level at which a row has left the usual range")
    sigmas = fixed(3, "robust standard deviations above the level at which it has")
    far = fixed(10, "times `ratio` at which a single row is a warning")

    @rule(None)
    def _reference(self, run: RunContext) -> Iterator[Finding]:
        """The KL to the reference model."""
        yield from self._watch(
            run, _Kind("kl_mean", None, "reference model", self.floor, self.ceiling)
        )

    @rule("update")
    def _update(self, run: RunContext) -> Iterator[Finding]:
        """The KL to the policy before the update, with `update_floor` as its floor and without a
        ceiling. A warning at most.
        """
        yield from self._watch(
            run, _Kind("approx_kl", "update", "policy before the update", self.update_floor)
        )

    @rule("mismatch")
    def _mismatch(self, run: RunContext) -> Iterator[Finding]:
        """The KL between trainer and inference engine, with `mismatch_floor` as its floor and
        without a ceiling. A warning at most.
        """
        yield from self._watch(
            run, _Kind("mismatch_kl", "mismatch", "inference engine", self.mismatch_floor)
        )

    def _watch(self, run: RunContext, kind: _Kind) -> Iterator[Finding]:
        logged = Signal.logged(run, kind.metric)
        if not logged:
            return
        kl = logged.with_values(np.abs(logged.values))
        beyond = kl.values > kind.ceiling
        past = kl.past(
            log=max(kind.floor, 1e-6) / self.ratio,
            above=math.log(self.ratio),
            warmup=1,
            window=WHOLE,  # a slow climb must not carry the level along
            without=beyond,
        )
        bad = beyond | (past.times(self.ratio) & (kl.values > kind.floor))
        departed = beyond | past.above(sigmas=self.sigmas, at_least=math.log(self.departed))
        for stretch in Judged(kl, bad, departed).runs(gap=self.gap):
            yield self._finding(stretch, kind)
        kl.require(2)

    def _finding(self, stretch: Stretch, kind: _Kind) -> Finding:
        top, before = float(stretch.signal.values[stretch.top]), stretch.before(64)
        known = math.isfinite(before)
        against = f"against {number(before)} before" if known else "from the first row on"
        return finding(
            self,
            stretch,
            f"{kind.metric if kind.variant else 'KL'} to the {kind.between} reached {number(top)} "
            f"nats at step {stretch.signal.steps[stretch.top]:,}, {against}; it left its usual "
            f"range at step {stretch.first:,}.",
            variant=kind.variant,
            severity=self._severity(stretch, top / before if before > 0 else math.inf, kind),
            confidence=0.95 if len(stretch) >= 5 else 0.8,
            evidence=(
                stretch.at_onset(before if known else kind.ceiling),
                stretch.at_top(kind.floor),
            ),
            remedies=_remedies(stretch, kind.variant),
        )

    def _severity(self, stretch: Stretch, times: float, kind: _Kind) -> Severity:
        if stretch.recovered and len(stretch) == 1:
            return Severity.WARNING if times >= self.far * self.ratio else Severity.INFO
        if kind.variant is not None or (stretch.recovered and len(stretch) == 2):
            return Severity.WARNING
        return Severity.CRITICAL


def _remedies(stretch: Stretch, variant: str | None) -> tuple[str, ...]:
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
    return (
        f"restore the last checkpoint before step {stretch.first:,}",
        "lower the learning rate and clip the gradient norm",
        "set a KL coefficient above 0: nothing ties the policy to the reference"
        if stretch.signal.run.setting("beta") == 0
        else "raise the KL coefficient, or make it adaptive",
        "check the reference model: wrong weights or adapter show as a huge KL in the first row",
    )
