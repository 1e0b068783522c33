"""LOST_SIGNAL: a metric is no longer logged while the others go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlprobe.detector import Detector, RunContext, Series, fixed, knob
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule import SINCE, Judged, Period, Signal, Stretch, finding, listed

WATCHED = (
    "loss",
    "grad_norm",
    "policy_loss",
    "value_loss",
    "reward_mean",
    "reward_std",
    "kl_mean",
    "entropy",
    "completion_length_mean",
    "lr",
)
NEVER_NAN = frozenset({"reward_mean", "reward_std", "completion_length_mean", "lr"})


class LostSignal(Detector):
    """A metric is no longer logged while others go on: its NaN may have been written as nothing.

    What it detects
        A metric that was on every row, and is missing on several rows on which the metrics that
        were logged with it are still there; for a while or to the end.

    Why it matters
        Strict JSON has no NaN, so loggers write null or drop the key; some trainers leave a
        non-finite loss out of the line. A run that blows up then looks like one that says nothing,
        and every check of that metric passes.

    How it is computed
        For loss, gradient norm, reward, KL, entropy, length and learning rate: of the metrics that
        were logged on the same steps (98 % of them), the one with the most rows is the witness. At
        least `rows` of its rows in a row without the metric are a finding. A metric that is lost
        more than twice, in the first rows, or also on more than 2 % of the other rows is one of
        several kinds of rows, and left alone. If several are lost at the same step, they are one
        finding. It is a warning for metrics that may have become NaN, else info.

    What to do
        Look into the raw log at that step: null, an empty field, or a shorter line? Log non-finite
        values as the strings NaN and Infinity. Take the last step with the value as the last good
        one until the contrary is shown.

    When it is wrong
        A logging option that was changed on a restart, or a summary row at the end, looks similar;
        one or two rows are therefore not reported.

    References
        verl `tracking.py`, whose serializer writes null; prime-rl, which drops non-finite keys;
        Megatron-LM `training.py`, which leaves a NaN loss out of its line.
    """

    id = "LOST_SIGNAL"
    severity = Severity.WARNING
    needs = (("loss",), ("grad_norm",), ("reward_mean",))
    caused_by = ("NONFINITE_METRIC", "GRAD_PATHOLOGY", "RESTART_DISCONTINUITY", "RANK_SILENT")
    facts_only = True

    rows: int = knob(3, "rows without the metric", unit="rows", minimum=1)

    known_rows = fixed(3, "rows with the metric, before its absence means anything")
    most_losses = fixed(2, "times that a metric of every row may be lost")
    most_gaps = fixed(0.02, "share of rows without it up to which it belongs to every row")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per step at which metrics were lost."""
        series = [run.series(name) for name in WATCHED]
        logged = [item for item in series if item is not None and len(item) >= self.known_rows]
        by_step: dict[int, dict[str, Stretch]] = {}
        for item in logged:
            for stretch in self._losses(run, item, logged):
                by_step.setdefault(stretch.first, {})[item.name] = stretch
        for step in sorted(by_step):
            yield self._finding(by_step[step])

    def _losses(
        self, run: RunContext, series: Series, others: Sequence[Series]
    ) -> Sequence[Stretch]:
        """The rows of its witness on which a metric is missing."""
        witness = self._witness(series, others)
        if witness is None:
            return ()
        since = witness.steps >= series.steps[0]
        rows = Signal(run, witness.name, witness.steps[since], witness.values[since])
        missing = ~np.isin(rows.steps, series.steps, assume_unique=True)
        stretches = Judged(rows, missing).runs(least=self.rows)
        others_missing = missing.sum() - sum(map(len, stretches))
        of_every_row = (
            others_missing <= self.most_gaps * len(rows)
            and len(stretches) <= self.most_losses
            and all(stretch.start >= self.known_rows for stretch in stretches)
        )
        return stretches if of_every_row else ()

    def _witness(self, series: Series, others: Sequence[Series]) -> Series | None:
        """The metric with the most rows of those that were there on nearly all rows of this one."""
        longer = [other for other in others if len(other) > len(series)]
        for other in sorted(longer, key=len, reverse=True):
            shared = np.isin(series.steps, other.steps, assume_unique=True).mean()
            if shared >= 1 - self.most_gaps:
                return other
        return None

    def _finding(self, lost: Mapping[str, Stretch]) -> Finding:
        stretches = tuple(lost.values())
        one, rows = stretches[0], max(map(len, stretches))
        period = Period.over(stretches)
        since = f" from step {period.first:,} to {period.last:,}" if period.recovered else SINCE
        return finding(
            self,
            period,
            f"No longer logged{since}, on {rows:,} rows: {listed(tuple(lost))}; "
            f"{one.signal.metric} goes on.",
            severity=Severity.INFO if lost.keys() <= NEVER_NAN else Severity.WARNING,
            confidence=0.7,
            evidence=(_evidence(name, stretch) for name, stretch in lost.items()),
            remedies=(
                f"look into the raw log at step {one.first:,}: null, an empty field, a shorter "
                "line?",
                "log non-finite values as such (the strings NaN and Infinity), not as null",
                f"until it is known: treat step {_step_before(one):,} as the last good one",
            ),
            metrics=tuple(lost),
        )


def _evidence(name: str, stretch: Stretch) -> Evidence:
    note = f"rows without it after step {_step_before(stretch)}"
    return Evidence(name, None, float(len(stretch)), note=note)


def _step_before(stretch: Stretch) -> int:
    return int(stretch.signal.steps[stretch.start - 1])
