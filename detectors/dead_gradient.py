"""DEAD_GRADIENT: the weights do not move although there is something to learn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, flat_shares, number, stretch_from
from rlprobe.values import FloatArray

_MOVED = ("kl_mean", "approx_kl", "clip_fraction")  # by a policy that learns
_REWARDED = ("reward_", "zero_variance_group", "group_", "advantage")
_PRINTED = ("lr", "grad_norm", "loss", "policy_loss", "kl_mean")


class DeadGradient(Detector):
    """The weights do not move although there is something to learn.

    What it detects
        A gradient norm of exactly 0 while a good part of the groups has different rewards, so
        that there are advantages to learn from; one that dwindles to almost nothing; a loss and a
        gradient that are exactly 0 from the first row on; a learning rate of exactly 0; updates
        that are skipped one after the other; weights whose norm stays the same.

    Why it matters
        A frozen adapter, an optimizer without parameters, a broken backward pass of a library
        version, labels that are all masked, a NaN that the trainer prints as 0: the run goes on,
        learns nothing, and ends with "success".

    How it is computed
        A row counts if the norm is exactly 0 and at most `flat_share` of its groups have equal
        rewards (or their spread is more than rounding). At least `rows` of them in a row, with
        rows of only flat groups and one other row between them, are a finding; it is critical if
        there are more than `few` or it does not pass. If the log holds only every n-th step, the
        norm is that of one step and the share of flat groups a mean over all: there the odds that
        all these steps had only flat groups must be below `chance`. A norm of 0 on every row of the
        run is probably not measured, unless loss, KL, update KL and clip fraction, as far as they
        are logged, stand at 0 too: such a state is judged on one row, as a warning, and as info
        where only one of them is logged. Norms in thousandths with a median below `small` say
        nothing.

    What to do
        Compare the weights of two checkpoints. Count the trainable parameters that the optimizer
        holds. Look whether any label is left after masking. Try another version of the training
        library or another parallel layout.

    When it is wrong
        Console logs print 0.000 for a small gradient or learning rate. Some frameworks log 0 when
        they have no norm. Flat groups have a gradient of zero by right: that is ZERO_VARIANCE.

    References
        ms-swift and DeepSpeed issues on a gradient of 0 on several nodes (2025) and on a loss and a
        gradient of 0 from the first step of fine-tuning. TRL issue on an adapter that stayed
        byte-identical. OpenRLHF `deepspeed.py`, which returns 0 for none.
    """

    id = "DEAD_GRADIENT"
    severity = Severity.CRITICAL
    needs = (
        ("grad_norm", "zero_variance_group_fraction"),
        ("grad_norm", "reward_group_std_mean"),
        ("grad_norm", "reward_std"),
        ("loss",),
        ("lr",),
        ("update_skipped",),
        ("param_norm",),
    )
    stage = "gradient"
    caused_by = ()  # weights that do not move are a root by nature

    flat_share: float = knob(0.8, "share of flat groups that leaves something to learn", maximum=1)
    rows: int = knob(2, "rows with a gradient of 0", unit="rows", minimum=1)

    few = fixed(2, "rows that are only a warning where they pass")
    small = fixed(0.02, "median norm that three decimals do not resolve")
    chance = fixed(1e-6, "odds that no longer explain zeros in a log of every n-th step")
    least_share = fixed(1e-3, "chance of flat groups that any step is granted there")
    lasting = fixed(8, "rows from which on a state is no passing one")
    vanished = fixed(0.01, "part of the run's own level that is almost nothing")
    long = fixed(32, "rows of almost nothing")
    resolved = fixed(1e-4, "unit of a log that prints small numbers as 0")
    over = fixed(0.05, "part of the highest learning rate from which a schedule runs out")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Each rule in turn; without enough norms, nothing else was judged."""
        yield from super().scan(run)
        norm = run.series("grad_norm")
        if norm is None or len(norm) < self.lasting:
            known = 0 if norm is None else len(norm)
            if next(flat_shares(run), None) is None or norm is None:
                raise Inconclusive(f"grad_norm: {known} points, needs {self.lasting}")

    @rule(None)
    def _dead(self, run: RunContext) -> Iterator[Finding]:
        """A state: the gradient norm is exactly 0 while rewards differ inside the groups."""
        norm = Signal.logged(run, "grad_norm")
        if norm is None or not (norm.values == 0).any() or self._rounded(norm):
            return
        zero, unmoved = norm.values == 0, _unmoved(stretch_from(norm, 0), ("loss", *_MOVED))
        best = next(flat_shares(run), None)
        if best is None or (zero.all() and not unmoved):
            return
        source, shares = best
        flat = source.with_values(shares).at(norm.steps)
        telling = zero & (flat <= self.flat_share)
        least = 1 if zero.all() else self.rows
        for stretch in Judged(norm, zero & np.isfinite(flat)).runs(gap=1):
            rows = np.flatnonzero(telling[stretch.rows]) + stretch.start
            if len(rows) >= least and self._beyond_chance(run, flat[rows]):
                dead = stretch.starting(int(rows[0]))
                share = float(np.nanmean(flat[dead.rows]))
                yield self._finding(dead, len(rows), source, share, witnesses=unmoved)

    @rule("zero_loss")
    def _zero_loss(self, run: RunContext) -> Iterator[Finding]:
        """A state: loss and gradient norm are both exactly 0 from the first row on where no reward
        is logged: no label is left, or a NaN is printed as 0. A warning, info if it passes within
        `few` rows or no norm is logged; critical if it lasts for `lasting` rows to the end.
        """
        loss = Signal.logged(run, "loss")
        if loss is None or any(map(run.names, _REWARDED)):
            return
        gradient = run.series("grad_norm")
        dead = (loss.values == 0) & ((loss.beside("grad_norm") == 0) | (gradient is None))
        for stretch in Judged(loss, dead).runs(gap=1)[:1]:
            if stretch.start == 0 and (gradient is not None or len(stretch) > self.few):
                yield self._nothing(stretch, measured=gradient is not None)

    @rule("vanishing")
    def _vanishing(self, run: RunContext) -> Iterator[Finding]:
        """A change: the norm falls to `vanished` of the median of the run's first half, and for
        `long` rows stays there, while at most `flat_share` of the groups are flat and the spread of
        the rewards has not gone the same way. A warning.
        """
        norm = Signal.logged(run, "grad_norm", above=0)
        best = next(flat_shares(run), None)
        if norm is None or best is None or len(norm) < 2 * self.long or self._rounded(norm):
            return
        level = stats.median(norm.values[: len(norm) // 2])
        begin = max(level, stats.median(norm.values[: self.long]))
        flat = best[0].with_values(best[1]).at(norm.steps)
        gone = (norm.values <= self.vanished * level) & ~(flat > self.flat_share)
        left = norm.values <= begin / 3
        for stretch in Judged(norm, gone, left).persistent(self.long, slack=self.few):
            if stretch.beside("reward_std").fell(10 * self.vanished):
                continue
            yield self._dwindled(stretch, begin, best[0])

    @rule("lr")
    def _no_lr(self, run: RunContext) -> Iterator[Finding]:
        """A state: the learning rate is exactly 0, in a log that prints small numbers. Info; a
        warning where it stays so for `lasting` rows to the end, but for the tail of a schedule that
        ran down to below `over` of its highest.
        """
        lr = Signal.logged(run, "lr")
        if lr is None or not (lr.values == 0).any() or not self._resolves(run):
            return
        for stretch in Judged(lr, lr.values == 0).runs():
            ramp = stretch.start == 0 and stretch.recovered
            if not ramp and (len(stretch) >= self.lasting or len(stretch) == len(lr)):
                yield self._stands(stretch)

    @rule("skipped")
    def _skipped(self, run: RunContext) -> Iterator[Finding]:
        """A state: the update is skipped on `lasting` rows in a row without a loss scaler and with
        gradients that are finite, or on each row of a shorter log. A warning; critical if it lasts
        to the end.
        """
        skips = Signal.logged(run, "update_skipped")
        if skips is None or run.series("loss_scale") is not None:
            return
        norm = run.series("grad_norm")
        most = run.interval if (skips.values > 1).any() else 1  # a count of all steps, or a flag
        lost = skips.values >= most
        if norm is not None:
            lost &= ~np.isin(skips.steps, norm.steps[~np.isfinite(norm.values)])
        for stretch in Judged(skips, lost).runs():
            whole = len(stretch) == len(skips) and len(stretch) >= self.rows
            if len(stretch) >= self.lasting or whole:
                yield self._refused(stretch)

    @rule("frozen")
    def _frozen(self, run: RunContext) -> Iterator[Finding]:
        """A state: the norm of the weights is the same to the last digit on `long` rows or more.
        Info; a warning where KL or clip fraction are logged and stand at 0 too.
        """
        weights = Signal.logged(run, "param_norm", above=0)
        if weights is None or len(weights) <= self.long:
            return
        units = weights.values / self.resolved
        same = np.diff(weights.values, prepend=math.nan) == 0
        same &= np.abs(units - np.round(units)) > 1e-3  # more digits than a console prints
        for stretch in Judged(weights, same).runs(least=self.long):
            yield self._unchanged(stretch.starting(stretch.start - 1))

    def _rounded(self, norm: Signal) -> bool:
        """Whether the log has three decimals only, and the norms are hardly larger than that."""
        alive = norm.values[norm.values > 0] * 1000
        exact = np.isclose(alive, np.round(alive), rtol=0, atol=1e-6).all()
        return bool(exact) and stats.median(alive) < 1000 * self.small

    def _resolves(self, run: RunContext) -> bool:
        """Whether a small learning rate would not have been printed as 0."""
        for name in _PRINTED:
            signal = Signal.logged(run, name)
            if signal is not None and len(signal):
                units = signal.values[:: max(1, len(signal) // 1000)] / self.resolved
                if (np.abs(units - np.round(units)) > 1e-3).any():
                    return True
        return False

    def _beyond_chance(self, run: RunContext, flat: FloatArray) -> bool:
        odds = np.log(np.maximum(flat, self.least_share)).sum()
        return run.interval == 1 or bool(odds < math.log(self.chance))

    def _finding(
        self, stretch: Stretch, count: int, source: Signal, share: float, *, witnesses: int
    ) -> Finding:
        lasting, whole = count > self.few, len(stretch) == len(stretch.signal)
        passing = (stretch.recovered and not lasting) or count < self.rows
        severity = Severity.WARNING if passing else Severity.CRITICAL
        if whole and witnesses < 2:  # perhaps nobody measures the norm
            severity = Severity.WARNING if count >= self.lasting else Severity.INFO
        return finding(
            self,
            stretch,
            f"The gradient norm is exactly 0 on {count:,} {_rows(count)}{SINCE}, although "
            f"{1 - share:.0%} of the groups have different rewards: the weights do not move.",
            severity=severity,
            confidence=0.85 if lasting else 0.7,
            evidence=(
                stretch.at_onset(None, "exactly 0"),
                stretch.in_all(count, None, "rows at 0 with something to learn"),
                Evidence(
                    source.metric,
                    stretch.first,
                    float(source.at(stretch.signal.steps[[stretch.start]])[0]),
                    note="rewards differ at the same step",
                ),
                Evidence(
                    source.metric, None, 1 - share, note="mean share of groups whose rewards differ"
                ),
            ),
            remedies=(
                "compare the weights of two checkpoints: are they the same?",
                "count the trainable parameters that the optimizer holds; is the adapter frozen?",
                "try another version of the training library, or fewer nodes",
            ),
        )

    def _nothing(self, stretch: Stretch, *, measured: bool) -> Finding:
        count, rising = len(stretch), stretch.beside("lr").during > 0
        grave = count >= self.lasting and not stretch.recovered
        severity = Severity.CRITICAL if grave else Severity.WARNING
        if not measured or (stretch.recovered and count <= self.few):
            severity = Severity.WARNING if grave else Severity.INFO
        what = "Loss and gradient norm are" if measured else "The loss is"
        learning = ", while the learning rate is above 0" if rising else ""
        return finding(
            self,
            stretch,
            f"{what} exactly 0 on {count:,} {_rows(count)}{SINCE}{learning}: "
            "no label is left after masking, or the trainer prints 0 for a NaN"
            + ("." if measured else " (a loss of GRPO may be 0 by right)."),
            variant="zero_loss",
            severity=severity,
            confidence=0.85 if count > self.few else 0.7,
            evidence=(
                stretch.at_onset(None, "exactly 0"),
                Evidence("grad_norm", stretch.first, 0.0, note="exactly 0") if measured else None,
                stretch.in_all(count, None, "rows at 0"),
                Evidence("lr", None, stretch.beside("lr").during, note="median")
                if rising
                else None,
            ),
            remedies=(
                "count the labels of a batch that are not masked: chat template, response template "
                "and truncation may leave none",
                "set logging_nan_inf_filter=False so that NaN is logged as NaN",
                "train in bf16 or fp32 for a few steps: does the loss appear?",
            ),
            metrics=("loss", "grad_norm") if measured else ("loss",),
        )

    def _dwindled(self, stretch: Stretch, begin: float, source: Signal) -> Finding:
        during = stretch.of(stretch.signal)
        usual = stats.median(during.values[-self.long :])
        return finding(
            self,
            stretch,
            f"The gradient norm dwindled from {number(begin)} to {number(usual)} (median of the "
            f"last {self.long} rows){SINCE}, although the rewards still differ: hardly any weight "
            "moves.",
            variant="vanishing",
            severity=Severity.WARNING,
            confidence=0.7,
            evidence=(
                stretch.at_onset(begin),
                stretch.in_all(usual, begin, f"median of the last {self.long} rows"),
                stretch.beside(source.metric).evidence(),
            ),
            remedies=(
                "look at what the advantages are multiplied by: loss scale, mask, clipping",
                "see whether the ratio is clipped on nearly every token",
                "compare the weights of two checkpoints: are they the same?",
            ),
        )

    def _stands(self, stretch: Stretch) -> Finding:
        lr, count = stretch.signal, len(stretch)
        highest, before = float(lr.values.max()), float(lr.values[max(0, stretch.start - 1)])
        ran_out = stretch.start > 0 and before <= self.over * highest
        grave = count >= self.lasting and not stretch.recovered and not ran_out
        return finding(
            self,
            stretch,
            f"The learning rate is exactly 0 on {count:,} {_rows(count)}{SINCE}"
            + (f" (highest: {number(highest)})" if highest > 0 else "")
            + ": no update moves a weight.",
            variant="lr",
            severity=Severity.WARNING if grave else Severity.INFO,
            confidence=0.8,
            evidence=(
                stretch.at_onset(before if stretch.start else None, "exactly 0"),
                stretch.in_all(count, None, "rows at 0"),
                stretch.in_all(highest, None, "highest of the run") if highest > 0 else None,
            ),
            remedies=(
                "see that the scheduler was told the number of steps that are really made",
                "check that the scheduler was restored with its own step, and warm-up is not 0/0",
                "stop the run: it costs time and changes nothing",
            ),
        )

    def _refused(self, stretch: Stretch) -> Finding:
        count = len(stretch)
        return finding(
            self,
            stretch,
            f"The update is skipped on {count:,} {_rows(count)}{SINCE}, one after the other: the "
            "weights do not move.",
            variant="skipped",
            severity=Severity.WARNING
            if stretch.recovered or count < self.lasting
            else Severity.CRITICAL,
            confidence=0.9,
            evidence=(stretch.at_onset(None), stretch.in_all(count, None, "rows skipped")),
            remedies=(
                "find the guard that skips: its limit on the gradient norm or the ratio may be "
                "below what is usual by now",
                "look at the first batch that was skipped",
                f"restore the last checkpoint before step {stretch.first:,} and lower the learning "
                "rate if the gradients grew",
            ),
        )

    def _unchanged(self, stretch: Stretch) -> Finding:
        count = len(stretch)
        return finding(
            self,
            stretch,
            f"The norm of the weights is {stretch.onset!r} to the last digit on {count:,} rows"
            f"{SINCE}: the updates do not reach the weights, or are below their precision.",
            variant="frozen",
            severity=Severity.WARNING if _unmoved(stretch, _MOVED) else Severity.INFO,
            confidence=0.7,
            evidence=(stretch.at_onset(None), stretch.in_all(count, None, "rows")),
            remedies=(
                "compare the weights of two checkpoints: are they the same?",
                "keep master weights in fp32: a small learning rate is lost in bf16",
                "count the trainable parameters that the optimizer holds; is the adapter frozen?",
            ),
        )


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def _unmoved(rows: Stretch, names: Sequence[str]) -> int:
    """How many of the metrics that a moving policy changes are logged, if all stand at 0."""
    signal = rows.signal
    logged = [signal.beside(name)[rows.rows] for name in names if signal.run.series(name)]
    return len(logged) * all((np.nan_to_num(values) == 0).all() for values in logged)
