"""DIVERGENCE: the loss rises and stays, while everything is still finite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import (
    SINCE,
    WHOLE,
    Judged,
    LossKind,
    Past,
    Signal,
    Stretch,
    descent_onset,
    early,
    finding,
    halved_since,
    held_out,
    number,
    training_loss,
)


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
        Which kind of loss it is follows from the algorithm, from what is logged beside it and from
        its size, and is told with the finding. A likelihood loss is compared on a log scale with
        its best level: the lowest median of `level_rows` rows of its past. The last `rows` rows
        must all be bad: their mean is above `rise` times that level, `least_nats` higher, outside
        `sigmas` of its scatter, and higher than the rises that the run had come back from; nothing
        is learnt from the rise that the run ends with, however long it lasts. Where that is not so,
        five times as many rows are tried, against the best median of five times as many. Before
        either, a rise of 30 % and a nat is looked for: two rows are enough for it, and in the first
        sixteen rows nothing else counts. The onset is walked back to half of `rise`. The loss of
        pairs must also end above where it began, which is what a model knows that has learnt
        nothing; a loss of an unknown kind must rise by a nat. The uniform guess, the logarithm of
        the vocabulary size, is no ceiling: a confident wrong model is worse.

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
    needs = (("loss",), ("policy_loss",), ("token_accuracy",), ("eval/loss",), ("eval/ppl",))
    stage = "loss"
    caused_by = (
        "ZERO_VARIANCE",
        "GRAD_PATHOLOGY",
        "REWARD_COLLAPSE",
        "REWARD_HACKING",
        "LOSS_SPIKE",
        "GRAD_PATHOLOGY",
        "LOSS_SCALE_COLLAPSE",
        "ADVANTAGE_NOISE",
        "POLICY_MISMATCH",
        "VALUE_DIVERGENCE",
        "KL_BLOWUP",
        "RANK_OUTLIER",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
        "PREFERENCE_COLLAPSE",
    )

    rise: float = knob(1.2, "times the best level", minimum=1.01)
    least_nats: float = knob(0.2, "rise below which nothing is said", unit="nats")
    sigmas: float = knob(6, "robust standard deviations of the past", minimum=2)
    rows: int = knob(5, "bad rows up to the end", unit="rows", minimum=2)
    eval_nats: float = knob(1, "rise of a held-out loss", unit="nats", minimum=0.1)

    parted = fixed(1.3, "times its best: a held-out loss where the training loss has halved")
    level_rows = fixed(16, "rows whose median is a level that was reached")
    wider = fixed(5, "times as many rows, where the scatter hides a rise from fewer")
    usual_sigmas = fixed(4, "robust standard deviations: a rise within them is one of the usual")
    least_std = fixed(0.02, "of the loss or its logarithm: none is steadier")
    sure_rise = fixed(1.3, "times the best level: a rise that needs two rows only")
    sure_nats = fixed(1.0, "nats that such a rise must have as well")
    sure_std = fixed(0.04, "of the logarithm: few rows do not show that a loss is steadier")
    early_rows = fixed(16, "rows of the past below which its scatter is not known")
    signed_rows = fixed(8, "rows of the past that a signed loss needs")
    gradient_times = fixed(3.0, "times its past: a gradient norm that agrees with a signed loss")
    value_times = fixed(2.0, "times its past: a value loss that agrees")
    kl_times = fixed(5.0, "times its past: a KL that agrees, if it is large")
    large_kl = fixed(1.0, "nats from which a KL is large")
    step_rows = fixed(24, "rows before and after an onset in which a step is looked for")
    step_past = fixed(8, "rows that must lie before a step")
    step_share = fixed(0.75, "part of a rise, in one row and for good, that makes it a step")
    end_rows = fixed(20, "rows, at most, whose median tells where a loss has got to")
    lost_share = fixed(0.2, "part of its best that a token accuracy has lost")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """The rise that the run ends with, in evaluations and in training."""
        evaluations = held_out(run)
        yield from self._evaluation(evaluations)
        loss = training_loss(run)
        risen = [] if loss is None else list(self._training(loss))
        yield from risen or self._accuracy(run, loss)
        if loss is None and not evaluations and "token_accuracy" not in run.names():
            raise Inconclusive("no training loss, and fewer than two evaluations")

    def _training(self, loss: Signal) -> Iterator[Finding]:
        loss.require(3)
        kind = LossKind.of(loss)
        yield from self._signed(loss, kind) if kind.signed else self._unsigned(loss, kind)

    @rule("evaluation")
    def _evaluation(self, evaluations: list[Signal]) -> Iterator[Finding]:
        """A held-out likelihood loss, or the logarithm of a perplexity, ends `eval_nats` above its
        own best, for which two evaluations are enough; or some of them end `parted` times as high
        while the training loss has halved since: it is learnt by heart. A warning.
        """
        for loss in evaluations:
            best = np.minimum.accumulate(loss.values)
            stretch = _at_end(Judged(loss, loss.values - best >= self.eval_nats), rows=1)
            stretch = stretch or self._learnt_by_heart(loss)
            if stretch is not None:
                yield self._evaluated(loss, stretch)
                return

    def _learnt_by_heart(self, loss: Signal) -> Stretch | None:
        best = float(loss.values.min())
        high = max(self.parted * best, best + self.least_nats)
        if len(loss) < 2 * self.rows or loss.values[-self.rows :].min() < high:
            return None
        return halved_since(loss, before=self.level_rows, after=self.rows)

    @rule(None)
    def _unsigned(self, loss: Signal, kind: LossKind) -> Iterator[Finding]:
        """The loss ends above its best level: by much on two rows, or by `rise` on more."""
        for best, bad, rows in self._attempts(loss):
            high = bad & (loss.values > kind.least(loss, best.level))
            departed = best.rise > math.log(self.rise) / 2
            stretch = _at_end(Judged(loss, high, departed, best.level), rows)
            if stretch is not None:
                yield self._finding(self._from_step(stretch, best.scaled), kind)
                return

    @rule("accuracy")
    def _accuracy(self, run: RunContext, loss: Signal | None) -> Iterator[Finding]:
        """Where the loss shows nothing, the last `rows` rows of the token accuracy have all lost
        more than a fifth of the best median of sixteen rows, and `sigmas` of its scatter, while the
        loss rose or is not known. A warning.
        """
        accuracy = Signal.logged(run, "token_accuracy", above=0)
        if accuracy is None or len(accuracy) < 2 * self.signed_rows:
            return
        least = (1 - self.lost_share) * accuracy.values.max()
        if accuracy.values[-self.rows :].max() >= least:  # most runs: it is near its best
            return
        best = accuracy.best_level(self.level_rows, warmup=self.signed_rows)
        lost = best.level - accuracy.values
        bad = best.lost(self.lost_share) & (lost > self.sigmas * stats.noise(accuracy.values))
        stretch = _at_end(Judged(accuracy, bad, level=best.level), self.rows)
        rose = stretch is not None and (loss is None or stretch.beside(loss.metric).rose())
        if stretch is not None and rose:
            yield self._forgot(stretch)

    @rule("signed")
    def _signed(self, loss: Signal, kind: LossKind) -> Iterator[Finding]:
        """The loss of a policy gradient is signed and has no ratio: its last `rows` rows must be
        outside `sigmas` of its own scatter, while the median of the gradient norm, the value loss
        or the KL is some times what it was before. Critical.
        """
        if len(loss) < 2 * self.signed_rows:
            return
        band = max(self.sigmas * stats.noise(loss.values), self.least_std)
        past = loss.past(above=band, below=band, warmup=self.signed_rows)
        bad = past.above(sigmas=self.sigmas, floor=self.least_std)
        stretch = _at_end(Judged(loss, bad, level=past.level), self.rows)
        if stretch is not None and self._agreed(stretch):
            yield self._finding(stretch, kind, "signed")

    # --- a likelihood loss ------------------------------------------------------------------------

    def _attempts(self, loss: Signal) -> Iterator[tuple[Past, stats.BoolArray, int]]:
        """The best level, the bad rows, and how many the run must end with; short rises first."""
        best = self._best(loss, self.level_rows)
        if self._ends_high(best):
            yield best, self._sure(loss, best), 2
            yield best, self._lasting(loss, best, self.rows, self.early_rows), self.rows
            best, rows = self._best(loss, self.wider * self.level_rows), self.wider * self.rows
            yield best, self._lasting(loss, best, rows, 3 * rows), rows

    def _best(self, loss: Signal, rows: int) -> Past:
        """The lowest median of so many rows that the loss had reached before each row."""
        band = self._band(stats.logs(loss.values, 1e-6))
        past = loss.past(log=1e-6, above=band, warmup=1, window=rows)
        return dataclasses.replace(past, center=np.fmin.accumulate(past.center))

    def _band(self, values: stats.FloatArray) -> float:
        """How far above the level a logarithm is still learnt from."""
        return max(2 * math.log(self.rise), 4 * stats.noise(values))

    def _ends_high(self, best: Past) -> bool:
        """Whether it is worth a closer look: most runs end near their best."""
        ends = [best.scaled[-rows:].mean() for rows in (1, self.rows, self.wider * self.rows)]
        return bool(max(ends) - best.center[-1] > math.log(self.rise))

    def _sure(self, loss: Signal, best: Past) -> stats.BoolArray:
        """Rows of a rise so large that two of them are enough."""
        large = best.times(self.sure_rise) & (loss.values - best.level > self.sure_nats)
        return large & self._unusual(loss, best, best.rise, self.sure_std, 1)

    def _lasting(self, loss: Signal, best: Past, rows: int, unknown: int) -> stats.BoolArray:
        """Rows up to which the mean is too high; a mean scatters less than a row."""
        up = stats.rolling_mean(best.scaled, rows) - best.center
        nats = stats.rolling_mean(loss.values, rows) - best.level
        large = (up > math.log(self.rise)) & (nats > self.least_nats)
        large &= ~early(unknown, len(loss))
        return large & self._unusual(loss, best, up, self.least_std, rows)

    def _unusual(
        self, loss: Signal, best: Past, up: stats.FloatArray, least: float, rows: int
    ) -> stats.BoolArray:
        """Where a rise is more than scatter, and more than those that the run came back from.

        The rise that the run ends with is no part of what it is measured by.
        """
        std = np.fmax(stats.scatter(best.scaled), least)
        since = self._risen_since(best, rows)
        ending = np.arange(len(loss)) >= since
        if since >= self.early_rows:
            std[since:] = std[since]
        else:
            ending[:] = False  # too little is known before it to leave it out
        before = loss.with_values(up).past(
            above=self._band(up), warmup=self.early_rows, window=WHOLE, without=ending
        )
        result: stats.BoolArray = up > self.sigmas * std / math.sqrt(rows)
        return result & ~before.within(self.usual_sigmas)

    def _risen_since(self, best: Past, rows: int) -> int:
        """First row after which means of so many rows stay above half of `rise`, to the end."""
        up = stats.rolling_mean(best.scaled, rows) - best.center
        low = np.flatnonzero(~(up > math.log(self.rise) / 2))
        since = int(low[-1]) + 2 - rows if len(low) else 0
        return min(max(0, since), len(up) - 1)

    def _from_step(self, stretch: Stretch, scaled: stats.FloatArray) -> Stretch:
        """The same from the row of the step, where the rise is one; else from where it began."""
        reach = self.step_rows
        first, last = max(0, stretch.start - reach), min(stretch.sure + reach, stretch.end) + 1
        step = first + (stats.change_point(scaled[first:last]) or 0)
        if step < first + self.step_past:
            return stretch
        before, later = stats.median(scaled[first:step]), stats.median(scaled[step:last])
        at_once = stats.median(scaled[step:][:3])
        sharp = at_once - before > self.step_share * (later - before) > 0
        began = descent_onset(-scaled, min(stretch.sure + self.step_past, stretch.end))
        return stretch.starting(step if sharp else min(began, stretch.start))

    # --- a signed loss ----------------------------------------------------------------------------

    def _agreed(self, stretch: Stretch) -> bool:
        """Whether another metric left its level with the loss."""
        gradient, value, kl = (
            stretch.beside(metric, rows=None, unsigned=True)
            for metric in ("grad_norm", "value_loss", "kl_mean")
        )
        return (
            gradient.times > self.gradient_times
            or value.times > self.value_times
            or (kl.times > self.kl_times and kl.during > self.large_kl)
        )

    # --- findings ---------------------------------------------------------------------------------

    def _finding(self, stretch: Stretch, kind: LossKind, variant: str | None = None) -> Finding:
        level, end = stretch.onset_level, stretch.values[-self.end_rows :]
        moves = abs(stats.median(end) - stretch.usual) > stats.noise(stretch.values)
        now = stats.median(end) if moves else stretch.usual
        of_end = f"median of the last {len(end)} rows"
        of_all = "median since, against the level it left"
        return finding(
            self,
            stretch,
            f"The {stretch.signal.metric.replace('_', ' ')} rose from {number(level)} to "
            f"{number(now)}{f' ({of_end})' if moves else ''}{SINCE} and stays there"
            f"{_meaning(level, now, kind)}. {kind.told}",
            variant=variant,
            confidence=0.9 if len(stretch) >= 8 else 0.75,
            evidence=(
                stretch.at_onset(level),
                stretch.at_top(level),
                stretch.in_all(now, level, of_end if moves else of_all),
                *(stretch.since(metric, rows=None, unsigned=True).evidence() for metric in BESIDE),
                *(stretch.since(metric).evidence() for metric in ACCURACIES),
                kind.evidence(stretch.signal),
            ),
            remedies=_cures(stretch),
        )

    def _forgot(self, stretch: Stretch) -> Finding:
        level = stretch.onset_level
        return finding(
            self,
            stretch,
            f"The token accuracy fell from {number(level)} to {number(stretch.usual)}{SINCE} and "
            "stays there.",
            variant="accuracy",
            severity=Severity.WARNING,
            evidence=(
                stretch.at_onset(level),
                stretch.in_all(stretch.usual, level, "median since, against its best"),
                stretch.beside("loss").evidence(),
            ),
            remedies=_cures(stretch),
        )

    def _evaluated(self, loss: Signal, stretch: Stretch) -> Finding:
        best = float(loss.values[loss.steps < stretch.first].min())
        now, last = float(loss.values[-1]), int(loss.steps[-1])
        fell = None
        if stretch.signal is not loss:
            before = stretch.before(self.level_rows)
            after = stats.median(stretch.values[-self.rows :])
            fell = stretch.in_all(after, before, "median of the last rows, against before")
        beside = f"; the training loss fell to {number(fell.value)}" if fell else ""
        what, unit = "loss", " nats"
        if loss.metric == "eval/ppl":  # said as it was logged
            what, unit, best, now = "perplexity", "", math.exp(best), math.exp(now)
        return finding(
            self,
            stretch,
            f"The held-out {what} rose from {number(best)} to {number(now)}{unit} by step "
            f"{last:,}{beside}.",
            variant="evaluation",
            severity=Severity.WARNING,
            confidence=0.7,
            evidence=(
                Evidence(loss.metric, last, now, best, note="last, against its best"),
                fell,
            ),
            remedies=(
                f"restore the checkpoint of the best evaluation, before step {stretch.first:,}",
                "compare data and preprocessing of training and evaluation, and what a restart "
                "changed",
                "lower the learning rate; if the training loss still falls, stop earlier",
            ),
        )


BESIDE = ("grad_norm", "kl_mean", "value_loss", "loss_scale")
ACCURACIES = ("token_accuracy", "preference_accuracy", "preference_margin")


def _at_end(judged: Judged, rows: int) -> Stretch | None:
    """The bad rows that the run ends with, if the last ones all are; single good rows before."""
    return judged.runs(gap=1, slack=1)[-1] if judged.bad[-rows:].all() else None


def _meaning(level: float, now: float, kind: LossKind) -> str:
    if kind.signed:
        return "; other metrics left their level with it"
    if not kind.tokens:
        return ""
    before, after = number(math.exp(-level)), number(math.exp(-min(now, 700.0)))
    return f": the typical probability of the right token went from {before} to {after}"


def _cures(stretch: Stretch) -> tuple[str, ...]:
    scale = stretch.signal.run.series("loss_scale")
    fp16 = scale is not None and bool((scale.values > 1).any())
    return (
        f"restore the last checkpoint before step {stretch.first:,}",
        "lower the learning rate, clip the gradient norm, and skip the batches around the onset",
        "train in bf16: the loss scale fell with it" if fp16 else "check the data that began there",
    )
