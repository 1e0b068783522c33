"""Links findings by cause and tells the story: one root, its consequences, where to go back to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlprobe.detector import Detector
from rlprobe.findings import Finding, Incident, Link, Restore, Severity
from rlprobe.scan.context import Context
from rlprobe.values import Event

_REACH_ROWS = 25  # logged rows after the end of a cause in which a consequence may still begin
_SLACK_ROWS = 2  # logged rows by which a consequence may seem to begin before its cause
_FAR_ROWS = 100  # logged rows after the onset of a cause, where something in between was not seen
_NOTABLE = ("curriculum_changed", "lr_changed", "topology_changed", "resumed")
_TOLD = 10  # consequences told in a story


@dataclass(frozen=True, eq=False)
class _Causes:
    """Declared cause edges, and those that follow when a pathology in between was not seen."""

    detectors: Mapping[str, type[Detector]]

    def direct(self, effect: str) -> frozenset[str]:
        detector = self.detectors.get(effect)
        return frozenset(detector.caused_by) if detector else frozenset()

    @functools.cache  # noqa: B019 - lives as long as one scan
    def all(self, effect: str) -> frozenset[str]:
        reached: set[str] = set()
        frontier = set(self.direct(effect))
        while frontier:
            reached |= frontier
            frontier = {cause for known in frontier for cause in self.direct(known)} - reached
        return frozenset(reached - {effect})


def linked_by_cause(
    findings: Sequence[Finding], detectors: Mapping[str, type[Detector]], context: Context
) -> tuple[Finding, ...]:
    """The findings of one attempt and what led to it, with `caused_by` set, in order of onset."""
    causes = _Causes(detectors)
    linked: list[Finding] = []
    for finding in _in_causal_order(findings, causes):
        cause = _cause(finding, linked, causes, context)
        linked.append(replace(finding, caused_by=cause.key) if cause else finding)
    return tuple(_under_late_cause(finding, linked, causes, context) for finding in linked)


def incidents_of(
    linked: Sequence[Finding], context_of: Callable[[Finding], Context]
) -> tuple[Incident, ...]:
    """The incidents that linked findings make, worst first, those that are resolved last.

    Args:
        context_of: the run as the attempt of a root had left it.
    """
    told: list[tuple[tuple[bool, int, bool, int], Incident]] = []
    for root in linked:
        if root.caused_by is None:
            context = context_of(root)
            incident = _incident(root, linked, context)
            over = incident.resolved_by is not None
            abandoned = context.upto is not None
            told.append(((over, -incident.severity, abandoned, incident.chain[0].step), incident))
    return tuple(incident for _, incident in sorted(told, key=lambda item: item[0]))


def _in_causal_order(findings: Sequence[Finding], causes: _Causes) -> list[Finding]:
    """By onset; at one step, a cause before what it may cause, then the more severe."""
    by_step: dict[int, list[Finding]] = {}
    for finding in findings:
        by_step.setdefault(finding.first_bad_step, []).append(finding)
    return [finding for step in sorted(by_step) for finding in _at_one_step(by_step[step], causes)]


def _at_one_step(findings: Sequence[Finding], causes: _Causes) -> list[Finding]:
    rest = sorted(findings, key=lambda f: (-f.severity, -f.confidence, f.detector, f.key))
    ordered: list[Finding] = []
    while rest:
        free = (f for f in rest if not any(_precedes(other, f, causes) for other in rest))
        chosen = next(free, rest[0])
        rest.remove(chosen)
        ordered.append(chosen)
    return ordered


def _precedes(cause: Finding, effect: Finding, causes: _Causes) -> bool:
    """Whether the catalogue puts one before the other, and the milder does not hide the worse."""
    return (
        cause.severity >= effect.severity
        and cause.detector in causes.direct(effect.detector)
        and effect.detector not in causes.direct(cause.detector)
    )


def _cause(
    effect: Finding, earlier: Sequence[Finding], causes: _Causes, context: Context
) -> Finding | None:
    """The nearest earlier finding that may have caused this one; direct edges are preferred.

    What is only worth knowing is hung on nothing but a direct cause.
    """
    possible = [
        cause
        for cause in earlier
        if cause.severity >= Severity.WARNING
        and cause.detector in causes.all(effect.detector)
        and _in_reach(cause, effect, causes, context)
    ]
    direct = [cause for cause in possible if cause.detector in causes.direct(effect.detector)]
    nearest = direct if direct or effect.severity is Severity.INFO else possible
    return max(reversed(nearest), key=lambda cause: cause.first_bad_step, default=None)


def _in_reach(cause: Finding, effect: Finding, causes: _Causes, context: Context) -> bool:
    """Whether the cause was still there when the effect began, or had been shortly before.

    It belongs to the same attempt or to an earlier one. What has been there from the start, or is
    linked only through something that was not seen, explains no more than what follows soon.
    """
    interval = context.interval
    chronic = cause.first_bad_step <= context.first_step + _SLACK_ROWS * interval
    direct = cause.detector in causes.direct(effect.detector)
    soon = effect.first_bad_step - cause.first_bad_step <= _FAR_ROWS * interval
    there = effect.first_bad_step <= cause.last_bad_step + _REACH_ROWS * interval
    return not _of_later_attempt(cause, effect) and there and (soon or (direct and not chronic))


def _of_later_attempt(cause: Finding, effect: Finding) -> bool:
    """What a later attempt shows is no cause of what an earlier one had shown."""
    return cause.attempt > effect.attempt


def _under_late_cause(
    effect: Finding, findings: Sequence[Finding], causes: _Causes, context: Context
) -> Finding:
    """A root whose direct cause was seen a row or two after it becomes a consequence of that."""
    if effect.caused_by is not None or effect.severity < Severity.WARNING:
        return effect
    latest = effect.first_bad_step + _SLACK_ROWS * context.interval
    late = [
        cause
        for cause in findings
        if effect.first_bad_step < cause.first_bad_step <= latest
        and not _of_later_attempt(cause, effect)
        and cause.severity >= effect.severity
        and cause.caused_by is None
        and _precedes(cause, effect, causes)
    ]
    return replace(effect, caused_by=late[0].key) if late else effect


def _incident(root: Finding, findings: Sequence[Finding], context: Context) -> Incident:
    chain = _chain(root, findings)
    links = tuple(
        Link(f.key, f.detector, f.first_bad_step, f.first_bad_step - root.first_bad_step)
        for f in chain
    )
    first = min(f.first_bad_step for f in chain)
    last_good = _last_good(first, context)
    restore = find_restore(first, context)
    resolved_by = _resolved_by(chain)
    ended = any(f.state == "ended_run" or f.detector == "CRASH" for f in chain)
    return Incident(
        root=root.key,
        severity=max(f.severity for f in chain if resolved_by or not f.resolved_by),
        chain=links,
        last_good_step=last_good,
        restore=restore,
        ended_run=ended and context.ended,
        story=_story(chain, _came_before(first, context), last_good, restore, resolved_by),
        attempt=root.attempt,
        resolved_by=resolved_by,
    )


def _resolved_by(chain: Sequence[Finding]) -> int | None:
    """The attempt that is clean past all of it; what is only worth knowing keeps nothing open."""
    harmful = [f.resolved_by for f in chain if f.severity >= Severity.WARNING]
    known = [number for number in harmful or [f.resolved_by for f in chain] if number]
    return max(known) if known and len(known) == len(harmful or chain) else None


def _chain(root: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """The root, then all that hangs on it, by onset."""
    keys = {root.key}
    size = 0
    while len(keys) > size:
        size = len(keys)
        keys |= {finding.key for finding in findings if finding.caused_by in keys}
    return [root, *(f for f in findings if f.key in keys and f.key != root.key)]


def _last_good(first_bad_step: int, context: Context) -> int | None:
    before = int(np.searchsorted(context.steps, first_bad_step))
    return int(context.steps[before - 1]) if before else None


def find_restore(first_bad_step: int, context: Context) -> Restore | None:
    """The last checkpoint written before the first bad step, with what is known to be in it."""
    before = [
        event
        for event in context.events("checkpoint")
        if event.step is not None and event.step < first_bad_step
    ]
    if not before:
        return None
    event = max(before, key=lambda item: (item.step or 0, item.attempt, item.time))
    return Restore(
        step=event.step or 0,
        path=str(event.data.get("path") or event.message),
        has=tuple(str(part) for part in event.data.get("has") or ()),
        lacks=tuple(str(part) for part in event.data.get("lacks") or ()),
    )


def _came_before(first_bad_step: int, context: Context) -> Event | None:
    """The last notable event in the rows before the onset: often what set it off."""
    earliest = first_bad_step - _REACH_ROWS * context.interval
    known = [
        event
        for event in context.events(*_NOTABLE)
        if event.step is not None and earliest <= event.step <= first_bad_step
    ]
    return max(known, key=lambda event: event.step or 0, default=None)


# --- the story ------------------------------------------------------------------------------------


def _story(
    chain: Sequence[Finding],
    before: Event | None,
    last_good: int | None,
    restore: Restore | None,
    resolved_by: int | None,
) -> str:
    """What happened, what followed, where to go back to, what to change: one paragraph."""
    root = chain[0]
    where = f", in attempt {root.attempt}" if root.attempt > 1 or resolved_by else ""
    sentences = [f"From step {root.first_bad_step:,}{where}: {_sentence(_stated(root))}"]
    if before is not None:
        sentences.append(_prelude(before, root.first_bad_step))
    sentences += _consequences(chain)
    if last_good is not None:
        sentences.append(f"The last good step is {last_good:,}.")
    if resolved_by is not None:
        return " ".join([*sentences, f"Attempt {resolved_by} got past it without: resolved."])
    if restore is not None:
        sentences.append(_way_back(restore))
    if root.remedies:
        sentences.append(f"Before going on: {_sentence(root.remedies[0])}")
    return " ".join(sentences)


def _prelude(event: Event, first_bad_step: int) -> str:
    what = event.kind.replace("_", " ")
    said = f" ({event.message})" if event.message else ""
    return f"Shortly before, at step {event.step or first_bad_step:,}: {what}{said}."


def _consequences(chain: Sequence[Finding]) -> list[str]:
    """One sentence per moment, in order."""
    root = chain[0]
    moments: dict[int, list[str]] = {}
    for finding in chain[1 : _TOLD + 1]:
        lead = finding.first_bad_step - root.first_bad_step
        moments.setdefault(lead, []).append(_clause(finding))
    told = [f"{_when(lead)}: {_sentence('; '.join(said))}" for lead, said in moments.items()]
    more = len(chain) - 1 - _TOLD
    return [*told, f"And {more} more."] if more > 0 else told


def _when(lead: int) -> str:
    if lead == 0:
        return "At the same step"
    return f"{abs(lead):,} step{'s' if abs(lead) != 1 else ''} {'later' if lead > 0 else 'earlier'}"


def _clause(finding: Finding) -> str:
    """The first of what a finding states, without the step that the story gives already."""
    return _stated(finding).split("; ")[0].rstrip(".")


def _stated(finding: Finding) -> str:
    return " ".join((finding.statement or finding.summary).split())


def _way_back(restore: Restore) -> str:
    where = f" ({restore.path})" if restore.path else ""
    sentence = f"Go back to the checkpoint of step {restore.step:,}{where}"
    if "data_cursor" in restore.lacks:
        return (
            f"{sentence}; it lacks the data cursor: the same prompts come again unless it is moved."
        )
    if restore.lacks:
        return f"{sentence}; it lacks {', '.join(restore.lacks)}."
    return f"{sentence}."


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."
