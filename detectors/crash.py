"""CRASH: how the run ended, when it did not end in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlprobe.detector import (
    Attempt,
    Detector,
    Event,
    Evidence,
    Finding,
    RunContext,
    Severity,
    State,
)

DEAD = ("crashed", "killed", "halted", "vanished")
ON_PURPOSE = ("SIGINT", "interrupted", "KeyboardInterrupt")
BY_SCHEDULER = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")


class Crash(Detector):
    """The run did not end in order: exception, signal, out of memory, time-out, or silence.

    What it detects
        How the last launch ended, with its last step and the most telling line of its output; and,
        as info, earlier launches that died and were resumed.

    Why it matters
        The metrics of a run that dies often end healthy: a weight that turns NaN kills the next
        generation before any NaN is logged. The exception then is the only witness.

    How it is computed
        From `crash` and `halted` events and from the way each launch ended. Several reports of one
        launch (the trainer's own, the launcher's) are one finding; the one that names a known kind
        of failure wins. It has no knobs. A stop from the keyboard is info, a stop by a scheduler's
        signal a warning. A recording that stops without an end while its process is gone was
        killed without a word: `kill -9`, the out-of-memory killer, or a machine that went down.

    What to do
        Read the line it quotes, and look at the findings before it: the crash is usually the last
        link of a chain. Resume from the last checkpoint once the cause is known.

    When it is wrong
        A foreign log does not tell how the run ended, so nothing is checked there. A recording on
        another machine whose process cannot be seen may still be alive; it is not reported.

    References
        PyTorch documentation, torch.distributed error handling. `schemas/failures.toml` for the
        lines that are recognised and what they mean.
    """

    id = "CRASH"
    severity = Severity.CRITICAL
    facts_only = True
    needs = (("event:run_started",),)
    caused_by = (
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "KL_BLOWUP",
        "RANK_SILENT",
        "RANK_OUTLIER",
        "STRAGGLER",
        "KV_CACHE_PRESSURE",
        "LENGTH_EXPLOSION",
        "LOSS_SCALE_COLLAPSE",
        "LOSS_SPIKE",
        "DIVERGENCE",
        "POLICY_MISMATCH",
        "ADVANTAGE_NOISE",
        "ENTROPY_EXPLOSION",
        "RESTART_DISCONTINUITY",
    )

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per launch that did not end in order."""
        events = run.events("crash", "halted")
        attempts = {attempt.number: attempt for attempt in run.attempts}
        numbers = sorted({*attempts, *(event.attempt for event in events)})
        for number in numbers:
            own = [event for event in events if event.attempt == number]
            attempt = attempts.get(number, Attempt(number, last_step=run.last_step))
            if own or attempt.ended in DEAD:
                yield _finding(run, attempt, own, resumed=number != numbers[-1])


def _finding(
    run: RunContext, attempt: Attempt, events: Sequence[Event], *, resumed: bool
) -> Finding:
    event = _most_telling(events)
    variant = _variant(attempt, event)
    step = _last_step(run, attempt, events)
    line = _line(event)
    state: State = "recovered" if resumed else "ended_run"
    return Finding(
        detector="CRASH",
        variant=variant,
        severity=Severity.INFO if resumed else _severity(variant, event),
        confidence=0.9 if variant == "vanished" else 0.99,
        first_bad_step=step,
        last_bad_step=step,
        state=state,
        summary=_sentence(attempt, variant, step, event, line, resumed=resumed),
        evidence=tuple(_evidence(attempt, events, step)),
        remedies=_remedies(variant, event, resumed=resumed),
        ranks=tuple(sorted({event.rank for event in events if event.rank > 0})),
    )


def _most_telling(events: Sequence[Event]) -> Event | None:
    """A crash before a halt, one of a known kind before one of a bare exception."""
    if not events:
        return None
    vague = ("", "exception", "unknown")
    return min(
        events,
        key=lambda event: (
            event.kind != "crash",
            str(event.data.get("kind") or "") in vague,
            not event.data.get("exception"),
        ),
    )


def _variant(attempt: Attempt, event: Event | None) -> str:
    if event is None:
        return attempt.ended if attempt.ended in DEAD else "crashed"
    if event.kind == "halted":
        return "halted"
    kind = str(event.data.get("kind") or "")
    if kind in ("", "unknown"):
        return "killed" if event.data.get("signal") else "exception"
    return kind


def _severity(variant: str, event: Event | None) -> Severity:
    signal = str(event.data.get("signal") or "") if event else ""
    text = f"{signal} {event.message} {event.data.get('exception') or ''}" if event else ""
    if variant == "interrupted" or any(word in text for word in ON_PURPOSE):
        return Severity.INFO
    if variant != "halted":
        return Severity.CRITICAL
    return Severity.WARNING if signal in BY_SCHEDULER else Severity.INFO


def _last_step(run: RunContext, attempt: Attempt, events: Sequence[Event]) -> int:
    known = [event.step for event in events if event.step is not None]
    if attempt.last_step is not None:
        known.append(attempt.last_step)
    return max(known, default=run.last_step)


def _line(event: Event | None) -> str:
    if event is None:
        return ""
    exception = str(event.data.get("exception") or "").strip()
    tail = [str(line).strip() for line in event.data.get("tail") or () if str(line).strip()]
    text = exception or event.message or (tail[-1] if tail else "")
    return text if len(text) <= 200 else f"{text[:197]}..."


def _sentence(
    attempt: Attempt, variant: str, step: int, event: Event | None, line: str, *, resumed: bool
) -> str:
    who = f"Attempt {attempt.number}" if resumed or attempt.number > 1 else "The run"
    if variant == "vanished":
        return (
            f"{who} stopped recording after step {step:,} without an end and its process is gone: "
            "kill -9, the out-of-memory killer, or the machine went down."
        )
    how = "was stopped" if variant == "halted" else f"died ({variant.replace('_', ' ')})"
    meaning = str(event.data.get("meaning") or "") if event else ""
    said = ": ".join(part for part in (meaning, line) if part)
    return f"{who} {how} after step {step:,}{f': {said}' if said else ''}."


def _evidence(attempt: Attempt, events: Sequence[Event], step: int) -> Iterator[Evidence]:
    if not events:
        yield Evidence("event:run_started", step, float(step), note=f"{attempt.ended}; last step")
    for event in events[:6]:
        code = event.data.get("exit_code")
        value = float(code) if isinstance(code, int | float) else float(step)
        what = "exit code" if isinstance(code, int | float) else "last step"
        yield Evidence(
            f"event:{event.kind}",
            event.step,
            value,
            rank=event.rank if event.rank >= 0 else None,
            note=": ".join(part for part in (what, _line(event)) if part),
        )


def _remedies(variant: str, event: Event | None, *, resumed: bool) -> tuple[str, ...]:
    if resumed:
        return ("nothing now: the run was resumed; compare the metrics across the restart",)
    own = str(event.data.get("remedy") or "") if event else ""
    if variant == "vanished":
        return (
            "look at the kernel log for the out-of-memory killer, and at the scheduler's log",
            "resume from the last checkpoint",
        )
    general = (
        "read the findings before it: a crash is usually the last link of a chain",
        "resume from the last checkpoint once the cause is known",
    )
    return (own, *general) if own else general
