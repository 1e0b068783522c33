"""LOST_SIGNAL: a metric is no longer logged while the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import Detector, Evidence, Finding, RunContext, Series, Severity, knob

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
NAN_SUSPECTS = frozenset({"loss", "grad_norm", "policy_loss", "value_loss", "kl_mean", "entropy"})
LEAST_KNOWN = 3  # rows with the metric, before its absence means anything
MOST_EPISODES = 2  # a metric that is lost more often is one of several kinds of rows
MOST_GAPS = 0.02  # share of rows without it up to which it belongs to every row


@dataclass(frozen=True, slots=True)
class _Gap:
    """Rows of a companion on which a metric is missing."""

    metric: str
    companion: str
    before: int
    first: int
    last: int
    rows: int
    recovered: bool


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
        were logged on the same steps, the one that goes on longest is the witness. At least `rows`
        of its rows in a row without the metric are a finding. A metric that also was missing
        before on more than 2 % of the rows is one of several kinds of rows, and left alone. If
        several are lost at the same step, they are one finding.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per step at which metrics were lost."""
        logged = [
            series
            for name in WATCHED
            if (series := run.series(name)) is not None and len(series) >= LEAST_KNOWN
        ]
        gaps = [gap for series in logged for gap in self._gaps(series, logged)]
        for first in sorted({gap.first for gap in gaps}):
            yield _finding(run, [gap for gap in gaps if gap.first == first])

    def _gaps(self, series: Series, others: list[Series]) -> Iterator[_Gap]:
        witness = _witness(series, others)
        if witness is None:
            return
        steps = witness.steps[witness.steps >= series.steps[0]]
        missing = ~np.isin(steps, series.steps, assume_unique=True)
        found = stats.episodes(missing, least=self.rows)
        long = sum(len(episode) for episode in found)
        if not found or missing.sum() - long > MOST_GAPS * len(steps):
            return
        if len(found) > MOST_EPISODES or min(episode.start for episode in found) < LEAST_KNOWN:
            return
        for episode in found:
            yield _Gap(
                series.name,
                witness.name,
                int(steps[episode.start - 1]),
                int(steps[episode.start]),
                int(steps[episode.end]),
                len(episode),
                episode.recovered,
            )


def _witness(series: Series, others: list[Series]) -> Series | None:
    """The metric with the most rows of those that were there on nearly all rows of this one."""
    longer = [other for other in others if len(other) > len(series)]
    longer.sort(key=lambda other: -len(other))
    for other in longer:
        shared = np.isin(series.steps, other.steps, assume_unique=True).mean()
        if shared >= 1 - MOST_GAPS:
            return other
    return None


def _finding(run: RunContext, gaps: list[_Gap]) -> Finding:
    names = tuple(gap.metric for gap in gaps)
    first, last = gaps[0].first, max(gap.last for gap in gaps)
    recovered = all(gap.recovered for gap in gaps)
    suspect = not NAN_SUSPECTS.isdisjoint(names)
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    rows = max(gap.rows for gap in gaps)
    until = f" to {last:,}" if recovered else " on"
    return Finding(
        detector="LOST_SIGNAL",
        severity=Severity.WARNING if suspect else Severity.INFO,
        confidence=0.7,
        first_bad_step=first,
        last_bad_step=last if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=(
            f"No longer logged from step {first:,}{until}, on {rows:,} rows: {listed}; "
            f"{gaps[0].companion} goes on."
        ),
        evidence=tuple(
            Evidence(gap.metric, gap.before, float(gap.rows), note="rows without it after this one")
            for gap in gaps
        ),
        remedies=(
            f"look into the raw log at step {first:,}: null, an empty field, a shorter line?",
            "log non-finite values as such (the strings NaN and Infinity), not as null",
            f"until it is known: treat step {gaps[0].before:,} as the last good one",
        ),
        metrics=names,
    )
