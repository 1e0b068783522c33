"""KL_BLOWUP: the policy leaves the model it is tied to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Series,
    Severity,
    knob,
)

LOOK_BACK = 64  # rows that the level in the message is taken from


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the three KLs."""

    metric: str
    variant: str | None
    between: str
    floor: float
    ceiling: float


class KLBlowup(Detector):
    """The policy's KL runs far away from its own past: it left the reference model.

    What it detects
        A KL far above the run's own past and above an absolute floor, for a while or for good; or
        a KL so large that no past is needed. Three KLs are three metrics: to the reference model
        (no variant), to the policy before the update (`update`), and between trainer and inference
        engine (`mismatch`).

    Why it matters
        Beyond a few nats per token the policy has nothing left of the model it started from;
        rewards, lengths and text go next. Large update drift voids the importance ratios, large
        mismatch makes every update off-policy.

    How it is computed
        On a log scale, against the median of the run's whole past, which is not updated while the
        series is outside. A row is bad above both `ratio` times that level and the floor: `floor`
        nats for the reference, `update_floor` for the update drift, `mismatch_floor` for trainer
        against sampler; values far below the floor count as equal. Above `ceiling` nats a reference
        KL is bad whatever went before, so a run may be bad from its first row. The onset is walked
        back to where the series left its usual scatter. A single row is info unless it is a hundred
        times the level.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Each of the three KLs that is logged."""
        short: list[str] = []
        for kind in self._kinds():
            series = run.series(kind.metric)
            if series is None:
                continue
            yield from self._watch(run, series, kind)
            count = int(np.isfinite(series.values).sum())
            if 0 < count < 2:
                short.append(f"{kind.metric}: {count} point, needs 2")
        if short:
            raise Inconclusive("; ".join(short))

    def _kinds(self) -> tuple[_Kind, ...]:
        inf = float("inf")
        return (
            _Kind("kl_mean", None, "reference model", self.floor, self.ceiling),
            _Kind("approx_kl", "update", "policy before the update", self.update_floor, inf),
            _Kind("mismatch_kl", "mismatch", "inference engine", self.mismatch_floor, inf),
        )

    def _watch(self, run: RunContext, series: Series, kind: _Kind) -> Iterator[Finding]:
        steps, values = stats.measured(series)
        values = np.abs(values)
        # values far under the floor are all the same: a rise from 1e-6 to 1e-3 is no news
        scale = stats.logs(values, max(kind.floor, 1e-6) / self.ratio)
        beyond = values > kind.ceiling
        limit = float(np.log(self.ratio))
        # the whole past, not its last rows: a slow climb must not carry the level along
        past = stats.past_baseline(
            np.where(beyond, np.nan, scale), above=limit, warmup=1, window=stats.MAX_BLOCKS
        )
        rise = scale - past.center
        bad = beyond | ((rise > limit) & (values > kind.floor))
        left = beyond | (rise > np.maximum(np.log(3), 3 * past.robust_std))
        for episode in stats.episodes(bad, gap=2):
            start = stats.extend_back(left, episode.start)
            whole = stats.Episode(start, episode.end, episode.recovered)
            yield self._finding(run, steps, values, whole, kind)

    def _finding(
        self,
        run: RunContext,
        steps: stats.IntArray,
        values: stats.FloatArray,
        episode: stats.Episode,
        kind: _Kind,
    ) -> Finding:
        top = episode.start + int(np.argmax(values[episode.rows]))
        base = stats.median(values[: episode.start][-LOOK_BACK:])
        known = bool(np.isfinite(base))
        first, last = int(steps[episode.start]), int(steps[episode.end])
        against = f"against {stats.number(base)} before" if known else "from the first row on"
        name = "KL" if kind.variant is None else kind.metric
        return Finding(
            detector=self.id,
            variant=kind.variant,
            severity=self._severity(episode, _times(values[top], base), kind),
            confidence=0.95 if len(episode) >= 5 else 0.8,
            first_bad_step=first,
            last_bad_step=last if episode.recovered else run.last_step,
            state=stats.outcome(episode, ended=run.ended),
            summary=(
                f"{name} to the {kind.between} reached {stats.number(values[top])} nats at step "
                f"{int(steps[top]):,}, {against}; it left its usual range at step {first:,}."
            ),
            evidence=(
                Evidence(
                    kind.metric,
                    first,
                    float(values[episode.start]),
                    base if known else kind.ceiling,
                    note="onset",
                ),
                Evidence(
                    kind.metric, int(steps[top]), float(values[top]), kind.floor, note="highest"
                ),
            ),
            remedies=_remedies(run, first, kind),
            metrics=(kind.metric,),
        )

    def _severity(self, episode: stats.Episode, times: float, kind: _Kind) -> Severity:
        if len(episode) == 1 and episode.recovered:
            return Severity.WARNING if times >= 10 * self.ratio else Severity.INFO
        if kind.variant is not None or (len(episode) == 2 and episode.recovered):
            return Severity.WARNING
        return Severity.CRITICAL


def _times(value: float, base: float) -> float:
    return float(value) / base if base > 0 else float("inf")


def _remedies(run: RunContext, step: int, kind: _Kind) -> tuple[str, ...]:
    if kind.variant == "mismatch":
        return (
            "check that the inference engine got the latest weights, in the same precision",
            "correct with truncated importance weights, or drop samples that disagree",
        )
    if kind.variant == "update":
        return (
            "lower the learning rate or the number of updates per batch",
            "stop the inner epochs when the drift passes a target",
        )
    tied = run.setting("beta")
    raise_beta = (
        "set a KL coefficient above 0: nothing ties the policy to the reference"
        if tied == 0
        else "raise the KL coefficient, or make it adaptive"
    )
    return (
        f"restore the last checkpoint before step {step:,}",
        "lower the learning rate and clip the gradient norm",
        raise_beta,
        "check the reference model: wrong weights or adapter show as a huge KL in the first row",
    )
