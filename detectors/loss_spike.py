"""LOSS_SPIKE: the loss jumps far above its own past, and comes back."""

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

SIGNED_BY = ("reward", "policy_loss", "kl_", "approx_kl", "advantage", "value_loss", "entropy")
EARLY = 16  # rows of the past below which its scatter is not known
SCATTER_ROWS = 8  # rows of the past that a signed loss, and what agrees with it, needs
EARLY_SIGMA = 0.1  # of the logarithm, in place of it
LEAST_SIGMA = 0.02
LEVEL_ROWS = 16  # rows whose median is the level: few, because a loss falls
SURE_NATS = 2.0  # rise of one row that needs no past to speak of
LASTING = 0.5  # part of the rise that must be gone for the loss to be back
BACK_ROWS = 5  # rows after an episode that tell whether it came back
GRADIENT_JUMP = 5.0  # times its own past: a gradient that says that a signed loss spikes
KL_JUMP, KL_FLOOR = 10.0, 1.0
VALUE_JUMP = 3.0
CLUSTER = 3  # spikes of a signed loss that are more than chance
START_ROWS, LONG_AGO = 3, 20  # a start-up spike of so few rows that passed so many rows ago


@dataclass(frozen=True, slots=True)
class _Loss:
    """A loss with what it was like before each row, on the scale on which it is judged.

    Attributes:
        agrees: where the gradient or another metric jumps too; `out` where none is logged.
    """

    steps: stats.IntArray
    values: stats.FloatArray
    level: stats.FloatArray
    out: stats.BoolArray
    agrees: stats.BoolArray
    signed: bool


class LossSpike(Detector):
    """The loss jumps far above its own past while it is finite, and comes back.

    What it detects
        A stretch of rows, often one, whose loss is far above the run's own level, and after which
        the loss returns. Several jumps close to each other are one finding. A rise that stays is
        DIVERGENCE.

    Why it matters
        The update of a spike is real: it moves the weights and the optimizer's second moment. Most
        runs recover; some lose days of progress, and a spike that comes back again and again ends
        in divergence or NaN.

    How it is computed
        A likelihood loss (no rewards logged) is compared on a log scale with the median of its
        past: a row above `rise` times that level, at least `least_nats` higher and outside
        `sigmas` of its usual scatter is out. While fewer than sixteen rows are known, a rise of
        2 nats in one row is needed. A signed loss of a policy gradient hovers around 0 and has no
        ratio: it is judged in units of its own scatter, and a row counts only if the gradient
        norm, the KL or the value loss jumps there too. Jumps at most `reach` rows apart are one
        finding. Info are fewer than three rows of a signed loss, a single row at which the logged
        gradient norm stays calm, and a short spike of the warm-up that has passed. `overflow`: in a
        log too short for all that, a loss more than `at_overflow` times any before it, on a row at
        which the loss scaler backs off.

    What to do
        If the loss came back at once: keep the batch and go on. If it comes again: clip the
        gradient, lower the learning rate or the second beta of Adam, skip the batch and go on from
        the checkpoint before.

    When it is wrong
        Batches of a few short samples scatter widely; the scatter is taken into account once it is
        known. A change of the data mixture can look like it. A learning-rate warm-up may spike in
        the first rows of any run.

    References
        Chowdhery et al., PaLM (2022), on rewinding and skipping. Molybog et al., A theory on Adam
        instability in large-scale machine learning (2023). BigScience training logs (2022).
    """

    id = "LOSS_SPIKE"
    severity = Severity.WARNING
    needs = (("loss",),)
    caused_by = (
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "REWARD_HACKING",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    rise: float = knob(1.2, "times the level", minimum=1.01)
    least_nats: float = knob(0.2, "rise below which nothing is said", unit="nats")
    sigmas: float = knob(6, "robust standard deviations of the past", minimum=2)
    reach: int = knob(20, "rows between two jumps of one finding", unit="rows", minimum=1)
    at_overflow: float = knob(2.5, "times the largest loss before an overflow", minimum=1.5)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per jump, or per group of jumps, that came back."""
        series = run.series("loss")
        if series is None:
            return
        steps, values = stats.measured(series)
        if len(steps) < 2:
            raise Inconclusive(f"loss: {len(steps)} finite value, needs 2")
        signed = _signed(run, values)
        loss = (self._in_scatter if signed else self._in_nats)(run, steps, values)
        found = [
            episode
            for episode in stats.episodes(loss.out, gap=self.reach if signed else 2)
            if signed or _came_back(loss, episode)
        ]
        for episode in found:
            yield _finding(run, loss, episode)
        if not found and len(steps) < EARLY:
            yield from self._overflows(run, steps, values)

    def _overflows(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> Iterator[Finding]:
        scale = stats.at_steps(run.series("loss_scale"), steps)
        highest = np.maximum.accumulate(np.abs(values))
        jumps = values[1:] > self.at_overflow * highest[:-1]
        for row in np.flatnonzero(jumps & (scale[1:] < scale[:-1])) + 1:
            if row >= 2:
                yield _overflow(run, steps, values, scale, int(row))
                return

    def _in_nats(self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray) -> _Loss:
        scale = stats.logs(values, 1e-6)
        limit = float(np.log(self.rise))
        band = max(2 * limit, 4 * stats.noise(scale))
        past = stats.past_baseline(scale, above=band, warmup=1, window=LEVEL_ROWS)
        known = np.arange(len(scale)) >= EARLY
        sigma = np.fmax(stats.scatter(scale), np.where(known, LEAST_SIGMA, EARLY_SIGMA))
        level = np.exp(past.center)
        up = values - level
        rise = scale - past.center
        # scatter from row to row, and the slower one that neighbouring rows share
        usual = stats.past_baseline(rise, above=band, warmup=SCATTER_ROWS).robust_std
        sigma = np.fmax(sigma, usual)
        out = (rise > np.maximum(limit, self.sigmas * sigma)) & (up > self.least_nats)
        out &= known | (up > SURE_NATS) | _continued(out)
        judged = bool(out.any()) and run.series("grad_norm") is not None
        agrees = _corroborated(run, steps) if judged else out
        return _Loss(steps, values, level, out, agrees, signed=False)

    def _in_scatter(
        self, run: RunContext, steps: stats.IntArray, values: stats.FloatArray
    ) -> _Loss:
        band = max(self.sigmas * stats.noise(values), LEAST_SIGMA)
        past = stats.past_baseline(values, above=band, below=band, warmup=SCATTER_ROWS)
        far = np.abs(stats.robust_z(values, past, LEAST_SIGMA)) > self.sigmas
        if far.any():
            far &= _corroborated(run, steps)
        return _Loss(steps, values, past.center, far, far, signed=True)


def _signed(run: RunContext, values: stats.FloatArray) -> bool:
    """Whether it is the loss of a policy gradient: it may be around or below 0."""
    return bool((values < 0).any()) or any(run.names(prefix) for prefix in SIGNED_BY)


def _continued(out: stats.BoolArray) -> stats.BoolArray:
    """Rows out of the band whose neighbour is out too."""
    near = np.zeros(len(out), dtype=np.bool_)
    near[1:] |= out[:-1]
    near[:-1] |= out[1:]
    return out & near


def _came_back(loss: _Loss, episode: stats.Episode) -> bool:
    """Back to at most half of the rise; a single last row may still be a spike."""
    if not episode.recovered:
        return len(episode) == 1
    base = loss.level[episode.start]
    top = float(loss.values[episode.rows].max())
    after = loss.values[episode.end + 1 : episode.end + 1 + BACK_ROWS]
    return bool(stats.median(after) - base <= LASTING * (top - base))


def _corroborated(run: RunContext, steps: stats.IntArray) -> stats.BoolArray:
    """Where another metric jumps as well, at the row or beside it."""
    jumps = _jumps(run, "grad_norm", steps, GRADIENT_JUMP, 0.0)
    jumps |= _jumps(run, "kl_mean", steps, KL_JUMP, KL_FLOOR)
    jumps |= _jumps(run, "value_loss", steps, VALUE_JUMP, 0.0)
    near = jumps.copy()
    near[1:] |= jumps[:-1]
    near[:-1] |= jumps[1:]
    return near


def _jumps(
    run: RunContext, metric: str, steps: stats.IntArray, times: float, floor: float
) -> stats.BoolArray:
    values = stats.at_steps(run.series(metric), steps)
    broken = np.isinf(values) | (np.isnan(values) & np.isin(steps, _logged(run, metric)))
    scale = stats.logs(np.abs(values), 1e-12)
    limit = float(np.log(times))
    past = stats.past_baseline(scale, above=limit, warmup=SCATTER_ROWS)
    return broken | ((scale - past.center > limit) & (np.abs(values) > floor))


def _logged(run: RunContext, metric: str) -> stats.IntArray:
    series = run.series(metric)
    return np.empty(0, dtype=np.int64) if series is None else series.steps


def _finding(run: RunContext, loss: _Loss, episode: stats.Episode) -> Finding:
    rows = np.flatnonzero(loss.out[episode.rows]) + episode.start
    base = float(loss.level[rows[0]])
    top = int(rows[int(np.argmax(np.abs(loss.values[rows] - base)))])
    first, last = int(loss.steps[episode.start]), int(loss.steps[episode.end])
    minor = episode.recovered and _harmless(loss, episode, rows)
    return Finding(
        detector="LOSS_SPIKE",
        variant="signed" if loss.signed else None,
        severity=Severity.INFO if minor else Severity.WARNING,
        confidence=0.6 if minor else 0.85,
        first_bad_step=first,
        last_bad_step=last if episode.recovered else run.last_step,
        state=stats.outcome(episode, ended=run.ended),
        summary=_sentence(loss, rows, top, base, recovered=episode.recovered),
        evidence=tuple(_evidence(run, loss, first, top, base, len(rows))),
        remedies=_remedies(run, int(loss.steps[top]), len(rows)),
        metrics=("loss",),
    )


def _overflow(
    run: RunContext,
    steps: stats.IntArray,
    values: stats.FloatArray,
    scale: stats.FloatArray,
    row: int,
) -> Finding:
    step, value, before = int(steps[row]), float(values[row]), float(np.abs(values[:row]).max())
    on_last = row == len(steps) - 1
    return Finding(
        detector="LOSS_SPIKE",
        variant="overflow",
        severity=Severity.WARNING,
        confidence=0.6,
        first_bad_step=step,
        last_bad_step=run.last_step if on_last else step,
        state=("ended_run" if run.ended else "ongoing") if on_last else "recovered",
        summary=(
            f"The loss jumped to {stats.number(value)} at step {step:,}, from at most "
            f"{stats.number(before)} before, while the loss scaler backed off to "
            f"{stats.number(float(scale[row]))}."
        ),
        evidence=(
            Evidence("loss", step, value, before, note="against the largest before"),
            Evidence(
                "loss_scale", step, float(scale[row]), float(scale[row - 1]), note="backed off"
            ),
        ),
        remedies=_remedies(run, step, 1),
        metrics=("loss", "loss_scale"),
    )


def _harmless(loss: _Loss, episode: stats.Episode, rows: stats.IntArray) -> bool:
    """A chance jump, an odd batch, or a short jump of the warm-up that passed long ago."""
    if loss.signed:
        return len(rows) < CLUSTER
    if len(rows) == 1 and episode.start >= EARLY and not loss.agrees[rows[0]]:
        return True
    passed = len(loss.steps) - 1 - episode.end
    return episode.start < EARLY and len(episode) <= START_ROWS and passed >= LONG_AGO


def _sentence(loss: _Loss, rows: stats.IntArray, top: int, base: float, *, recovered: bool) -> str:
    step, value = int(loss.steps[top]), float(loss.values[top])
    often = "once" if len(rows) == 1 else f"on {len(rows)} rows"
    end = "and came back" if recovered else "on the last row"
    what = f"The loss jumped {often}, to {stats.number(value)} at step {step:,} from a level of"
    if loss.signed:
        return f"{what} {stats.number(base)}, {end}; the gradient norm, KL or value loss agrees."
    odds = f"{stats.number(np.exp(-base))} to {stats.number(np.exp(-min(value, 700.0)))}"
    return f"{what} {stats.number(base)}, {end}: the mean token probability went from {odds}."


def _evidence(
    run: RunContext, loss: _Loss, first: int, top: int, base: float, count: int
) -> Iterator[Evidence]:
    step = int(loss.steps[top])
    yield Evidence("loss", first, _at(run, "loss", first), base, note="onset")
    yield Evidence("loss", step, float(loss.values[top]), base, note="farthest from the level")
    yield Evidence("loss", None, float(count), note="rows out of the band")
    for name in ("grad_norm", "kl_mean", "value_loss"):
        value = _at(run, name, step)
        if not math.isnan(value):
            yield Evidence(name, step, value, note="at the same step")


def _at(run: RunContext, metric: str, step: int) -> float:
    return float(stats.at_steps(run.series(metric), np.array([step], dtype=np.int64))[0])


def _remedies(run: RunContext, step: int, count: int) -> tuple[str, ...]:
    batch = f"look at the batch of step {step:,}"
    calm = "clip the gradient norm; lower the learning rate or the second beta of Adam"
    if count < CLUSTER:
        return (batch, calm, "nothing more as long as it does not come again")
    return (
        calm,
        batch,
        f"if it does not calm down: restore the checkpoint before step {step:,} and skip the batch",
    )
