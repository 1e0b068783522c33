"""CRASH: how the run ended, when it did not end in order."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlprobe.detector import (
    Attempt,
    Detector,
    Event,
    Evidence,
    Finding,
    RunContext,
    Severity,
    fixed,
    rule,
)
from rlprobe.rule import Moment, after, finding

DEAD = ("crashed", "killed", "halted", "vanished")
ON_PURPOSE = ("SIGINT", "interrupted", "KeyboardInterrupt")
BY_SCHEDULER = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>[0-9]+), in (?P<name>[^|]+)')


class Crash(Detector):
    """The run did not end in order: exception, signal, out of memory, time-out, or silence.

    What it detects
        How each launch ended, with its last step, the exception and where it came from, or the most
        telling line of its output. One that was resumed and got further is told as resolved.

    Why it matters
        The metrics of a run that dies often end healthy: a weight that turns NaN kills the next
        generation before any NaN is logged. The exception then is the only witness.

    How it is computed
        From `crash` and `halted` events and from the way each launch ended. Several reports of one
        launch (the trainer's own, the launcher's) are one finding; the one that names a known kind
        of failure wins. It has no knobs. Critical; info where the launch was stopped from the
        keyboard, and where the run was told to stop, but a warning if by a scheduler's signal. A
        launch of which a later one repeats steps is judged as it was when it ended. A recording
        that stops without an end while its process is gone was killed without a word: `kill -9`,
        the out-of-memory killer, or a machine that went down. A fault of a device that the driver
        reported at that step is named beside it. In a console log a crash in the middle is one
        where another launch follows.

    What to do
        Read the line it quotes, and look at the findings before it: the crash is usually the last
        link of a chain. Resume from the last checkpoint once the cause is known.

    When it is wrong
        A foreign log tells how the run ended only if its last lines do: that of a console may, a
        table of metrics never does. A recording on another machine whose process cannot be seen may
        still be alive; it is not reported.

    References
        PyTorch documentation, torch.distributed error handling. `schemas/failures.toml` for the
        lines that are recognised and what they mean.
    """

    id = "CRASH"
    severity = Severity.CRITICAL
    facts_only = True
    needs = (("event:run_started",), ("event:crash",), ("event:halted",))
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

    quoted = fixed(300, "characters of a line that are quoted")
    frames = fixed(3, "last frames of a traceback that are told")

    @rule("*")
    def _ended(self, run: RunContext) -> Iterator[Finding]:
        """Named after the kind of failure where that is known, else `exception`; or after the end:
        `halted` (told to stop), `killed` (by a signal), `vanished`, `crashed`.
        """
        reports = run.events("crash", "halted")
        attempts = {attempt.number: attempt for attempt in run.attempts}
        numbers = sorted({*attempts, *(event.attempt for event in reports)})
        for number in numbers:
            events = [event for event in reports if event.attempt == number]
            attempt = attempts.get(number, Attempt(number))
            if (events or attempt.ended in DEAD) and not _overtaken(attempt, run.attempts):
                yield self._finding(run, attempt, events, latest=number == numbers[-1])

    def _finding(
        self, run: RunContext, attempt: Attempt, events: Sequence[Event], *, latest: bool
    ) -> Finding:
        report = min(events, key=_vagueness, default=Event(attempt.ended, None))
        variant = _variant(report)
        last = _last_step(run, attempt, events, latest=latest)
        who = "The run" if latest and attempt.number == 1 else f"Attempt {attempt.number}"
        faults = [e for e in run.events("hardware_error") if e.attempt == attempt.number]
        faults = [event for event in faults if event.step in (None, last)]
        episode = finding(
            self,
            Moment(last, "ended_run"),
            _sentence(who, variant, last, report, faults[-1:]) + _frames([report, *events]),
            variant=variant,
            severity=_severity(variant, report),
            confidence=0.9 if variant == "vanished" else 0.99,
            evidence=_evidence([*events, *faults[:3]], last, attempt.ended),
            remedies=_remedies(variant, report),
            ranks=sorted({event.rank for event in events if event.rank > 0}),
        )
        return replace(episode, attempt=attempt.number)


def _overtaken(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Whether a later launch repeated steps of this one: it is judged on its own then."""
    later = (item.first_step for item in attempts if item.number > attempt.number)
    first = min((step for step in later if step is not None), default=None)
    return first is not None and attempt.last_step is not None and first <= attempt.last_step


def _last_step(run: RunContext, attempt: Attempt, events: Sequence[Event], *, latest: bool) -> int:
    """The last step that is known of a launch; of one that logged none, the last before it."""
    steps = [event.step for event in events if event.step is not None]
    steps += [] if attempt.last_step is None else [attempt.last_step]
    if steps or latest:
        return max(steps, default=run.last_step)
    before = (item.last_step for item in run.attempts if item.number < attempt.number)
    return max((step for step in before if step is not None), default=run.first_step)


def _field(report: Event, name: str) -> str:
    return str(report.data.get(name) or "").strip()


def _vagueness(event: Event) -> tuple[bool, ...]:
    """A crash tells more than a halt, one of a known kind more than one of a bare exception."""
    vague = _field(event, "kind") in ("", "exception", "unknown")
    return event.kind != "crash", vague, not event.data.get("exception")


def _variant(report: Event) -> str:
    if report.kind != "crash":
        return report.kind
    kind = _field(report, "kind")
    if kind in ("", "unknown"):
        return "killed" if report.data.get("signal") else "exception"
    return kind


def _signal(report: Event) -> str:
    """The name of the signal that a report tells, by name or number."""
    told = _field(report, "signal")
    try:
        return signals.Signals(int(told)).name
    except ValueError:
        return told


def _severity(variant: str, report: Event) -> Severity:
    signal = _signal(report)
    text = f"{signal} {report.message} {_field(report, 'exception')}"
    if variant == "interrupted" or any(word in text for word in ON_PURPOSE):
        return Severity.INFO
    if variant != "halted":
        return Severity.CRITICAL
    return Severity.WARNING if signal in BY_SCHEDULER else Severity.INFO


def _tail(report: Event) -> list[str]:
    """The last lines of the output that a report keeps."""
    return [line for item in report.data.get("tail") or () if (line := str(item).strip())]


def _line(report: Event) -> str:
    """The most telling line of a report: an exception with its message."""
    tail, exception = _tail(report), _field(report, "exception")
    told = exception and exception.rpartition(".")[2] in report.message.partition(":")[0]
    text = report.message if told else exception or report.message or (tail[-1] if tail else "")
    text = " ".join(text.split())
    return text if len(text) <= Crash.quoted else f"{text[: Crash.quoted - 3]}..."


def _frames(reports: Sequence[Event]) -> str:
    """Where the exception came from: the last frames of the first traceback that was kept."""
    for report in reports:
        lines = [str(line) for line in report.data.get("frames") or ()] or _tail(report)
        frames = [match for line in lines if (match := _FRAME.search(line))]
        if frames:
            last = ", ".join(map(_place, frames[-Crash.frames :]))
            return f" Last frames: {last}."
    return ""


def _place(frame: re.Match[str]) -> str:
    """The end of a path, which tells the file and its package, with line and function."""
    path = "/".join(frame["file"].replace("\\", "/").split("/")[-2:])
    return f"{path}:{frame['line']} in {frame['name'].strip()}"


def _sentence(who: str, variant: str, last: int, report: Event, faults: Sequence[Event]) -> str:
    if variant == "vanished":
        return (
            f"{who} stopped recording{after(last)} without an end and its process is gone: "
            "kill -9, the out-of-memory killer, or the machine went down."
        )
    how = "was stopped" if variant == "halted" else f"died ({variant.replace('_', ' ')})"
    line, meaning = _line(report), _field(report, "meaning")
    if variant == "exception" and line:  # whose name says as much
        meaning = ""
    parts = (f"{who} {how}{after(last)}", meaning, "" if line in meaning else line)
    told = [_line(event) for event in faults if variant != "device_fault"]
    said = ": ".join(filter(None, parts)) + "".join(f"; the driver said: {it}" for it in told)
    return said.rstrip(".: ") + "."


def _evidence(events: Sequence[Event], last: int, ended: str) -> Iterator[Evidence]:
    if not events:
        yield Evidence("event:run_started", last, float(last), note=f"{ended}; last step")
    for event in events[:6]:
        code = event.data.get("exit_code")
        value, what = (code, "exit code") if isinstance(code, int | float) else (last, "last step")
        rank = event.rank if event.rank >= 0 else None
        note = ": ".join(filter(None, (what, _line(event))))
        yield Evidence(f"event:{event.kind}", event.step, float(value), rank=rank, note=note)


def _remedies(variant: str, report: Event) -> tuple[str, ...]:
    if variant == "vanished":
        return (
            "look at the kernel log for the out-of-memory killer, and at the scheduler's log",
            "resume from the last checkpoint",
        )
    return (
        _field(report, "remedy"),
        "read the findings before it: a crash is usually the last link of a chain",
        "resume from the last checkpoint once the cause is known",
    )
