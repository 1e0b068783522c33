"""GRAD_PATHOLOGY: gradients that are NaN or Inf, or that spike again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Series,
    Severity,
    knob,
)

NORMS = ("grad_norm", "grad_norm_critic")
COUNTS = ("nan_count", "inf_count")
GRADIENT_SOURCES = ("", "gradient", "grad", "weight", "weights", "parameter", "parameters")
MIN_POINTS = 8
MERGE_ROWS = 5  # a few good rows between two bad ones do not make two incidents
SKIPPED_AT_MOST = 3  # so many bad updates in a row can have been skipped without harm
SKIPPING_FRAMEWORKS = ("verl",)
LEAST_SIGMA = 0.1  # of the logarithm: no series is steadier than about 10 %


class GradPathology(Detector):
    """Gradients turn NaN or Inf, or spike far above the run's own level again and again.

    What it detects
        `nonfinite`: a gradient with at least one NaN or Inf element, a gradient norm that is not
        finite, or a `nan_detected` event about gradients or weights. `spikes`: a cluster of steps
        whose gradient norm is far above the run's own past.

    Why it matters
        One non-finite update writes NaN into every weight it touches, and nothing after it is
        worth the GPU time. Repeated spikes move the optimizer's second moment and undo what was
        learnt, even where clipping bounds the single step.

    How it is computed
        Non-finite values are facts: one is enough, at any step, on any rank. Rows on which a
        dynamic loss scaler skipped the update and lowered its scale are left out. For spikes, the
        norm is compared on a log scale with the median of its own past, which excludes earlier
        spikes; a step above `spike_ratio` times that level (and clearly outside its usual scatter)
        is a spike. `min_spikes` spikes with at most `spike_window` rows between neighbours are a
        cluster; fewer are reported as info. Spikes that open the run are a cold start. A cluster
        that leads straight into a NaN is part of that finding.

    What to do
        Restore the last checkpoint before the first bad step. Clip the gradient norm, lower the
        learning rate, and look at the batch of that step: a group whose rewards are equal up to
        rounding gives huge advantages when they are divided by their standard deviation.

    When it is wrong
        Absolute levels mean nothing here and are not used: healthy norms run from 0.03 to
        100,000. A change of loss scale, batch size or data that moves the level for good tenfold
        in one step looks like spikes. Frameworks that skip a non-finite update lose that batch
        only; there it is a warning.

    References
        Pascanu et al., On the difficulty of training recurrent neural networks (2013), on clipping.
        Chowdhery et al., PaLM (2022), on rewinding past loss spikes. transformers `trainer.py`,
        which logs the norm before clipping; verl `engine/fsdp`, which skips non-finite updates.
    """

    id = "GRAD_PATHOLOGY"
    severity = Severity.CRITICAL
    needs = (("grad_norm",), ("nan_count",), ("inf_count",), ("event:nan_detected",))
    caused_by = (
        "ZERO_VARIANCE",
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "VALUE_DIVERGENCE",
        "LOSS_SCALE_COLLAPSE",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    spike_ratio: float = knob(10, "times the run's own level that make a spike", minimum=1.5)
    min_spikes: int = knob(3, "spikes that make a cluster", unit="steps", minimum=2)
    spike_window: int = knob(20, "rows between two spikes of a cluster", unit="rows", minimum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Non-finite gradients, then spikes of the gradient norm."""
        facts = tuple(_nonfinite(run))
        yield from facts
        series = run.series("grad_norm")
        if series is not None:
            yield from self._spikes(run, series, facts)

    def _spikes(
        self, run: RunContext, series: Series, facts: tuple[Finding, ...]
    ) -> Iterator[Finding]:
        steps, norms = stats.measured(series, above=0.0)
        if len(steps) < MIN_POINTS:
            raise Inconclusive(f"spikes: {len(steps)} non-zero gradient norms, needs {MIN_POINTS}")
        level, mask = self._above(norms)
        mask &= ~_cold_start(mask)
        clusters = stats.episodes(mask, gap=self.spike_window, least=self.min_spikes)
        for cluster in clusters:
            if not _leads_into(facts, int(steps[cluster.end]), run.interval):
                yield _cluster(run, steps, norms, level, mask, cluster)
            mask[cluster.rows] = False
        if mask.any():
            yield _isolated(run, steps, norms, level, mask)

    def _above(self, norms: stats.FloatArray) -> tuple[stats.FloatArray, stats.BoolArray]:
        """Logarithm of the level before each row, and where the norm spikes above it."""
        values = stats.logs(norms, 1e-30)
        limit = float(np.log(self.spike_ratio))
        # the first rows have no past worth the name: there, the low part of them is the level
        opening = 2 * MIN_POINTS
        early = stats.quantile(values[:opening], 0.25)
        learnt = values.copy()
        learnt[:opening][values[:opening] > early + limit] = np.nan
        past = stats.past_baseline(learnt, above=limit, warmup=opening)
        center = np.where(np.isnan(past.center), early, past.center)
        mask = values > center + limit
        rows = np.flatnonzero(mask)
        sigma = np.maximum(np.nan_to_num(past.robust_std[rows]), LEAST_SIGMA)
        mask[rows] = values[rows] - center[rows] > 4 * sigma
        return center, mask


def _cold_start(mask: stats.BoolArray) -> stats.BoolArray:
    """The spikes that open the run: a start far above the later level is no fault."""
    opening = np.zeros(len(mask), dtype=np.bool_)
    found = stats.episodes(mask, gap=1)
    if found and found[0].start == 0:
        opening[found[0].rows] = True
    return opening


def _leads_into(facts: tuple[Finding, ...], step: int, interval: int) -> bool:
    reach = MERGE_ROWS * interval
    return any(fact.first_bad_step - reach <= step <= fact.last_bad_step + reach for fact in facts)


def _cluster(
    run: RunContext,
    steps: stats.IntArray,
    norms: stats.FloatArray,
    level: stats.FloatArray,
    mask: stats.BoolArray,
    cluster: stats.Episode,
) -> Finding:
    rows = np.flatnonzero(mask[cluster.rows]) + cluster.start
    top = int(rows[int(np.argmax(norms[rows]))])
    base = float(np.exp(level[rows[0]]))
    first, last = int(steps[cluster.start]), int(steps[cluster.end])
    lasting = len(rows) >= 10 or (len(rows) >= 5 and not cluster.recovered)
    return Finding(
        detector="GRAD_PATHOLOGY",
        variant="spikes",
        severity=Severity.CRITICAL if lasting else Severity.WARNING,
        confidence=0.9 if len(rows) >= 5 else 0.75,
        first_bad_step=first,
        last_bad_step=last if cluster.recovered else run.last_step,
        state=stats.outcome(cluster, ended=run.ended),
        summary=(
            f"{len(rows)} gradient-norm spikes from step {first:,} to {last:,}, up to "
            f"{stats.number(norms[top])} against a level of {stats.number(base)} "
            f"({stats.number(norms[top] / base)} times)."
        ),
        evidence=(
            Evidence("grad_norm", first, float(norms[cluster.start]), base, note="first spike"),
            Evidence("grad_norm", int(steps[top]), float(norms[top]), base, note="highest spike"),
            Evidence("grad_norm", None, float(len(rows)), note="number of spikes"),
        ),
        remedies=_spike_remedies(run, first),
        metrics=("grad_norm",),
    )


def _spike_remedies(run: RunContext, step: int) -> tuple[str, ...]:
    flat = stats.at_steps(
        run.series("zero_variance_group_fraction"), np.array([step], dtype=np.int64)
    )
    general = (
        "clip the gradient norm near the run's usual level",
        "lower the learning rate, or warm it up for longer",
        "look at the batches of the spiking steps: the same data at a fixed distance points there",
        "restore the last checkpoint before the first spike if the reward fell after it",
    )
    if flat[0] >= 0.5:
        return (
            "drop groups whose rewards are all equal, or add a floor to the standard deviation "
            "that advantages are divided by",
            *general,
        )
    return general


def _isolated(
    run: RunContext,
    steps: stats.IntArray,
    norms: stats.FloatArray,
    level: stats.FloatArray,
    mask: stats.BoolArray,
) -> Finding:
    rows = np.flatnonzero(mask)
    top = int(rows[int(np.argmax(np.log(norms[rows]) - level[rows]))])
    base = float(np.exp(level[top]))
    first, last = int(steps[rows[0]]), int(steps[rows[-1]])
    once = len(rows) == 1
    passed = bool(rows[-1] < len(mask) - 1)
    came_back = "; the norm came back each time" if passed else ""
    return Finding(
        detector="GRAD_PATHOLOGY",
        variant="spikes",
        severity=Severity.INFO,
        confidence=0.6,
        first_bad_step=first,
        last_bad_step=last if passed else run.last_step,
        state="recovered" if passed else "ended_run" if run.ended else "ongoing",
        summary=(
            f"{'One isolated spike' if once else f'{len(rows)} isolated spikes'} of the gradient "
            f"norm, {stats.number(norms[top])} at step {int(steps[top]):,} against a level of "
            f"{stats.number(base)}{came_back}."
        ),
        evidence=(
            Evidence("grad_norm", int(steps[top]), float(norms[top]), base, note="highest spike"),
            Evidence("grad_norm", None, float(len(rows)), note="number of spikes"),
        ),
        remedies=("nothing, as long as clipping is on and the spikes stay rare",),
        metrics=("grad_norm",),
    )


# --- non-finite -----------------------------------------------------------------------------------


def _nonfinite(run: RunContext) -> Iterator[Finding]:
    events = [event for event in run.events("nan_detected") if _about_gradients(event)]
    bad = _bad_steps(run, events)
    if not len(bad):
        return
    for start, end in stats.clusters(bad, (MERGE_ROWS + 1) * run.interval):
        yield _fact(run, bad[start : end + 1], events)


def _about_gradients(event: Event) -> bool:
    return str(event.data.get("source") or "").lower() in GRADIENT_SOURCES


def _bad_steps(run: RunContext, events: list[Event]) -> stats.IntArray:
    measured = [_bad_rows(series) for series in _watched(run)]
    rows = np.concatenate([*measured, np.empty(0, dtype=np.int64)])
    rows = rows[~_scaler_skipped(run, rows)]
    told = [run.last_step if event.step is None else event.step for event in events]
    return np.unique(np.concatenate((rows, np.array(told, dtype=np.int64))))


def _watched(run: RunContext) -> Iterator[Series]:
    for name in (*NORMS, *COUNTS):
        series = run.series(name)
        if series is not None:
            yield series
        yield from run.rank_series(name).values()


def _bad_rows(series: Series) -> stats.IntArray:
    if series.name in COUNTS:
        return series.steps[~(series.values <= 0)]
    return series.steps[~np.isfinite(series.values)]


def _scaler_skipped(run: RunContext, steps: stats.IntArray) -> stats.BoolArray:
    """Where a dynamic loss scaler caught the overflow: it skipped the update and backed off."""
    scale = run.series("loss_scale")
    if scale is None or not len(steps):
        return np.zeros(len(steps), dtype=np.bool_)
    place = np.searchsorted(scale.steps, steps)
    before = scale.values[np.maximum(place - 1, 0)]
    after = scale.values[np.minimum(place + 1, len(scale) - 1)]
    here = scale.values[np.minimum(place, len(scale) - 1)]
    skipped = stats.at_steps(run.series("update_skipped"), steps) > 0
    return (here < before) | (after < here) | (skipped & (here > 1))


def _fact(run: RunContext, steps: stats.IntArray, events: list[Event]) -> Finding:
    first, last = int(steps[0]), int(steps[-1])
    inside = [event for event in events if first <= _step(run, event) <= last]
    poisoned = any(
        str(event.data.get("source", "")).startswith(("weight", "param")) for event in inside
    )
    recovered = not poisoned and _finite_after(run, last)
    harmless = not poisoned and len(steps) <= SKIPPED_AT_MOST
    skipped = harmless and (recovered or run.framework in SKIPPING_FRAMEWORKS)
    ranks = _ranks(run, first, last, inside)
    evidence = tuple(_proof(run, first, inside))
    return Finding(
        detector="GRAD_PATHOLOGY",
        variant="nonfinite",
        severity=Severity.WARNING if skipped else Severity.CRITICAL,
        confidence=0.99,
        first_bad_step=first,
        last_bad_step=last if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=_sentence(first, len(steps), ranks, inside, poisoned=poisoned),
        evidence=evidence,
        remedies=_cures(run, first, poisoned=poisoned, skipped=skipped),
        metrics=tuple(dict.fromkeys(item.metric for item in evidence)),
        ranks=ranks,
    )


def _step(run: RunContext, event: Event) -> int:
    return run.last_step if event.step is None else event.step


def _finite_after(run: RunContext, step: int) -> bool:
    """Whether a good value was logged after this step."""
    for series in _watched(run):
        later = series.values[series.steps > step]
        if len(later):
            return bool(np.isfinite(later).any())
    return False


def _ranks(run: RunContext, first: int, last: int, events: list[Event]) -> tuple[int, ...]:
    found = {event.rank for event in events if event.rank > 0}
    every: set[int] = set()
    for name in (*NORMS, *COUNTS):
        for rank, series in run.rank_series(name).items():
            every.add(rank)
            steps = _bad_rows(series)
            if bool(((steps >= first) & (steps <= last)).any()):
                found.add(rank)
    return tuple(sorted(found)) if found != every else ()


def _proof(run: RunContext, step: int, events: list[Event]) -> Iterator[Evidence]:
    at = np.array([step], dtype=np.int64)
    for name in (*NORMS, *COUNTS):
        value = float(stats.at_steps(run.series(name), at)[0])
        series = run.series(name)
        if series is not None and step in _bad_rows(series):
            yield Evidence(name, step, value, note="first bad value")
        for rank, own in run.rank_series(name).items():
            if step in _bad_rows(own):
                value = float(stats.at_steps(own, at)[0])
                yield Evidence(name, step, value, rank=rank, note="first bad value of the rank")
    for event in events[:5]:
        yield Evidence(
            "event:nan_detected",
            event.step,
            float(event.data.get("nan_count") or 0) + float(event.data.get("inf_count") or 0),
            rank=event.rank,
            note=f"non-finite elements, {event.data.get('source') or 'gradient'}{_names(event)}",
        )


def _names(event: Event) -> str:
    names = [str(name) for name in event.data.get("names") or ()]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f" of {', '.join(names[:3])}{more}" if names else ""


def _sentence(
    step: int, count: int, ranks: tuple[int, ...], events: list[Event], *, poisoned: bool
) -> str:
    what = "Weights hold NaN or Inf" if poisoned else "The gradient is NaN or Inf"
    where = f" on rank {', '.join(map(str, ranks))}" if ranks else ""
    named = next((_names(event) for event in events if _names(event)), "")
    often = f", on {count:,} logged steps" if count > 1 else ""
    return f"{what}{named.replace(' of ', ' in ', 1)}{where} from step {step:,} on{often}."


def _cures(run: RunContext, step: int, *, poisoned: bool, skipped: bool) -> tuple[str, ...]:
    if skipped:
        return (
            "look at the batch of that step: its update was lost",
            "clip gradients and lower the learning rate if it comes again",
        )
    restore = f"restore the last checkpoint before step {step:,}"
    first = (
        f"{restore}; the weights are poisoned, going on cannot heal them"
        if poisoned
        else f"stop, and {restore}"
    )
    half = "train in bf16, or enable the loss scaler" if run.setting("fp16") else None
    rest = (
        "clip the gradient norm and lower the learning rate before going on",
        "replay the batch of that step and look for empty completions or log(0)",
    )
    return (first, *([half] if half else []), *rest)
