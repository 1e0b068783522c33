"""CHECKPOINT_GAP: there is nothing good to go back to, or it lacks what a restart needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import Period, finding

NEEDED = ("model", "optimizer", "scheduler", "scaler", "rng", "data_cursor", "mixture")
CHECKPOINT = "event:checkpoint"
WORDS = {"rng": "random states", "data_cursor": "data cursor", "scaler": "loss scaler"}


class CheckpointGap(Detector):
    """There is no checkpoint within reach of a failure, or it lacks what a restart needs.

    What it detects
        A run that died long after its last checkpoint, or without one; checkpoints that stopped
        coming; checkpoints that lack a part needed to go on as if nothing had happened: optimizer,
        scheduler, loss scaler, random states, data cursor.

    Why it matters
        The steps since the last good checkpoint are what an incident costs. A checkpoint without
        the data cursor sends the same batch again; without the optimizer the first updates are too
        large.

    How it is computed
        From the checkpoints that are recorded, or told of in the output of the trainer; a run
        without any is not judged. A distance is too long beyond `intervals` times the usual one
        between checkpoints.

    What to do
        Save more often than you can afford to lose, keep the last three, and save the whole state.

    When it is wrong
        Checkpoints that were written by somebody else are not recorded. Weights-only checkpoints
        are right for a run that is never to be resumed.

    References
        PyTorch documentation, torch.distributed.checkpoint. transformers `Trainer`,
        `save_only_model` and `ignore_data_skip`.
    """

    id = "CHECKPOINT_GAP"
    severity = Severity.WARNING
    facts_only = True
    needs = (("event:checkpoint",),)
    caused_by = ("CRASH", "GRAD_PATHOLOGY", "NONFINITE_METRIC", "RANK_SILENT")

    intervals: float = knob(3, "usual intervals that may lie after a checkpoint", minimum=1)

    short_run = fixed(20, "steps that are no great loss")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """What the last checkpoint lacks, then what lies too far behind it."""
        if run.incomplete("events"):
            raise Inconclusive("part of the recorded events could not be read")
        known = [event for event in run.events("checkpoint") if event.step is not None]
        if not known:
            raise Inconclusive("no checkpoint has a step")
        for entry in self.rules():
            yield from entry.judge(self, run, known)

    @rule("lacks")
    def _lacks(self, run: RunContext, known: Sequence[Event]) -> Iterator[Finding]:
        """The last checkpoint is known not to hold a part. Info; a warning where the run failed,
        has to go back, and model or optimizer are missing.
        """
        latest = max(known, key=_step)
        missing = sorted(_lacking(latest), key=lambda part: [*NEEDED, part].index(part))
        if not missing:
            return
        same = [event for event in known if set(_lacking(event)) == set(missing)]
        failed = _failed_at(run)
        needed = failed is not None and not {"model", "optimizer"}.isdisjoint(missing)
        first = failed if failed is not None and needed else min(map(_step, same))
        parts = ", ".join(WORDS.get(part, part) for part in missing)
        note = f"parts it lacks: {parts}"
        yield finding(
            self,
            _to_the_end(run, first),
            f"{len(same)} of {len(known)} checkpoints lack{'s' if len(same) == 1 else ''} {parts}, "
            f"the last of them that of step {latest.step:,}.",
            variant="lacks",
            severity=Severity.WARNING if needed else Severity.INFO,
            confidence=0.9,
            evidence=(Evidence(CHECKPOINT, latest.step, float(len(missing)), note=note),),
            remedies=(
                "save the whole state: optimizer, scheduler, loss scaler, random states, data "
                "cursor",
                "on a restart without the data cursor, move it by hand past the batch that did "
                "harm",
            ),
        )

    @rule("far")
    def _far(self, run: RunContext, known: Sequence[Event]) -> Iterator[Finding]:
        """From the first known failure (a `nan_detected` event, or the last step of a run that
        died) back to the checkpoint before it, or to the start of the run if there is none; at
        least `short_run` steps. A warning.
        """
        failed = _failed_at(run)
        if failed is None:
            return
        before = [_step(event) for event in known if _step(event) < failed]
        reached = max(before, default=run.first_step)
        lost, allowed = failed - reached, self.intervals * _usual(run, known)
        if lost < self.short_run or (before and lost <= allowed):
            return
        last = f"the last checkpoint is of step {reached:,}" if before else "there is no checkpoint"
        note = "steps since it, at the end"
        yield finding(
            self,
            _to_the_end(run, failed),
            f"When the run failed at step {failed:,}, {last} before it: {lost:,} steps are lost.",
            variant="far",
            confidence=0.9,
            evidence=(Evidence(CHECKPOINT, reached, float(lost), allowed, note=note),),
            remedies=(
                "save more often than you can afford to lose",
                "write a checkpoint when the first alarm comes, not only on schedule",
            ),
        )

    @rule("stopped")
    def _stopped(self, run: RunContext, known: Sequence[Event]) -> Iterator[Finding]:
        """The run has not failed, and goes on without a checkpoint after there had been three, not
        counting those that are written only when the run is better than ever. A warning.
        """
        known = [event for event in known if not event.data.get("best")]
        if not known:
            return
        last, usual = max(map(_step, known)), _usual(run, known)
        since, allowed = run.last_step - last, self.intervals * usual
        several = len(set(map(_step, known))) >= 3
        if _failed_at(run) is None and several and since > allowed:
            yield finding(
                self,
                _to_the_end(run, last),
                f"No checkpoint has been written since step {last:,}, {since:,} steps ago; before, "
                f"there was one every {usual:,.0f}.",
                variant="stopped",
                confidence=0.9,
                evidence=(Evidence(CHECKPOINT, last, float(since), allowed, note="steps since"),),
                remedies=(
                    "look at the disk (full? quota?) and at the log of the last save",
                    "write a checkpoint now",
                ),
            )


def _step(checkpoint: Event) -> int:
    return checkpoint.step or 0


def _lacking(checkpoint: Event) -> list[str]:
    return [str(part) for part in checkpoint.data.get("lacks") or ()]


def _usual(run: RunContext, known: Sequence[Event]) -> float:
    """The usual distance between checkpoints."""
    steps = sorted(set(map(_step, known)))
    if len(steps) == 1:
        return max(steps[0] - run.first_step + 1.0, 1.0)
    return stats.median(np.diff(steps).astype(np.float64))


def _failed_at(run: RunContext) -> int | None:
    """The first step at which the run is known to have been broken."""
    broken = [event.step for event in run.events("nan_detected") if event.step is not None]
    return min([*broken, run.last_step] if run.ended else broken, default=None)


def _to_the_end(run: RunContext, first: int) -> Period:
    return Period(run, min(first, run.last_step), run.last_step, recovered=False)
