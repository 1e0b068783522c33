"""LOSS_SPIKE: the loss jumps far above its own past, and comes back."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    Judged,
    LossKind,
    Signal,
    Stretch,
    early,
    finding,
    number,
    stretch_from,
    training_loss,
)

BESIDE = ("grad_norm", "kl_mean", "value_loss")
ONE_MINIBATCH = ("sb3", "cleanrl")  # log the loss of the last minibatch of an update


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
        Which kind of loss it is follows from the algorithm, from what is logged beside it and from
        its size, and is told with the finding. A likelihood loss is compared on a log scale with
        the median of sixteen rows of its past: a row above `rise` times that level, at least
        `least_nats` higher and outside `sigmas` of its usual scatter, or of the tails that it has
        had so far, is out. A loss of pairs must also be above where it began, and one of an unknown
        kind a nat higher. In the first sixteen rows, a row that is out alone must be 2 nats higher.
        At most two rows back inside part a jump. Half of the rise must be gone over the five rows
        after it, or at most as many rows later as there were before it; the last row may jump
        alone. Info is a single row at which the gradient norm, the KL and the value loss stay calm,
        if a gradient norm is logged, or that is not far out for the rarest rows of this run; and a
        jump of up to three of the first sixteen rows that passed twenty rows ago. All else is a
        warning.

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
    needs = (("loss",), ("policy_loss",))
    stage = "loss"
    caused_by = (
        "ZERO_VARIANCE",
        "GRAD_PATHOLOGY",
        "ADVANTAGE_NOISE",
        "GRAD_PATHOLOGY",
        "DIVERGENCE",
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

    level_rows = fixed(16, "rows whose median is the level: few, because a loss falls")
    early_rows = fixed(16, "rows of a run after which its scatter is known")
    early_std = fixed(0.1, "of the logarithm, before: no scatter is smaller")
    least_std = fixed(0.02, "of the loss or its logarithm: no scatter is smaller")
    past_rows = fixed(8, "rows of the past that a signed loss, and what agrees with it, needs")
    sure_nats = fixed(2.0, "rise of one row that needs no past to speak of")
    pause = fixed(2, "rows back inside that do not part a jump")
    back = fixed(0.5, "part of the rise that must be gone for the loss to be back")
    back_rows = fixed(5, "rows after a jump that tell whether it came back")
    cluster = fixed(3, "rows out that are more than chance")
    warmup_rows = fixed(3, "rows of a jump that a warm-up may have")
    alone = fixed(2.0, "times as far as it must be: one row that nothing else confirms")
    tail = fixed(0.95, "quantile of all rises so far that tells how heavy the tails are")
    tail_stds = fixed(1.645, "standard deviations that a normal distribution has there")
    rare = fixed(0.995, "the same for a row that is out alone")
    rare_stds = fixed(2.576, "standard deviations that a normal distribution has there")
    pair_nats = fixed(1.0, "nats above where a loss of pairs began: single pairs cost as much")
    long_ago = fixed(20, "rows since, after which it has passed")
    gradient_times = fixed(5.0, "times its past: a gradient norm that agrees")
    value_times = fixed(3.0, "times its past: a value loss that agrees")
    kl_times = fixed(10.0, "times its past: a KL that agrees, if it is large")
    large_kl = fixed(1.0, "nats from which a KL is large")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per jump, or per group of jumps, that came back."""
        loss = training_loss(run)
        if loss is None:
            raise Inconclusive("loss: logged by single ranks only, or never finite")
        loss.require(2)
        kind = LossKind.of(loss)
        jumps = list(self._signed(loss, kind) if kind.signed else self._unsigned(loss, kind))
        yield from jumps
        if not jumps and len(loss) < self.early_rows:
            yield from self._overflow(loss)

    @rule(None)
    def _unsigned(self, loss: Signal, kind: LossKind) -> Iterator[Finding]:
        """The loss of a row is far above its level, as a ratio and in nats, and comes back."""
        out, margin = self._in_nats(loss, kind)
        grounds = out.bad.any() and loss.run.series("grad_norm") is not None
        agrees = self._agrees(loss) & (margin > 1) if grounds else margin > self.alone
        over = -1
        for stretch in out.runs(gap=self.pause):
            if stretch.start <= over:
                continue
            if self._came_back(stretch):
                odd = len(stretch) == 1 and not agrees[stretch.start]
                yield self._finding(out, stretch, kind, minor=self._minor(stretch, odd=odd))
            elif lasting := self._lasting(stretch):
                over = lasting.end
                yield self._high(lasting, kind)

    @rule("signed")
    def _signed(self, loss: Signal, kind: LossKind) -> Iterator[Finding]:
        """The loss of a policy gradient hovers around 0 and has no ratio: a row is out that is
        farther from 0 than the median of sixteen rows before it, by `sigmas` of its scatter and of
        its tails, and comes back, where the gradient norm, the KL or the value loss jumps too, or
        is not finite. Info if fewer than three rows at most `reach` rows apart are out and it
        passes, and where the framework logs one minibatch; else a warning.
        """
        past = loss.past(warmup=self.past_rows, window=self.level_rows)
        away = np.where(np.abs(loss.values) > np.abs(past.level), np.abs(past.rise), 0.0)
        far = away > self.sigmas * max(stats.noise(loss.values), self.least_std)
        if far.any():
            far &= ~(away <= self.sigmas * _tails(away, self.tail, self.tail_stds))
        out = Judged(loss, far & self._agrees(loss) if far.any() else far, level=past.level)
        minibatch = loss.run.framework in ONE_MINIBATCH
        for stretch in out.runs(gap=self.reach):
            if self._came_back(stretch, signed=True):
                chance = len(out.bad_rows(stretch)) < self.cluster
                minor = (chance and stretch.recovered) or minibatch
                yield self._finding(out, stretch, kind, "signed", minor=minor)

    @rule("overflow")
    def _overflow(self, loss: Signal) -> Iterator[Finding]:
        """In a log too short for all that, a loss is more than `at_overflow` times any before it,
        on a row at which the loss scaler backs off. A warning.
        """
        scale = loss.beside("loss_scale")
        highest = np.maximum.accumulate(np.abs(loss.values))
        jumps = (loss.values > self.at_overflow * np.roll(highest, 1)) & (scale < np.roll(scale, 1))
        for row in np.flatnonzero(jumps[2:])[:1] + 2:
            yield self._overflowed(stretch_from(loss, int(row), int(row)), scale)

    # --- a likelihood loss ------------------------------------------------------------------------

    def _in_nats(self, loss: Signal, kind: LossKind) -> tuple[Judged, stats.FloatArray]:
        """Rows that are out, and how far each is, against how far it must be."""
        limit = math.log(self.rise)
        band = max(2 * limit, 4 * stats.noise(stats.logs(loss.values, 1e-6)))
        past = loss.past(log=1e-6, above=band, warmup=1, window=self.level_rows)
        rise, level = past.rise, past.level
        nats, least = loss.values - level, kind.least(loss, level)
        least += self.pair_nats if kind.name == "preference" else 0.0
        high = (rise > limit) & (nats > self.least_nats) & (loss.values > least)
        if not high.any():  # most runs, and the rest costs more
            return Judged(loss, high, level=level), rise
        known = ~early(self.early_rows, len(loss))
        # scatter from row to row, and the slower one that neighbouring rows share
        quick = np.fmax(stats.scatter(past.scaled), np.where(known, self.least_std, self.early_std))
        slow = loss.with_values(rise).past(above=band, warmup=self.past_rows).robust_std
        usual = np.fmax(quick, slow)
        out = high & (rise > self.sigmas * usual)
        if not out.any():
            return Judged(loss, out, level=level), rise
        rises = np.maximum(rise, 0)
        usual = np.fmax(usual, _tails(rises, self.tail, self.tail_stds))
        rare = _tails(rises, self.rare, self.rare_stds)
        out &= rise > self.sigmas * usual
        out &= known | (nats > self.sure_nats) | _neighbours(out)
        return Judged(loss, out, level=level), rise / (self.sigmas * np.fmax(usual, rare))

    def _came_back(self, stretch: Stretch, *, signed: bool = False) -> bool:
        """Back to at most half of the farthest row; the last row may still be a spike."""
        values, level = stretch.signal.values, stretch.onset_level
        if not stretch.recovered:
            return len(stretch) <= (self.pause if signed else 1)
        after = stats.median(values[stretch.end + 1 :][: self.back_rows])
        return abs(after - level) <= self.back * float(np.abs(stretch.values - level).max())

    def _lasting(self, stretch: Stretch) -> Stretch | None:
        """A jump that stayed until rows had passed, and came back in fewer than were before it."""
        loss, start, level = stretch.signal, stretch.start, stretch.onset_level
        if start < self.early_rows or not stretch.recovered:
            return None
        ahead = loss.values[start : 2 * start]
        means = stats.rolling_mean(ahead, self.back_rows)[self.back_rows :]
        half = level + self.back * (stats.median(ahead[: self.back_rows]) - level)
        back = np.flatnonzero(means <= half)
        if not len(back):
            return None
        high = np.flatnonzero(ahead[: int(back[0]) + self.back_rows] > half)
        return stretch_from(loss, start, start + int(high[-1]))

    def _minor(self, stretch: Stretch, *, odd: bool) -> bool:
        """Whether it is an odd batch, or a short jump of the warm-up that passed long ago."""
        if stretch.start >= self.early_rows:
            return odd and stretch.recovered
        since = len(stretch.signal) - 1 - stretch.end
        return len(stretch) <= self.warmup_rows and since >= self.long_ago

    # --- what agrees ------------------------------------------------------------------------------

    def _agrees(self, loss: Signal) -> stats.BoolArray:
        """Where another metric jumps as well, at the row or beside it."""
        jumps = _jumps(loss, "grad_norm", self.gradient_times)
        jumps |= _jumps(loss, "value_loss", self.value_times)
        jumps |= _jumps(loss, "kl_mean", self.kl_times, self.large_kl)
        return jumps | _neighbours(jumps)

    # --- findings ---------------------------------------------------------------------------------

    def _finding(
        self,
        out: Judged,
        stretch: Stretch,
        kind: LossKind,
        variant: str | None = None,
        *,
        minor: bool,
    ) -> Finding:
        loss, level, rows = out.signal, stretch.onset_level, out.bad_rows(stretch)
        top = int(rows[np.argmax(np.abs(loss.values[rows] - level))])
        step, value = int(loss.steps[top]), float(loss.values[top])
        often = "once" if len(rows) == 1 else f"on {len(rows)} rows"
        end = "and came back" if stretch.recovered else "on the last row"
        return finding(
            self,
            stretch,
            f"The {loss.metric.replace('_', ' ')} jumped {often}, to {number(value)} at step "
            f"{step:,} from a level of {number(level)}, {end}{_meaning(level, value, kind)}. "
            f"{kind.told}",
            variant=variant,
            severity=Severity.INFO if minor else Severity.WARNING,
            confidence=0.6 if minor else 0.85,
            evidence=(
                stretch.at_onset(level),
                Evidence(loss.metric, step, value, level, note="farthest from the level"),
                stretch.in_all(len(rows), None, "rows out of the band"),
                *(_beside(loss, metric, top) for metric in BESIDE),
                kind.evidence(loss),
            ),
            remedies=_cures(step, often=len(rows) >= self.cluster),
        )

    def _high(self, stretch: Stretch, kind: LossKind) -> Finding:
        loss, level = stretch.signal, stretch.before(self.level_rows)
        return finding(
            self,
            stretch,
            f"The {loss.metric.replace('_', ' ')} jumped from {number(level)} to a median of "
            f"{number(stretch.usual)} over {len(stretch):,} rows{SINCE}, and came back"
            f"{_meaning(level, stretch.usual, kind)}. {kind.told}",
            evidence=(
                stretch.at_onset(level),
                stretch.at_top(level),
                stretch.in_all(stretch.usual, level, "median since, against before"),
                stretch.in_all(len(stretch), None, "rows up to the last high one"),
                *(stretch.beside(metric).evidence() for metric in BESIDE),
                kind.evidence(loss),
            ),
            remedies=_cures(stretch.first, often=True),
        )

    def _overflowed(self, stretch: Stretch, scale: stats.FloatArray) -> Finding:
        row, step, value = stretch.start, stretch.first, stretch.onset
        before = float(np.abs(stretch.signal.values[:row]).max())
        backed_off = Evidence(
            "loss_scale", step, float(scale[row]), float(scale[row - 1]), note="backed off"
        )
        return finding(
            self,
            stretch,
            f"The loss jumped to {number(value)} at step {step:,}, from at most {number(before)} "
            f"before, while the loss scaler backed off to {number(backed_off.value)}.",
            variant="overflow",
            confidence=0.6,
            evidence=(stretch.at_onset(before, "against the largest before"), backed_off),
            remedies=_cures(step, often=False),
            metrics=("loss", "loss_scale"),
        )


def _tails(rises: stats.FloatArray, share: float, stds: float) -> stats.FloatArray:
    """Standard deviation of the normal distribution that has tails as heavy as those so far."""
    so_far = stats.past_quantile(rises, share) / stds
    return np.where(early(LossSpike.early_rows, len(rises)), np.nan, so_far)


def _neighbours(mask: stats.BoolArray) -> stats.BoolArray:
    """Rows next to one that is True."""
    near = np.zeros(len(mask), dtype=np.bool_)
    near[1:] |= mask[:-1]
    near[:-1] |= mask[1:]
    return near


def _jumps(loss: Signal, metric: str, factor: float, large: float = 0.0) -> stats.BoolArray:
    """Where the size of a metric is so many times its past, and large, or not finite."""
    series = loss.run.series(metric)
    if series is None:
        return np.zeros(len(loss), dtype=np.bool_)
    size = np.abs(loss.beside(metric))
    broken = np.isin(loss.steps, series.steps) & ~np.isfinite(size)
    past = loss.with_values(size).past(
        log=1e-12, above=math.log(factor), warmup=LossSpike.past_rows
    )
    return broken | (past.times(factor) & (size > large))


def _beside(loss: Signal, metric: str, row: int) -> Evidence | None:
    value = float(loss.beside(metric)[row])
    step = int(loss.steps[row])
    return None if math.isnan(value) else Evidence(metric, step, value, note="at the same step")


def _meaning(level: float, value: float, kind: LossKind) -> str:
    if kind.signed:
        return "; the gradient norm, KL or value loss agrees"
    if not kind.tokens:
        return ""
    before, after = number(math.exp(-level)), number(math.exp(-min(value, 700.0)))
    return f": the mean token probability went from {before} to {after}"


def _cures(step: int, *, often: bool) -> tuple[str, ...]:
    batch = f"look at the batch of step {step:,}"
    calm = "clip the gradient norm; lower the learning rate or the second beta of Adam"
    if not often:
        return (batch, calm, "nothing more as long as it does not come again")
    return (
        calm,
        batch,
        f"if it does not calm down: restore the checkpoint before step {step:,} and skip the batch",
    )
