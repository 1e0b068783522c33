"""POLICY_MISMATCH: the engine that samples and the trainer that learns disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

SPAN = 5  # rows that are looked at together
LASTING = 0.8  # share of them that must be bad
FEW_ROWS = 3.0  # times as far, where a run has fewer rows than that
LEFT = 0.5  # part of a limit, on its log scale, at which a metric has left its range
CRUSHED = 5.0  # an importance weight so far from 1 leaves nothing of the batch
EARLY = 3  # rows that the past of a metric needs
DIFF_FLOOR, KL_FLOOR = 0.02, 0.02  # below them, rounding alone explains the difference
ESS_LOW = 0.3


@dataclass(frozen=True, slots=True)
class _Judged:
    """Where a metric is bad, where it has left its range, and the level it is judged by."""

    bad: stats.BoolArray
    left: stats.BoolArray
    level: stats.FloatArray


_Rule = Callable[["stats.FloatArray"], _Judged]


@dataclass(frozen=True, slots=True)
class _Episode:
    """One metric outside, on rows of its own series."""

    series: Series
    episode: stats.Episode
    level: float

    @property
    def first(self) -> int:
        return int(self.series.steps[self.episode.start])

    @property
    def last(self) -> int:
        return int(self.series.steps[self.episode.end])

    @property
    def usual(self) -> float:
        return stats.median(self.series.values[self.episode.rows])


class PolicyMismatch(Detector):
    """The engine that samples and the trainer that learns assign different probabilities.

    What it detects
        The importance weight between sampler and trainer is far from 1, the log-probabilities of
        the same tokens differ more than they used to, the KL between both grows, or the weights
        leave an effective sample of a small part of the batch; for several rows.

    Why it matters
        The gradient is computed for a policy that did not write the text. Small differences grow
        along a long completion; large ones make every update off-policy, and are a common root of
        a collapse that looks like one of the reward, the entropy or the length.

    How it is computed
        The mean weight is judged against 1: beyond `ratio` times, up or down, it is bad. The mean
        difference of log-probabilities and the KL are judged against their own past: bad above
        `growth` times its median and above what rounding explains; a difference above `ceiling`
        nats per token is bad in any run. An effective sample size below 30 % and half of its past
        is bad. Most of five rows in a row must be; shorter runs need a weight far beyond the
        limit. Metrics that are outside at the same time are one finding, the first to leave leads.

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
    needs = (("is_ratio_mean",), ("logprob_diff_mean",), ("mismatch_kl",), ("is_ess",))
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
    ceiling: float = knob(0.3, "mean difference that is bad in any run", unit="nats/token")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per stretch in which any of the metrics is outside."""
        found: list[_Episode] = []
        rows = 0
        for metric, rule in self._rules():
            series = run.series(metric)
            if series is None:
                continue
            steps, values = stats.measured(series, above=0.0)
            rows = max(rows, len(steps))
            found.extend(_outside(Series(metric, steps, values), rule))
        for group in _together(found, SPAN * run.interval):
            yield self._finding(run, group)
        if rows < SPAN and not found:
            raise Inconclusive(f"{rows} rows of sampler against trainer, needs {SPAN}")

    def _rules(self) -> tuple[tuple[str, _Rule], ...]:
        return (
            ("is_ratio_mean", self._weight),
            ("logprob_diff_mean", self._difference),
            ("mismatch_kl", self._kl),
            ("is_ess", _sample_size),
        )

    def _weight(self, values: stats.FloatArray) -> _Judged:
        limit = float(np.log(self.ratio))
        far = np.abs(np.log(values))
        needed = limit if len(values) >= SPAN else np.log(FEW_ROWS)
        return _Judged(far > needed, far > LEFT * limit, np.ones(len(values)))

    def _difference(self, values: stats.FloatArray) -> _Judged:
        grown = self._grown(values, DIFF_FLOOR)
        beyond = values > self.ceiling
        return _Judged(grown.bad | beyond, grown.left | beyond, grown.level)

    def _kl(self, values: stats.FloatArray) -> _Judged:
        return self._grown(values, KL_FLOOR)

    def _grown(self, values: stats.FloatArray, floor: float) -> _Judged:
        scale = stats.logs(values, floor / self.growth)
        limit = float(np.log(self.growth))
        past = stats.past_baseline(scale, above=limit / 2, warmup=EARLY, window=stats.MAX_BLOCKS)
        rise = scale - past.center
        left = rise > np.maximum(LEFT * limit, 3 * past.robust_std)
        return _Judged((rise > limit) & (values > floor), left, np.exp(past.center))

    def _finding(self, run: RunContext, group: list[_Episode]) -> Finding:
        lead = group[0]
        first, last = lead.first, max(item.last for item in group)
        recovered = all(item.episode.recovered for item in group)
        whole = stats.Episode(0, 0, recovered)
        usual, level = stats.number(lead.usual), stats.number(lead.level)
        return Finding(
            detector=self.id,
            severity=_severity(group, recovered=recovered),
            confidence=0.85 if len(group) > 1 or len(lead.episode) >= 2 * SPAN else 0.7,
            first_bad_step=first,
            last_bad_step=last if recovered else run.last_step,
            state=stats.outcome(whole, ended=run.ended),
            summary=(
                f"Sampler and trainer disagree from step {first:,} on: {_NAMES[lead.series.name]} "
                f"is at {usual}, against {level}."
            ),
            evidence=tuple(
                Evidence(
                    item.series.name,
                    item.first,
                    float(item.series.values[item.episode.start]),
                    item.level,
                    note=f"onset; median since: {stats.number(item.usual)}",
                )
                for item in group
            ),
            remedies=_remedies(lead),
            metrics=tuple(dict.fromkeys(item.series.name for item in group)),
        )


_NAMES = {
    "is_ratio_mean": "the mean importance weight",
    "logprob_diff_mean": "the mean difference of their log-probabilities",
    "mismatch_kl": "the KL between them",
    "is_ess": "the effective sample size of the importance weights",
}


def _sample_size(values: stats.FloatArray) -> _Judged:
    past = stats.past_baseline(values, below=ESS_LOW / 2, warmup=EARLY)
    low = values < past.center / 2
    return _Judged(low & (values < ESS_LOW), low, past.center)


def _outside(series: Series, rule: _Rule) -> Iterator[_Episode]:
    if not len(series):
        return
    judged = rule(series.values)
    share = LASTING if len(series) >= SPAN else 1.0
    for episode in stats.persistent(judged.bad, width=SPAN, share=share, gap=SPAN):
        start = stats.extend_back(judged.left, episode.start)
        known = judged.level[episode.start]
        base = float(known) if np.isfinite(known) else stats.median(series.values[:EARLY])
        yield _Episode(series, stats.Episode(start, episode.end, episode.recovered), base)


def _together(found: list[_Episode], reach: int) -> Iterator[list[_Episode]]:
    """Episodes of all metrics that overlap or nearly touch, in order of onset."""
    group: list[_Episode] = []
    end = 0
    for item in sorted(found, key=lambda item: (item.first, item.series.name)):
        if group and item.first > end + reach:
            yield group
            group = []
        end = max(end, item.last) if group else item.last
        group.append(item)
    if group:
        yield group


def _severity(group: list[_Episode], *, recovered: bool) -> Severity:
    crushed = any(
        item.series.name == "is_ratio_mean"
        and abs(np.log(item.usual)) > np.log(CRUSHED)
        and len(item.episode) >= SPAN
        for item in group
    )
    return Severity.CRITICAL if crushed and not recovered else Severity.WARNING


def _remedies(lead: _Episode) -> tuple[str, ...]:
    copied = "check that the engine gets the new weights after each update, in the same precision"
    corrected = "correct with truncated importance weights, and drop samples that disagree most"
    filters = "turn off top-k, top-p and other filters of the sampler, or take them into account"
    if lead.episode.start == 0 and lead.series.name == "is_ratio_mean":
        return (
            filters,
            "check whether the weight is one of tokens or a product over the sequence",
            copied,
            corrected,
        )
    return (copied, corrected, "generate with a fresher policy: fewer steps between copies")
