"""GRAD_PATHOLOGY: gradients that are NaN or Inf, or that spike again and again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    SKIPPING,
    BadGradients,
    Judged,
    Period,
    Signal,
    Spikes,
    Stretch,
    concerns_weights,
    finding,
    names_in,
    number,
    period,
    stretch_from,
)
from rlprobe.values import BoolArray, IntArray


class GradPathology(Detector):
    """Gradients turn NaN or Inf, or spike far above the run's own level again and again.

    What it detects
        A NaN or Inf in the gradient or in the weights, and steps whose gradient norm is far above
        the run's own level: in a burst, again and again over the run, or for good.

    Why it matters
        One non-finite update writes NaN into every weight it touches, and nothing after it is
        worth the GPU time. Repeated spikes move the optimizer's second moment and undo what was
        learnt, even where clipping bounds the single step; that they come again means that their
        source is systematic.

    How it is computed
        Non-finite values are facts: one is enough, at any step, on any rank. A spike is a norm
        above `spike_ratio` times the median of its own past, which excludes earlier spikes, and
        above its usual scatter by `sigmas` robust standard deviations, all on a log scale; what is
        usual after it must lie as far below. For the first `opening` rows, whose past is short,
        the level is their lower quartile; norms that are high from the first row on are a cold
        start. `min_spikes` counts over the whole run, `spike_window` tells a cluster.

    What to do
        Restore the last checkpoint before the first bad step. Clip the gradient norm, lower the
        learning rate, and look at the batch of that step: a group whose rewards are equal up to
        rounding gives huge advantages when they are divided by their standard deviation.

    When it is wrong
        Absolute levels mean nothing here and are not used: healthy norms run from 0.03 to
        100,000. A loss scale or a batch size that was changed moves the level for good.
        Frameworks that skip a non-finite update lose that batch only; there it is a warning.

    References
        Pascanu et al., On the difficulty of training recurrent neural networks (2013), on clipping.
        Chowdhery et al., PaLM (2022), on rewinding past loss spikes. transformers `trainer.py`,
        which logs the norm before clipping, and leaves the schedule where it is when accelerate
        skipped the step; verl `engine/fsdp`, slime `megatron_utils/model.py` and AReaL, which skip
        non-finite updates.
    """

    id = "GRAD_PATHOLOGY"
    severity = Severity.CRITICAL
    needs = (("grad_norm",), ("nan_count",), ("inf_count",), ("event:nan_detected",))
    stage = "gradient"
    caused_by = (
        "ZERO_VARIANCE",
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "NONFINITE_METRIC",
        "VALUE_DIVERGENCE",
        "LOSS_SCALE_COLLAPSE",
        "NONFINITE_METRIC",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    spike_ratio: float = knob(10, "times the run's own level that make a spike", minimum=1.5)
    min_spikes: int = knob(3, "spikes of a run that are no accident", unit="steps", minimum=2)
    spike_window: int = knob(20, "rows between two spikes of a cluster", unit="rows", minimum=1)

    points = fixed(8, "norms above 0 that are needed")
    opening = fixed(16, "rows that are needed for a past")
    sigmas = fixed(4, "robust standard deviations of the logarithm above the level")
    least_std = fixed(0.1, "of the logarithm: no norms are steadier")
    many = fixed(10, "spikes of a cluster that are critical")
    several = fixed(5, "spikes of a cluster that are critical if the log ends with them")
    gap = fixed(5, "good rows that do not part two non-finite ones, nor spikes from them")
    skipped = fixed(3, "updates that can have been skipped to the end of the log without harm")
    flat_share = fixed(0.5, "share of flat groups that makes them the first suspect of a spike")
    lasts = fixed(32, "high rows that are a level, not spikes")
    calm = fixed(2, "usual rows that do not end the way back to where a level began")
    harmful = fixed(20, "times the level before that make a lasting one a warning")
    slack = fixed(0.05, "part of a period by which a spike may miss it")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Non-finite gradients, then what is left of spikes and levels of the gradient norm."""
        norm = Signal.logged(run, "grad_norm", above=0)
        enough = norm is not None and len(norm) >= self.points
        spikes = self._high(norm) if norm is not None and enough else None
        facts = tuple(self._nonfinite(run, spikes))
        yield from facts
        if spikes is not None:
            rest = spikes.without(_near(spikes.signal, facts, self.gap))
            yield from self._spikes(rest)
            yield from self._level(rest, facts)
        elif norm is not None:
            raise Inconclusive(f"spikes: {len(norm)} non-zero gradient norms, needs {self.points}")

    @rule("nonfinite")
    def _nonfinite(self, run: RunContext, spikes: Spikes | None) -> Iterator[Finding]:
        """A state: a NaN or Inf element, a norm that is not finite, or a `nan_detected` event about
        gradients or weights, with the spikes that lead to it; `gap` good rows do not part an
        episode, and an overflow after which the loss scaler backed off is none. Critical; a warning
        where each update is known to have been skipped and finite ones follow, or after `skipped`.
        """
        bad = BadGradients.of(run)
        for start, end in stats.clusters(bad.steps, (self.gap + 1) * run.interval):
            yield self._fact(bad, bad.steps[start : end + 1], spikes)

    @rule("spikes")
    def _spikes(self, spikes: Spikes) -> Iterator[Finding]:
        """A change: `min_spikes` spikes anywhere in the run are a warning, and the distance that
        they keep is named. A cluster, with at most `spike_window` rows between neighbours, is
        critical if it has `many`, or `several` and the log ends with it. Fewer are info.
        """
        spiking = spikes.spiking.copy()
        clusters = Judged(spikes.signal, spiking).runs(gap=self.spike_window, least=self.min_spikes)
        inside = sum(int(spiking[cluster.rows].sum()) for cluster in clusters)
        outside = int(spiking.sum()) - inside
        if inside >= outside or outside < self.min_spikes:  # else bursts of what is everywhere
            for cluster in clusters:
                rows = np.flatnonzero(spiking[cluster.rows]) + cluster.start
                yield self._repeated(spikes, rows, burst=True)
                spiking[cluster.rows] = False
        rows = np.flatnonzero(spiking)
        if len(rows) >= self.min_spikes:
            yield self._repeated(spikes, rows, burst=False)
        elif len(rows):
            yield self._isolated(spikes, rows)

    @rule("level")
    def _level(self, spikes: Spikes, facts: Sequence[Finding]) -> Iterator[Finding]:
        """A change: for `lasts` rows or more the norm is above `spike_ratio` times its past, or
        times the level that the run began with. Info; from `harmful` times on a warning, unless the
        spread of the rewards, or the share of groups that differ, grew with it.
        """
        signal, past = spikes.signal, spikes.past
        begin = math.exp(stats.median(past.scaled[: self.opening]))
        free = ~_near(signal, facts, self.gap) & ~spikes.spiking
        far = free & (signal.values > self.spike_ratio * begin)
        departed = free & (signal.values > math.sqrt(self.spike_ratio) * begin)
        shifted = np.zeros(len(signal), dtype=np.bool_)
        for stretch in spikes.lasting:
            level = float(past.level[stretch.start])
            shifted[stretch.rows] = stretch.usual >= self.spike_ratio * level
        far, departed = far | shifted, departed | shifted
        if len(signal) >= self.lasts + self.opening:
            for stretch in Judged(signal, far, departed).persistent(self.lasts, slack=self.calm):
                start = stretch.start
                yield self._moved(stretch, float(past.level[start]) if shifted[start] else begin)

    def _high(self, norm: Signal) -> Spikes:
        return Spikes.of(
            norm,
            ratio=self.spike_ratio,
            sigmas=self.sigmas,
            least_std=self.least_std,
            opening=self.opening,
            lasts=self.lasts,
        )

    def _fact(self, bad: BadGradients, steps: IntArray, spikes: Spikes | None) -> Finding:
        run, at, last = bad.run, int(steps[0]), int(steps[-1])
        led = self._lead(spikes, at)
        first = led.first if led else at
        poisoned = any(concerns_weights(event) for event in bad.during(at, last))
        recovered = not poisoned and bad.finite_after(last)
        lost = not poisoned and bad.skipped(at, last)
        harmless = lost and (recovered or len(steps) <= self.skipped)
        few = led is None or len(led) < self.several
        evidence = (*_lead_evidence(led), *bad.proof(at, last))
        ranks = bad.ranks(at, last)
        return finding(
            self,
            Period(run, first, last, recovered),
            _sentence(bad, steps, led, ranks, poisoned=poisoned) + _skips(run, lost=lost) + ".",
            variant="nonfinite",
            severity=Severity.WARNING if harmless and few else Severity.CRITICAL,
            confidence=0.99,
            evidence=evidence,
            remedies=_cures(run, first, poisoned=poisoned, skipped=harmless),
            metrics=tuple(dict.fromkeys(item.metric for item in evidence)),
            ranks=ranks,
        )

    def _lead(self, spikes: Spikes | None, step: int) -> Stretch | None:
        """The high rows that lead to a non-finite gradient: right before it, or a cluster."""
        if spikes is None:
            return None
        rows = spikes.leading_to(
            step, reach=self.gap, burst=self.spike_window, least=self.min_spikes
        )
        if not len(rows):
            return None
        led = stretch_from(spikes.signal, int(rows[0]), int(rows[-1]))
        return led.judged_by(spikes.past.level)

    def _repeated(self, spikes: Spikes, rows: IntArray, *, burst: bool) -> Finding:
        stretch = stretch_from(spikes.signal, int(rows[0]), int(rows[-1]))
        level = float(spikes.past.level[stretch.start])
        top = float(stretch.signal.values[stretch.top])
        count, beat = len(rows), self._period(stretch.signal, rows)
        ends = count >= self.several and not stretch.recovered
        grave = burst and (count >= self.many or ends)
        shares = stretch.signal.run.series("zero_variance_group_fraction")
        flat = float(stats.at_steps(shares, stretch.signal.steps[rows[:1]])[0])
        return finding(
            self,
            stretch,
            f"{count} gradient-norm spikes from step {stretch.first:,} to {stretch.seen:,}"
            + (f", one every {beat:,} steps" if beat else "")
            + f", up to {number(top)} against a level of {number(level)} "
            f"({number(top / level)} times).",
            variant="spikes",
            severity=Severity.CRITICAL if grave else Severity.WARNING,
            confidence=0.9 if count >= self.several else 0.75,
            evidence=(
                stretch.at_onset(level, "first spike"),
                stretch.at_top(level, "highest spike"),
                stretch.in_all(count, None, "number of spikes"),
                stretch.in_all(beat, None, "steps from spike to spike") if beat else None,
            ),
            remedies=(
                f"find what happens every {beat:,} steps: the same data again, an evaluation, "
                "a new epoch, a reference that is replaced"
                if beat
                else "",
                "drop groups whose rewards are all equal, or add a floor to the standard deviation "
                "that advantages are divided by"
                if flat >= self.flat_share
                else "",
                "clip the gradient norm near the run's usual level",
                "lower the learning rate, or warm it up for longer",
                "look at the batches of the spiking steps for one absurd reward or a malformed "
                "sample",
                "restore the last checkpoint before the first spike if the reward fell after it",
            ),
        )

    def _period(self, norm: Signal, rows: IntArray) -> int:
        """Steps from spike to spike where that says something, else 0."""
        interval = norm.run.interval
        apart = stats.median(np.diff(norm.steps[rows]))
        return period(norm.steps[rows], max(interval, self.slack * apart)) * (apart >= 4 * interval)

    def _isolated(self, spikes: Spikes, rows: IntArray) -> Finding:
        norm, past = spikes.signal, spikes.past
        stretch = stretch_from(norm, int(rows[0]), int(rows[-1]))
        top = int(rows[np.argmax(past.rise[rows])])
        step, value, level = int(norm.steps[top]), float(norm.values[top]), float(past.level[top])
        count = "One isolated spike" if len(rows) == 1 else f"{len(rows)} isolated spikes"
        came_back = "; the norm came back each time" if stretch.recovered else ""
        return finding(
            self,
            stretch,
            f"{count} of the gradient norm, {number(value)} at step {step:,} against a level of "
            f"{number(level)}{came_back}.",
            variant="spikes",
            severity=Severity.INFO,
            confidence=0.6,
            evidence=(
                Evidence("grad_norm", step, value, level, note="highest spike"),
                stretch.in_all(len(rows), None, "number of spikes"),
            ),
            remedies=("nothing, as long as clipping is on and the spikes stay rare",),
        )

    def _moved(self, stretch: Stretch, level: float) -> Finding:
        times = stretch.usual / level
        grave = times >= self.harmful and _explained(stretch) < math.sqrt(times)
        return finding(
            self,
            stretch,
            f"The gradient norm is {number(stretch.usual)} (median) on {len(stretch):,} rows{SINCE}"
            f", {number(times)} times its level of {number(level)}"
            + ("." if stretch.recovered else ", and it stays there."),
            variant="level",
            severity=Severity.WARNING if grave else Severity.INFO,
            confidence=0.7,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, level, "median since, against before"),
                stretch.in_all(len(stretch), None, "rows"),
                stretch.beside("reward_std").evidence(),
            ),
            remedies=(
                "see what changed there: learning rate, data, scale of the rewards, batch size",
                "lower the learning rate, and clip the gradient norm near its earlier level",
                f"restore the last checkpoint before step {stretch.first:,} if the reward fell",
            ),
        )


def _near(norm: Signal, facts: Sequence[Finding], gap: int) -> BoolArray:
    """Rows that belong to a non-finite gradient, and `gap` rows on either side."""
    near = np.zeros(len(norm), dtype=np.bool_)
    for fact in facts:
        start = int(np.searchsorted(norm.steps, fact.first_bad_step))
        end = int(np.searchsorted(norm.steps, fact.last_bad_step, side="right"))
        near[max(0, start - gap) : end + gap] = True
    return near


def _explained(stretch: Stretch) -> float:
    """How many times the rewards' spread, or the share of groups that differ, grew with it."""
    flat = stretch.beside("zero_variance_group_fraction")
    alive = (1 - flat.during) / (1 - flat.before) if flat.before < 1 else math.inf
    grown = (stretch.beside("reward_std").times, alive if flat.known else math.nan)
    return max((times for times in grown if not math.isnan(times)), default=1.0)


# --- non-finite -----------------------------------------------------------------------------------


def _lead_evidence(led: Stretch | None) -> tuple[Evidence, ...]:
    if led is None:
        return ()
    level = led.onset_level
    return led.at_onset(level, "first spike"), led.at_top(level, "highest spike")


def _sentence(
    bad: BadGradients,
    steps: IntArray,
    led: Stretch | None,
    ranks: Sequence[int],
    *,
    poisoned: bool,
) -> str:
    first, last = int(steps[0]), int(steps[-1])
    named = (names_in(event) for event in bad.during(first, last))
    names = next((f" in {name}" for name in named if name), "")
    where = f" on rank {', '.join(map(str, ranks))}" if ranks else ""
    often = f", on {len(steps):,} logged steps" if len(steps) > 1 else ""
    if led is None:
        what = "Weights hold NaN or Inf" if poisoned else "The gradient is NaN or Inf"
        return f"{what}{names}{where}{SINCE}{often}"
    top = float(led.signal.values[led.top])
    what = "the weights hold NaN or Inf" if poisoned else "it is NaN or Inf"
    return (
        f"The gradient norm spikes{SINCE}, up to {number(top)} against a level of "
        f"{number(led.onset_level)}; {what}{names}{where} from step {first:,} on{often}"
    )


def _skips(run: RunContext, *, lost: bool) -> str:
    if not lost:
        return ""
    known = SKIPPING.get(run.framework or "")
    return f"; {known} skips such updates" if known else "; the update was skipped"


def _cures(run: RunContext, step: int, *, poisoned: bool, skipped: bool) -> tuple[str, ...]:
    if skipped:
        return (
            "look at the batch of that step: its update was lost",
            "clip gradients and lower the learning rate if it comes again",
        )
    restore = f"restore the last checkpoint before step {step:,}"
    return (
        f"{restore}; the weights are poisoned, going on cannot heal them"
        if poisoned
        else f"stop, and {restore}",
        "train in bf16, or enable the loss scaler" if _in_fp16(run) else "",
        "clip the gradient norm and lower the learning rate before going on",
        "replay the batch of that step and look for empty completions or log(0)",
    )


def _in_fp16(run: RunContext) -> bool:
    named = (run.setting(name) for name in ("mixed_precision", "precision", "dtype", "torch_dtype"))
    return bool(run.setting("fp16")) or any("16" in str(n) and "bf" not in str(n) for n in named)
