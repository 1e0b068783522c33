"""DIVERGENCE: the loss rises and stays, while everything is still finite."""

from __future__ import annotations

import math
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
    Severity,
    knob,
)

HELD_OUT = ("eval/loss", "eval/ppl")
SIGNED_BY = ("reward", "policy_loss", "kl_", "approx_kl", "advantage", "value_loss", "entropy")
EARLY = 16  # rows of the past below which its scatter is not known
EARLY_SIGMA = 0.04  # of the logarithm, below which few rows do not tell the scatter
SCATTER_ROWS = 8  # rows of the past that a signed loss needs
USUAL_SIGMAS = 4  # of its distances from the best level before, which have long tails
WIDER = 5  # times as many rows, where the scatter hides a rise from fewer
LEVEL_ROWS = 16  # rows whose median is a level that was reached
LEAST_SIGMA = 0.02
SURE_RISE, SURE_NATS = 1.3, 1.0  # a rise so large needs two rows only
SURE_ROWS = 2
LAST_ROWS = 20  # the end of the run, which must be as bad
GRADIENT_LEVEL = 3.0  # times its own past, over the episode
KL_LEVEL, KL_FLOOR = 5.0, 1.0
VALUE_LEVEL = 2.0


@dataclass(frozen=True, slots=True)
class _Loss:
    """A loss with its best level so far, one per row."""

    steps: stats.IntArray
    values: stats.FloatArray
    best: stats.FloatArray
    signed: bool


class Divergence(Detector):
    """The loss rises far above the best level of the run and stays there, all finite.

    What it detects
        A loss that leaves the lowest level the run had reached, and is still above it on the last
        rows. A rise that comes back is LOSS_SPIKE.

    Why it matters
        What was learnt is being undone, and every further step costs the same as a good one. A mean
        loss that goes from 2.05 to 2.90 nats means that the typical probability of the right token
        fell from 0.129 to 0.055.

    How it is computed
        A likelihood loss (no rewards logged) is compared on a log scale with the lowest median of
        sixteen rows of its past. If the mean of `rows` rows is above `rise` times that level,
        `least_nats` higher, outside `sigmas` of its usual scatter and higher than the loss now and
        then was before, up to the end, it is a divergence; in noisy runs the same is tried with
        five times as many rows. Two rows are enough, and all that counts in the first sixteen
        rows, if the rise is more than 30 % and a nat. The uniform guess, the logarithm of the
        vocabulary size, is no ceiling: a confident wrong model is worse. The signed loss of a
        policy gradient has no ratio: it must stay outside its own scatter while the gradient norm,
        the KL or the value loss leaves its level. `evaluation`: a held-out likelihood loss (or the
        logarithm of a perplexity) that ends `eval_nats` above its own best; two evaluations are
        enough for that.

    What to do
        Restore a checkpoint from before the onset, lower the learning rate, clip the gradient. In
        fp16, look at the loss scale; in bf16, at the attention logits and the embedding layer.

    When it is wrong
        Harder data (a longer context, another language) raise the loss for good. The loss of a
        policy gradient that holds a KL term grows from 0 with the KL in any run; that alone is not
        reported.

    References
        BigScience, tr8-104B and tr1-13B chronicles (2022). Zhang et al., OPT (2022), logbook.
        Wortsman et al., Small-scale proxies for large-scale transformer instabilities (2023).
    """

    id = "DIVERGENCE"
    severity = Severity.CRITICAL
    needs = (("loss",), ("eval/loss",), ("eval/ppl",))
    caused_by = (
        "LOSS_SPIKE",
        "LOSS_SCALE_COLLAPSE",
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "VALUE_DIVERGENCE",
        "KL_BLOWUP",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    rise: float = knob(1.2, "times the best level", minimum=1.01)
    least_nats: float = knob(0.2, "rise below which nothing is said", unit="nats")
    sigmas: float = knob(6, "robust standard deviations of the past", minimum=2)
    rows: int = knob(5, "bad rows up to the end", unit="rows", minimum=2)
    eval_nats: float = knob(1, "rise of a held-out loss", unit="nats", minimum=0.1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The rise that the run ends with, in evaluations and in training."""
        yield from self._evaluations(run)
        series = run.series("loss")
        if series is None:
            if not any(len(_held_out(run, name)[0]) > 1 for name in HELD_OUT):
                raise Inconclusive("no training loss, and fewer than two evaluations")
            return
        steps, values = stats.measured(series)
        if len(steps) < 1 + SURE_ROWS:
            raise Inconclusive(f"loss: {len(steps)} finite values, needs {1 + SURE_ROWS}")
        if _signed(run, values):
            yield from self._judge_signed(run, steps, values)
        else:
            yield from self._judge(run, steps, values)

    def _evaluations(self, run: RunContext) -> Iterator[Finding]:
        for name in HELD_OUT:
            steps, values = _held_out(run, name)
            if len(steps) < 2:
                continue
            nats = stats.logs(values, 1e-6) if name == "eval/ppl" else values
            up = nats - np.fmin.accumulate(nats)
            episode = _last(up >= self.eval_nats)
            if episode is not None:
                yield _evaluated(run, name, steps, nats, episode)
                return

    def _judge(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        scale = stats.logs(values, 1e-6)
        lowest = self._best(scale, LEVEL_ROWS)
        if not self._ends_high(scale, lowest):
            return
        sigma = stats.scatter(scale)
        for widths in (1, WIDER):
            best = lowest if widths == 1 else self._best(scale, widths * LEVEL_ROWS)
            bad = self._sure(scale, values, best, sigma)
            if widths > 1 or not bad[-SURE_ROWS:].all():
                bad = self._lasting(scale, values, best, sigma, widths * self.rows)
            episode = _last(bad)
            if episode is not None:
                outside = scale - best > float(np.log(self.rise)) / 2
                start = stats.extend_back(outside, episode.start, slack=1)
                whole = stats.Episode(start, episode.end, recovered=False)
                yield _finding(run, _Loss(steps, values, np.exp(best), signed=False), whole)
                return

    def _ends_high(self, scale: stats.FloatArray, best: stats.FloatArray) -> bool:
        """Whether it is worth a closer look: most runs end near their best."""
        limit = float(np.log(self.rise))
        tails = [scale[-count:].mean() for count in (self.rows, WIDER * self.rows)]
        return bool(max(tails) - best[-1] > limit or scale[-1] - best[-1] > limit)

    def _best(self, scale: stats.FloatArray, window: int) -> stats.FloatArray:
        """Lowest median so far of so many rows of the past."""
        band = max(2 * float(np.log(self.rise)), 4 * stats.noise(scale))
        past = stats.past_baseline(scale, above=band, warmup=1, window=window)
        return np.fmin.accumulate(past.center)

    def _usual(self, up: stats.FloatArray) -> stats.FloatArray:
        """How far above its best the loss has been now and then, before each row."""
        band = max(2 * float(np.log(self.rise)), 4 * stats.noise(up))
        past = stats.past_baseline(up, above=band, warmup=EARLY, window=stats.MAX_BLOCKS)
        return past.center + USUAL_SIGMAS * past.robust_std

    def _sure(
        self,
        scale: stats.FloatArray,
        values: stats.FloatArray,
        best: stats.FloatArray,
        sigma: stats.FloatArray,
    ) -> stats.BoolArray:
        """Where the rise is so large that two rows are enough."""
        level = np.exp(best)
        large = (values > SURE_RISE * level) & (values - level > SURE_NATS)
        up = scale - best
        least = np.fmax(self.sigmas * np.fmax(sigma, EARLY_SIGMA), self._usual(up))
        result: stats.BoolArray = large & (up > least)
        return result

    def _lasting(
        self,
        scale: stats.FloatArray,
        values: stats.FloatArray,
        best: stats.FloatArray,
        sigma: stats.FloatArray,
        width: int,
    ) -> stats.BoolArray:
        """Where the mean of the last rows is too high; a mean scatters less than a row."""
        least = self.sigmas * np.fmax(sigma, LEAST_SIGMA) / math.sqrt(width)
        up = stats.rolling_mean(scale, width) - best
        bad = up > np.fmax(np.fmax(np.log(self.rise), least), self._usual(up))
        bad &= stats.rolling_mean(values, width) - np.exp(best) > self.least_nats
        bad[: EARLY if width == self.rows else 3 * width] = False
        return bad if bad[-width:].all() else np.zeros(len(bad), dtype=np.bool_)

    def _judge_signed(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        if len(steps) < 2 * SCATTER_ROWS:
            return
        band = max(self.sigmas * stats.noise(values), LEAST_SIGMA)
        past = stats.past_baseline(values, above=band, below=band, warmup=SCATTER_ROWS)
        far = stats.robust_z(values, past, LEAST_SIGMA) > self.sigmas
        episode = _last(far)
        if episode is None or len(episode) < self.rows or not far[-self.rows :].all():
            return
        if _agrees(run, steps, episode):
            yield _finding(run, _Loss(steps, values, past.center, signed=True), episode)


def _signed(run: RunContext, values: stats.FloatArray) -> bool:
    """Whether it is the loss of a policy gradient: it may be around or below 0."""
    return bool((values < 0).any()) or any(run.names(prefix) for prefix in SIGNED_BY)


def _held_out(run: RunContext, name: str) -> tuple[stats.IntArray, stats.FloatArray]:
    """Evaluations of a likelihood loss; none where the loss is that of a policy gradient."""
    series = run.series(name)
    if series is None or any(run.names(prefix) for prefix in SIGNED_BY):
        return np.empty(0, dtype=np.int64), np.empty(0)
    return stats.measured(series, above=0.0)


def _evaluated(
    run: RunContext,
    name: str,
    steps: stats.IntArray,
    nats: stats.FloatArray,
    episode: stats.Episode,
) -> Finding:
    first = int(steps[episode.start])
    best, now = float(nats[: episode.start].min()), float(nats[-1])
    return Finding(
        detector="DIVERGENCE",
        variant="evaluation",
        severity=Severity.WARNING,
        confidence=0.7,
        first_bad_step=first,
        last_bad_step=run.last_step,
        state="ended_run" if run.ended else "ongoing",
        summary=(
            f"The held-out loss rose from {stats.number(best)} to {stats.number(now)} nats by step "
            f"{int(steps[-1]):,}."
        ),
        evidence=(Evidence(name, int(steps[-1]), now, best, note="nats, against its best"),),
        remedies=(
            f"restore the checkpoint of the best evaluation, before step {first:,}",
            "compare data and preprocessing of training and evaluation, and what a restart changed",
            "lower the learning rate; if the training loss still falls, stop earlier",
        ),
        metrics=(name,),
    )


def _last(bad: stats.BoolArray) -> stats.Episode | None:
    """The bad rows that lead to the end, with single good rows between them."""
    if not bad[-1]:
        return None
    return stats.episodes(bad, gap=1)[-1]


def _agrees(run: RunContext, steps: stats.IntArray, episode: stats.Episode) -> bool:
    return (
        _raised(run, "grad_norm", steps, episode) > GRADIENT_LEVEL
        or _raised(run, "value_loss", steps, episode) > VALUE_LEVEL
        or (
            _raised(run, "kl_mean", steps, episode) > KL_LEVEL
            and _median(run, "kl_mean", steps[episode.rows]) > KL_FLOOR
        )
    )


def _raised(run: RunContext, metric: str, steps: stats.IntArray, episode: stats.Episode) -> float:
    """How many times its median before the episode a metric is during it; 0 when unknown."""
    before = _median(run, metric, steps[: episode.start])
    during = _median(run, metric, steps[episode.rows])
    return during / before if before > 0 and during > 0 else 0.0


def _median(run: RunContext, metric: str, steps: stats.IntArray) -> float:
    return stats.median(np.abs(stats.at_steps(run.series(metric), steps)))


def _finding(run: RunContext, loss: _Loss, episode: stats.Episode) -> Finding:
    first = int(loss.steps[episode.start])
    base = float(loss.best[episode.start])
    now = stats.median(loss.values[episode.rows][-LAST_ROWS:])
    top = episode.start + int(np.argmax(loss.values[episode.rows]))
    return Finding(
        detector="DIVERGENCE",
        variant="signed" if loss.signed else None,
        severity=Severity.CRITICAL,
        confidence=0.9 if len(episode) >= SCATTER_ROWS else 0.75,
        first_bad_step=first,
        last_bad_step=run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=_sentence(loss, first, base, now),
        evidence=(
            Evidence("loss", first, float(loss.values[episode.start]), base, note="onset"),
            Evidence("loss", int(loss.steps[top]), float(loss.values[top]), base, note="highest"),
            Evidence("loss", None, now, base, note="median of the last rows"),
            *_beside(run, loss.steps, episode),
        ),
        remedies=_remedies(run, first),
        metrics=("loss",),
    )


def _sentence(loss: _Loss, first: int, base: float, now: float) -> str:
    rose = f"The loss rose from {stats.number(base)} to {stats.number(now)} from step {first:,} on"
    if loss.signed:
        return f"{rose} and stays there; other metrics left their level with it."
    before, after = stats.number(math.exp(-base)), stats.number(math.exp(-min(now, 700.0)))
    return (
        f"{rose} and stays there: the typical probability of the right token went from {before} "
        f"to {after}."
    )


def _beside(run: RunContext, steps: stats.IntArray, episode: stats.Episode) -> Iterator[Evidence]:
    for name in ("grad_norm", "kl_mean", "value_loss", "loss_scale"):
        now = _median(run, name, steps[episode.rows])
        before = _median(run, name, steps[: episode.start])
        if math.isfinite(now) and math.isfinite(before):
            yield Evidence(name, None, now, before, note="median since, against before")


def _remedies(run: RunContext, first: int) -> tuple[str, ...]:
    scale = run.series("loss_scale")
    fp16 = scale is not None and bool((scale.values > 1).any())
    restore = f"restore the last checkpoint before step {first:,}"
    calm = "lower the learning rate, clip the gradient norm, and skip the batches around the onset"
    return (
        restore,
        calm,
        "train in bf16: the loss scale fell with it" if fp16 else "check the data that began there",
    )
