"""PREFERENCE_COLLAPSE: a model that learns from pairs prefers the rejected answers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Inconclusive, RunContext, fixed, knob, rule
from rlprobe.findings import Finding, Severity
from rlprobe.rule import SINCE, Judged, Signal, Stretch, finding, number, restore, stretch_from

AGAINST = "mean of the last rows, against the first"


class PreferenceCollapse(Detector):
    """A model that learns from pairs comes to prefer the rejected answers, or to prefer none.

    What it detects
        A preference accuracy far below one half for long, an accuracy that has lost most of what
        it had above one half, or margins below zero that go on falling. Also, as info, that the
        chosen answers have become less likely together with the rejected ones.

    Why it matters
        An accuracy of one half is that of a coin. Far below it, the model has learnt the opposite
        of what it was shown: chosen and rejected are swapped, or a sign is wrong. Training on makes
        that worse.

    How it is computed
        On means of `rows` rows, because a batch holds few pairs: their standard error is that of
        the scatter from row to row. Rows at which the margin is nearly 0 do not count: before
        anything is learnt both answers have the same implicit reward, and frameworks count that as
        wrong. The onset is the row at which the level changed.

    What to do
        Compare which column is read as chosen, before and after the onset, and the order in which
        the collator concatenates the two. Look for a change of the data there. Check the sign of
        beta and that the reference model is the one that training began from.

    When it is wrong
        Pairs whose labels are mostly noise keep the accuracy near one half: that is not reported.
        A set of deliberately reversed or adversarial pairs in a curriculum looks the same. That
        both answers become less likely is common, also in runs that end well. A model that prefers
        the longer answer is not seen: trainers log no lengths of the two.

    References
        Rafailov et al., Direct preference optimization (2023). TRL, `dpo_trainer.py`:
        `rewards/accuracies`, `rewards/margins`, `logps/chosen`. Razin et al., Unintentional
        unalignment: likelihood displacement in direct preference optimization (2024). Pal et al.,
        Smaug: fixing failure modes of preference optimisation with DPO-positive (2024).
    """

    id = "PREFERENCE_COLLAPSE"
    severity = Severity.CRITICAL
    needs = (
        ("preference_accuracy",),
        ("preference_margin",),
        ("chosen_logprob", "rejected_logprob"),
    )
    caused_by = (
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "LOSS_SCALE_COLLAPSE",
        "RESTART_DISCONTINUITY",
        "DATA_REPLAY",
    )

    rows: int = knob(16, "rows whose mean is judged", unit="rows", minimum=4)
    sigmas: float = knob(4, "standard errors that a mean must be off", minimum=2)
    reversed_below: float = knob(0.35, "accuracy of a model that prefers the rejected answers")

    coin = fixed(0.5, "accuracy of a model that knows nothing")
    lost_share = fixed(0.5, "part of what it had above a coin that an accuracy has lost")
    learnt = fixed(0.65, "accuracy that shows that something had been learnt")
    least_margin = fixed(0.05, "size of a margin from which answers differ")
    wide_margin = fixed(0.2, "a mean margin below minus this is one of the wrong sign")
    fallen = fixed(0.2, "part of its log-probability at the start that a chosen answer has lost")
    reach = fixed(32, "rows before a low mean in which the change is looked for")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """What the accuracy tells, or else the margin; and whether both answers fell."""
        yield from self._both_fell(run)
        if run.series("preference_accuracy") is None and run.series("preference_margin") is None:
            return
        accuracy = self._measured(run, "preference_accuracy")
        if accuracy is not None:
            accuracy.require(self.rows)
            found = list(self._reversed(accuracy))
            yield from found or self._lost(accuracy)
            return
        margin = self._measured(run, "preference_margin")
        if margin is None:
            raise Inconclusive("no accuracy or margin that was measured by the run as a whole")
        margin.require(2 * self.rows)
        yield from self._negative(margin)

    @rule("reversed")
    def _reversed(self, accuracy: Signal) -> Iterator[Finding]:
        """The mean accuracy of `rows` rows is below `reversed_below`, and below one half by
        `sigmas` standard errors. Critical if it goes on, else a warning.
        """
        mean = stats.rolling_mean(accuracy.values, self.rows)
        limit = min(self.reversed_below, self.coin - self._error(accuracy))
        for stretch in Judged(accuracy, self._known(mean < limit)).runs(gap=self.rows):
            wrong = np.flatnonzero(accuracy.values[: stretch.end + 1] < self.coin)
            last = int(wrong[-1]) if stretch.recovered else stretch.end
            knew = self._known(mean > self.coin)[: stretch.start].any()
            start = self._from_change(stretch).start if knew else 0
            yield self._opposite(stretch_from(accuracy, start, last))

    @rule("lost")
    def _lost(self, accuracy: Signal) -> Iterator[Finding]:
        """The mean accuracy of the last `rows` rows has lost half of what its best had above one
        half, if that was above 0.65, by `sigmas` standard errors of both. A warning.
        """
        mean = stats.rolling_mean(accuracy.values, self.rows)
        best = stats.rolling_max(np.where(self._known(mean >= 0), mean, np.nan))
        low = mean < best - self.lost_share * (best - self.coin)
        low &= (best > self.learnt) & (best - mean > math.sqrt(2) * self._error(accuracy))
        stretches = Judged(accuracy, low, level=best).runs(gap=self.rows // 2)
        if stretches and not stretches[-1].recovered and len(stretches[-1]) >= self.rows // 2:
            yield self._forgot(self._from_change(stretches[-1]), float(best[-1]))

    @rule("margin")
    def _negative(self, margin: Signal) -> Iterator[Finding]:
        """Where no accuracy is logged: the mean margin of the last `rows` rows is below -0.2 and
        below 0 by `sigmas` standard errors, and lower than that of the `rows` rows before, or than
        it ever was above 0. Critical.
        """
        mean = stats.rolling_mean(margin.values, self.rows)
        error = self._error(margin)
        low = self._known(mean < min(-self.wide_margin, -error))
        stretches = Judged(margin, low).runs(gap=self.rows // 2)
        if not stretches or stretches[-1].recovered:
            return
        sinks = mean[-1] < mean[-1 - self.rows] or float(np.nanmax(mean)) > self.wide_margin
        if sinks:
            yield self._opposite(self._from_change(stretches[-1]), "margin")

    @rule("displaced")
    def _both_fell(self, run: RunContext) -> Iterator[Finding]:
        """The mean log-probability of the chosen answers in the last `rows` rows is below that of
        the first by `fallen` of it and by `sigmas` standard errors of both, and that of the
        rejected answers fell further: likelihood displacement. Info.
        """
        chosen = Signal.logged(run, "chosen_logprob")
        if chosen is None or len(chosen) < 2 * self.rows:
            return
        rejected = stats.finite(chosen.beside("rejected_logprob"))
        if not np.isfinite([*rejected[: self.rows], *rejected[-self.rows :]]).all():
            return
        was, now = _ends(chosen.values, self.rows)
        lost = was - now
        other_was, other_now = _ends(rejected, self.rows)
        error = math.sqrt(2) * self._error(chosen)
        if lost > max(self.fallen * abs(was), error) and other_was - other_now > lost:
            mean = stats.rolling_mean(chosen.values, self.rows)
            below = np.flatnonzero(mean < was - max(self.fallen * abs(was), error))
            stretch = stretch_from(chosen, int(below[0]))
            yield finding(
                self,
                stretch,
                f"The chosen answers became less likely{SINCE}, their log-probability went from "
                f"{number(was)} to {number(now)}, that of the rejected ones from "
                f"{number(other_was)} to {number(other_now)}: the margin grows while both fall.",
                variant="displaced",
                severity=Severity.INFO,
                confidence=0.8,
                evidence=(
                    stretch.at_onset(was),
                    stretch.in_all(now, was, AGAINST),
                    Evidence("rejected_logprob", None, other_now, other_was, note=AGAINST),
                    *(stretch.beside(n).evidence() for n in ("preference_margin", "loss")),
                ),
                remedies=(
                    "read what the model writes now: likelihood went to answers that nobody rated",
                    "add a term for the chosen answers (rpo_alpha, DPOP), or raise beta",
                    "lower the learning rate, or stop earlier",
                ),
            )

    # --- rows -------------------------------------------------------------------------------------

    def _measured(self, run: RunContext, metric: str) -> Signal | None:
        """The rows at which the two answers differ; None if the metric is not there."""
        signal = Signal.logged(run, metric)
        if signal is None or not len(signal):
            return None
        margin = signal.beside("preference_margin")
        alike = np.abs(margin) < self.least_margin  # NaN: not known, and not alike
        return signal.where(~alike)

    def _error(self, signal: Signal) -> float:
        """So many standard errors of a mean of `rows` rows: the scatter from row to row."""
        scatter = float(np.diff(signal.values).std()) / math.sqrt(2)
        return self.sigmas * scatter / math.sqrt(self.rows)

    def _known(self, mask: stats.BoolArray) -> stats.BoolArray:
        """Without the first rows, before which a mean is one of too few."""
        return mask & (np.arange(len(mask)) >= self.rows - 1)

    def _from_change(self, stretch: Stretch) -> Stretch:
        """The same from the row at which the level changed: means come too late."""
        first = max(0, stretch.start - self.reach)
        if stretch.start < self.rows:  # low from the first mean on
            return stretch.starting(0)
        change = stats.change_point(stretch.signal.values[first : stretch.start + 1])
        return stretch if change is None else stretch.starting(first + change)

    # --- findings ---------------------------------------------------------------------------------

    def _opposite(self, stretch: Stretch, variant: str = "reversed") -> Finding:
        what = "margin" if variant == "margin" else "accuracy"
        now = float(stretch.values.mean())
        before = stretch.signal.values[: stretch.start][-self.rows :]
        was = float(before.mean()) if len(before) else None
        came = "" if was is None else f", from {number(was)} before"
        return finding(
            self,
            stretch,
            f"The model prefers the rejected answers{SINCE}: mean preference {what} "
            f"{number(now)}{came}.",
            variant=variant,
            severity=Severity.WARNING if stretch.recovered else Severity.CRITICAL,
            confidence=0.9 if len(stretch) >= 2 * self.rows else 0.75,
            evidence=(
                stretch.at_onset(was),
                stretch.in_all(now, was, "mean since, against before"),
                *(stretch.beside(name).evidence() for name in ("preference_margin", "loss")),
            ),
            remedies=(
                "check which column is read as chosen and which as rejected, and the sign of beta",
                restore(stretch.first) if stretch.start else "stop: training on makes it worse",
                "look at what changed in the data there",
            ),
        )

    def _forgot(self, stretch: Stretch, best: float) -> Finding:
        now = float(stretch.values.mean())
        return finding(
            self,
            stretch,
            f"The preference accuracy fell to {number(now)}{SINCE}, from {number(best)} at its "
            "best, and stays there: a coin has 0.5.",
            variant="lost",
            severity=Severity.WARNING,
            evidence=(
                stretch.at_onset(best),
                stretch.in_all(now, best, "mean since, against the best mean"),
                *(stretch.beside(name).evidence() for name in ("preference_margin", "loss")),
            ),
            remedies=(
                "look at what changed in the data there: harder, noisier or reversed pairs",
                restore(stretch.first),
                "lower the learning rate, or raise beta",
            ),
        )


def _ends(values: stats.FloatArray, rows: int) -> tuple[float, float]:
    """Mean of the first and of the last rows."""
    return float(np.nanmean(values[:rows])), float(np.nanmean(values[-rows:]))
