"""CHECKPOINT_GAP: there is nothing good to go back to, or it lacks what a restart needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    knob,
)

NEEDED = ("model", "optimizer", "scheduler", "scaler", "rng", "data_cursor", "mixture")
WORDS = {"rng": "random states", "data_cursor": "data cursor", "scaler": "loss scaler"}
LEAST_STEPS = 20  # a run so short loses little


class CheckpointGap(Detector):
    """There is no checkpoint within reach of a failure, or it lacks what a restart needs.

    What it detects
        A run that died long after its last checkpoint, or without one (`far`); checkpoints that
        stopped coming (`stopped`); checkpoints that lack a part needed to go on as if nothing had
        happened: optimizer, scheduler, loss scaler, random states, data cursor (`lacks`).

    Why it matters
        The steps since the last good checkpoint are what an incident costs. A checkpoint without
        the data cursor sends the same batch again; without the optimizer the first updates are too
        large.

    How it is computed
        From the recorded checkpoints alone; a run that records none is not judged. The distance
        from the first known failure (a `nan_detected` event, or the last step of a run that died)
        to the checkpoint before it, and from the last checkpoint to the end, against `intervals`
        times the usual distance between checkpoints. Missing parts are those that the checkpoint
        is known not to hold; they are a warning only where the run failed and has to go back.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """What the last checkpoint lacks, then what lies too far behind it."""
        known = [event for event in run.events("checkpoint") if event.step is not None]
        if not known:
            raise Inconclusive("no checkpoint has a step")
        steps = sorted({event.step for event in known if event.step is not None})
        lacking = _lacks(run, known)
        if lacking is not None:
            yield lacking
        failed = _failed_at(run)
        if failed is not None:
            yield from self._far(run, steps, failed)
        else:
            yield from self._stopped(run, steps)

    def _far(self, run: RunContext, steps: Sequence[int], failed: int) -> Iterator[Finding]:
        before = [step for step in steps if step < failed]
        reached = before[-1] if before else run.first_step
        lost = failed - reached
        allowed = self.intervals * _usual(steps, run)
        if lost < LEAST_STEPS or (before and lost <= allowed):
            return
        last = f"the last checkpoint is of step {reached:,}" if before else "there is no checkpoint"
        yield _finding(
            run,
            "far",
            failed,
            f"When the run failed at step {failed:,}, {last} before it: {lost:,} steps are lost.",
            Evidence(
                "event:checkpoint", reached, float(lost), allowed, note="steps since it, at the end"
            ),
        )

    def _stopped(self, run: RunContext, steps: Sequence[int]) -> Iterator[Finding]:
        if len(steps) < 3:
            return
        allowed = self.intervals * _usual(steps, run)
        since = run.last_step - steps[-1]
        if since > allowed:
            yield _finding(
                run,
                "stopped",
                steps[-1],
                f"No checkpoint has been written since step {steps[-1]:,}, {since:,} steps ago; "
                f"before, there was one every {_usual(steps, run):,.0f}.",
                Evidence("event:checkpoint", steps[-1], float(since), allowed, note="steps since"),
            )


def _usual(steps: Sequence[int], run: RunContext) -> float:
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    return float(np.median(gaps)) if gaps else float(max(steps[0] - run.first_step + 1, 1))


def _failed_at(run: RunContext) -> int | None:
    """The first step at which the run is known to have been broken."""
    broken = [event.step for event in run.events("nan_detected") if event.step is not None]
    if run.ended:
        broken.append(run.last_step)
    return min(broken, default=None)


def _lacks(run: RunContext, known: Sequence[Event]) -> Finding | None:
    event = max(known, key=lambda item: item.step or 0)
    named = [str(part) for part in event.data.get("lacks") or ()]
    missing = [part for part in NEEDED if part in named] + [p for p in named if p not in NEEDED]
    if not missing:
        return None
    same = [item for item in known if set(map(str, item.data.get("lacks") or ())) == set(named)]
    failed = _failed_at(run)
    told = ", ".join(WORDS.get(part, part) for part in missing)
    needed = failed is not None and bool({"model", "optimizer"} & set(missing))
    return _finding(
        run,
        "lacks",
        failed if failed is not None and needed else min(item.step or 0 for item in same),
        f"{len(same)} of {len(known)} checkpoints lack{'s' if len(same) == 1 else ''} {told}, "
        f"the last of them that of step {event.step:,}.",
        Evidence(
            "event:checkpoint", event.step, float(len(missing)), note=f"parts it lacks: {told}"
        ),
        Severity.WARNING if needed else Severity.INFO,
    )


def _finding(
    run: RunContext,
    variant: str,
    first: int,
    summary: str,
    evidence: Evidence,
    severity: Severity = Severity.WARNING,
) -> Finding:
    return Finding(
        detector="CHECKPOINT_GAP",
        variant=variant,
        severity=severity,
        confidence=0.9,
        first_bad_step=min(first, run.last_step),
        last_bad_step=run.last_step,
        state="ended_run" if run.ended else "ongoing",
        summary=summary,
        evidence=(evidence,),
        remedies=_REMEDIES[variant],
    )


_REMEDIES = {
    "lacks": (
        "save the whole state: optimizer, scheduler, loss scaler, random states, data cursor",
        "on a restart without the data cursor, move it by hand past the batch that did harm",
    ),
    "far": (
        "save more often than you can afford to lose",
        "write a checkpoint when the first alarm comes, not only on schedule",
    ),
    "stopped": (
        "look at the disk (full? quota?) and at the log of the last save",
        "write a checkpoint now",
    ),
}
