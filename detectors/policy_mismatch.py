"""POLICY_MISMATCH: the engine that samples and the trainer that learns disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Judged,
    Period,
    Signal,
    Stretch,
    beginning,
    finding,
    from_drift,
    number,
    together,
)

NAMES = {
    "is_ratio_mean": "the mean importance weight",
    "logprob_diff_mean": "the mean difference of their log-probabilities",
    "mismatch_kl": "the KL between them",
    "is_ess": "the effective sample size of the importance weights",
}


class PolicyMismatch(Detector):
    """The engine that samples and the trainer that learns assign different probabilities.

    What it detects
        The importance weight between sampler and trainer is far from 1, the log-probabilities of
        the same tokens differ more than they used to, the KL between both grows, or the weights
        leave an effective sample of a small part of the batch; for several rows. Or the trainer
        itself warns that a KL which cannot be below 0 is.

    Why it matters
        The gradient is computed for a policy that did not write the text. Small differences grow
        along a long completion; large ones make every update off-policy, and are a common root of
        a collapse that looks like one of the reward, the entropy or the length.

    How it is computed
        The mean weight is judged against 1: beyond `ratio` times, up or down, it is bad. The mean
        difference of log-probabilities and the KL, whatever its sign, are judged against their own
        past: bad above `growth` times its median and above what rounding explains; a difference or
        a KL above `ceiling` nats per token is bad in any run, from its first row on. So is, over
        most of `span` rows, what has climbed to `growth` times its first rows, however slowly. An
        effective sample size below 30 % is bad if it is half of its past, or of its start. Most of
        five rows in a row must be; shorter runs need a weight beyond `few_rows`. The onset is
        walked back to where the metric was half way to its limit and out of its scatter, or to the
        bend at which a climb set in. Metrics that are outside at the same time are one finding, the
        first to leave leads. A warning; critical while a median weight is beyond `crushed`.

    What to do
        Check that the weights are copied to the engine after each update, in the same precision and
        with the same sampling filters. Correct with truncated importance weights, and drop what
        disagrees most.

    When it is wrong
        The weight of a whole sequence is a product over its tokens and scatters far more than that
        of a token. A sampler with top-k or top-p cuts mass off by design, and its weight sits below
        1 from the start: that costs, but is no drift.

    References
        Yao et al., Your efficient RL framework secretly brings you off-policy RL training (2025).
        TRL issues on importance ratios of 0.4 to 0.7; NeMo-RL on a crushed sequence weight (2025).
    """

    id = "POLICY_MISMATCH"
    severity = Severity.CRITICAL
    needs = (
        ("is_ratio_mean",),
        ("logprob_diff_mean",),
        ("mismatch_kl",),
        ("is_ess",),
        ("event:kl_negative",),
    )
    stage = "machine"
    caused_by = (
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "ENTROPY_EXPLOSION",
        "LENGTH_COLLAPSE",
        "KL_BLOWUP",
    )

    ratio: float = knob(1.5, "times 1, up or down, for the mean importance weight", minimum=1.05)
    growth: float = knob(4, "times its own past, for a difference", minimum=1.5)
    ceiling: float = knob(0.1, "difference or KL that is bad in any run", unit="nats/token")

    points = fixed(5, "rows; with fewer, only a weight or a difference far beyond is bad")
    few_rows = fixed(3.0, "times 1, up or down, for the weight of a run of fewer rows")
    crushed = fixed(5.0, "times 1, up or down: such a weight leaves nothing of the batch")
    rounding = fixed(0.02, "nats: rounding alone explains a smaller difference or KL")
    few_samples = fixed(0.3, "effective sample size, as a part of the batch, that is too small")
    span = fixed(10, "first rows of a run, and rows looked at together for a climb from them")
    early = fixed(3, "rows that the past of a metric needs")
    below = fixed(-1.0, "nats of a mean KL below 0 that no scatter of few samples explains")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """What the trainer warns of, then one finding per stretch with a metric outside."""
        warned = [event for event in run.events("kl_negative") if event.data.get("kl")]
        if warned:
            yield self._negative(run, warned)
        signals = (_magnitude(run, metric) for metric in NAMES)
        logged = [signal for signal in signals if signal is not None]
        outside = [stretch for signal in logged for stretch in self._outside(signal)]
        outside.sort(key=lambda stretch: (stretch.first, stretch.signal.metric))
        for group in together(outside, self.points * run.interval):
            yield self._finding(group)
        rows = max(map(len, logged), default=0)
        if rows < self.points and not outside and not warned:
            raise Inconclusive(f"{rows} rows of sampler against trainer, needs {self.points}")

    @rule("negative_kl")
    def _negative(self, run: RunContext, warned: Sequence[Event]) -> Finding:
        """The trainer warns that the mean KL to the reference is below 0, which no samples of the
        policy can give: others were drawn. A warning; info where it is not below `below`.
        """
        lowest = min(warned, key=lambda event: float(event.data["kl"]))
        steps = [run.first_step if event.step is None else event.step for event in warned]
        value, times = float(lowest.data["kl"]), sum(int(e.data.get("count", 1)) for e in warned)
        severe = value < self.below
        return finding(
            self,
            Period(run, min(steps), max(steps), max(steps) < run.last_step),
            f"The trainer warns {times:,} time{'s' if times > 1 else ''} that its KL to the "
            f"reference is below 0, {number(value)} at the least{SINCE}: what is sampled is not "
            "what the log-probabilities are computed for.",
            variant="negative_kl",
            severity=Severity.WARNING if severe else Severity.INFO,
            confidence=0.8 if severe else 0.5,
            evidence=(
                Evidence("event:kl_negative", min(steps), value, 0.0, note="lowest KL told"),
                Evidence("event:kl_negative", None, float(times), note="warnings"),
            ),
            remedies=(
                "generate with plain sampling: temperature 1, no top-k, no top-p, no forced length",
                "check that padding and the tokens after the end are masked in both models",
            ),
        )

    def _outside(self, signal: Signal) -> list[Stretch]:
        """Stretches against the past, then those against the start that it did not show."""
        if not self._may_be_bad(signal).any():
            return []
        sudden = self._judged(signal).persistent()
        if signal.metric == "is_ratio_mean":
            return from_drift(sudden, np.abs(np.log(signal.values))) if sudden else []
        down = signal.metric == "is_ess"
        slow = [it.starting(0) for it in self._far_from_start(signal, down=down)]
        if not sudden and not slow:
            return []
        logs = np.log(signal.values)
        outside = from_drift(sudden, logs, down=down)
        covered = np.zeros(len(signal), dtype=np.bool_)
        for stretch in outside:
            covered[stretch.core] = True
        climbs = (it for it in from_drift(slow, logs, down=down) if not covered[it.core].any())
        return [*outside, *climbs]

    def _may_be_bad(self, signal: Signal) -> stats.BoolArray:
        """Rows beyond what is usual in any run; without one, no past needs to be known."""
        values = signal.values
        if signal.metric == "is_ratio_mean":
            far: stats.BoolArray = np.abs(np.log(values)) > np.log(self.ratio)
            return far
        return values < self.few_samples if signal.metric == "is_ess" else values > self.rounding

    def _far_from_start(self, signal: Signal, *, down: bool) -> tuple[Stretch, ...]:
        start = beginning(signal, self.span)
        if down:
            bad = signal.values < min(self.few_samples, start / 2)
        else:
            bad = signal.values > max(self.rounding, self.growth * start)
        bad[: self.span] = False
        return Judged(signal, bad, level=np.full(len(signal), start)).persistent(self.span)

    def _judged(self, signal: Signal) -> Judged:
        if signal.metric == "is_ratio_mean":
            return self._weight(signal)
        if signal.metric == "is_ess":
            return self._sample_size(signal)
        return self._difference(signal)

    def _weight(self, weight: Signal) -> Judged:
        far, limit = np.abs(np.log(weight.values)), np.log(self.ratio)
        needed = limit if len(weight) >= self.points else np.log(self.few_rows)
        return Judged(weight, far > needed, far > limit / 2, np.ones(len(weight)))

    def _difference(self, difference: Signal) -> Judged:
        """Of log-probabilities, or the KL."""
        half = np.log(self.growth) / 2
        past = difference.past(
            log=self.rounding / self.growth, above=half, warmup=self.early, window=WHOLE
        )
        beyond = difference.values > self.ceiling
        bad = past.times(self.growth) & (difference.values > self.rounding)
        departed = past.above(sigmas=3, at_least=half)
        return Judged(difference, bad | beyond, departed | beyond, past.level)

    def _sample_size(self, size: Signal) -> Judged:
        past = size.past(below=self.few_samples / 2, warmup=self.early)
        low = past.under(0.5)
        return Judged(size, low & (size.values < self.few_samples), low, past.level)

    @rule(None)
    def _finding(self, group: list[Stretch]) -> Finding:
        """A weight, a difference, a KL or a sample size is outside."""
        lead, period = group[0], Period.over(group)
        return finding(
            self,
            period,
            f"Sampler and trainer disagree{SINCE}: {NAMES[lead.signal.metric]} is at "
            f"{number(_signed(lead).usual)}, against {number(self._level(lead))}.",
            severity=self._severity(group, period),
            confidence=0.85 if len(group) > 1 or len(lead) >= 10 else 0.7,
            evidence=(
                _signed(item).at_onset(
                    self._level(item), f"onset; median since: {number(_signed(item).usual)}"
                )
                for item in group
            ),
            remedies=_remedies(lead),
        )

    def _level(self, stretch: Stretch) -> float:
        """What it is judged by; the first rows where there is no past."""
        level = np.nan if stretch.level is None else float(stretch.level[stretch.sure])
        return level if np.isfinite(level) else stats.median(stretch.signal.values[: self.early])

    def _severity(self, group: list[Stretch], period: Period) -> Severity:
        crushed = any(
            item.signal.metric == "is_ratio_mean"
            and abs(np.log(item.usual)) > np.log(self.crushed)
            and len(item) >= self.points
            for item in group
        )
        return Severity.CRITICAL if crushed and not period.recovered else Severity.WARNING


def _signed(stretch: Stretch) -> Stretch:
    """The same rows as they were logged."""
    return stretch.of(stretch.signal.alongside(stretch.signal.metric))


def _magnitude(run: RunContext, metric: str) -> Signal | None:
    """A metric above 0; the estimate of a KL may be below, and counts as much."""
    if metric != "mismatch_kl":
        return Signal.logged(run, metric, above=0)
    kl = Signal.logged(run, metric)
    if kl is None:
        return None
    size = kl.with_values(np.abs(kl.values))
    return size.where(size.values > 0)


def _remedies(lead: Stretch) -> tuple[str, ...]:
    copied = "check that the engine gets the new weights after each update, in the same precision"
    corrected = "correct with truncated importance weights, and drop samples that disagree most"
    filters = "turn off top-k, top-p and other filters of the sampler, or take them into account"
    if lead.start == 0 and lead.signal.metric == "is_ratio_mean":
        return (
            filters,
            "check whether the weight is one of tokens or a product over the sequence",
            copied,
            corrected,
        )
    return (copied, corrected, "generate with a fresher policy: fewer steps between copies")
