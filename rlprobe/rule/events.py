"""What several rules ask of a run's events."""

from __future__ import annotations

from rlprobe.detector import Event, RunContext

ON_PURPOSE = ("curriculum_changed", "lr_changed", "topology_changed")  # events of a change
OF_WEIGHTS = ("weight", "param")
OF_GRADIENTS = ("grad", "backward", *OF_WEIGHTS)


def source_of(event: Event) -> str:
    """What a `nan_detected` event is about: `gradient`, `loss`, …; "" if nothing is said."""
    return str(event.data.get("source") or "")


def concerns_gradients(event: Event) -> bool:
    """Whether a `nan_detected` event is about gradients or weights, as it is if nothing is said."""
    source = source_of(event).lower()
    return not source or source.startswith(OF_GRADIENTS) or source.endswith(".grad")


def concerns_weights(event: Event) -> bool:
    """Whether it is about the weights themselves: what they hold, no skipped update takes away."""
    return source_of(event).lower().startswith(OF_WEIGHTS)


def told_change(run: RunContext, step: int) -> str:
    """What the run tells of a change of its own at a step or the one before, or ""."""
    for event in run.events(*ON_PURPOSE):
        if event.step is not None and step - run.interval <= event.step <= step:
            return f"{event.kind}: {event.message}" if event.message else event.kind
    return ""


def restarts(run: RunContext) -> list[int]:
    """Steps after the first at which a launch took over or was resumed, ascending.

    A launch that says where it resumed is taken up at its first row.
    """
    began = {attempt.number: attempt.first_step for attempt in run.attempts}
    launches = [step for number, step in began.items() if number > 1]
    resumed = [
        event.step
        for event in run.events("resumed")
        if event.step is not None and event.step > (began.get(event.attempt) or -1)
    ]
    steps = {step for step in (*launches, *resumed) if step is not None}
    return sorted(step for step in steps if step > run.first_step)
