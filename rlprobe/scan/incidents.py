"""Links findings by cause and tells the story: one root, its consequences, where to go back to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rlprobe.detector import Detector
from rlprobe.findings import Finding, Incident, Link, Restore, Severity
from rlprobe.scan.causal_order import SLACK_ROWS, CausalOrder, Causes
from rlprobe.scan.context import Context
from rlprobe.values import Event

_REACH_ROWS = 25  # logged rows after the end of a cause in which a consequence may still begin
_FAR_ROWS = 100  # logged rows after the onset of a cause, where something in between was not seen
_NOTABLE = ("curriculum_changed", "lr_changed", "topology_changed", "resumed")
_TOLD = 10  # consequences told in a story


def linked_by_cause(
    findings: Sequence[Finding], detectors: Mapping[str, type[Detector]], context: Context
) -> tuple[Finding, ...]:
    """The findings of one attempt and what led to it, with `caused_by` set, in order of onset."""
    order = CausalOrder(Causes(detectors), context)
    linked: list[Finding] = []
    for finding in order.of(findings):
        cause = _cause(finding, linked, order)
        linked.append(replace(finding, caused_by=cause.key) if cause else finding)
    return tuple(sorted(linked, key=lambda finding: finding.first_bad_step))


def incidents_of(
    linked: Sequence[Finding], context_of: Callable[[Finding], Context]
) -> tuple[Incident, ...]:
    """The incidents that linked findings make, worst first, those that are resolved last.

    Args:
        context_of: the run as the attempt of a root had left it.
    """
    ranked: list[tuple[tuple[bool, int, bool, int], Incident]] = []
    for root in linked:
        if root.caused_by is None:
            context = context_of(root)
            incident = _incident(root, linked, context)
            over, abandoned = incident.resolved_by is not None, context.upto is not None
            rank = (over, -incident.severity, abandoned, incident.chain[0].step)
            ranked.append((rank, incident))
    return tuple(incident for _, incident in sorted(ranked, key=lambda item: item[0]))


def _cause(effect: Finding, earlier: Sequence[Finding], order: CausalOrder) -> Finding | None:
    """The nearest earlier finding that may have caused this one; direct edges are preferred.

    What is only worth knowing is hung on nothing but a direct cause.
    """
    possible = [
        cause
        for cause in earlier
        if cause.severity >= Severity.WARNING
        and cause.detector in order.causes.all(effect.detector)
        and _in_reach(cause, effect, order)
    ]
    direct = [cause for cause in possible if order.causes.leads(cause, effect)]
    nearest = direct if direct or effect.severity is Severity.INFO else possible
    return max(reversed(nearest), key=lambda cause: cause.first_bad_step, default=None)


def _in_reach(cause: Finding, effect: Finding, order: CausalOrder) -> bool:
    """Whether the cause was still there when the effect began, or had been shortly before.

    It belongs to the same attempt or to an earlier one. What has been there from the start, or is
    linked only through something that was not seen, explains no more than what follows soon.
    """
    context, interval = order.context, order.context.interval
    chronic = cause.first_bad_step <= context.first_step + SLACK_ROWS * interval
    direct = order.causes.leads(cause, effect)
    begun = cause.first_bad_step <= effect.first_bad_step or order.ahead(cause, effect)
    soon = effect.first_bad_step - cause.first_bad_step <= _FAR_ROWS * interval
    there = effect.first_bad_step <= cause.last_bad_step + _REACH_ROWS * interval
    of_its_time = begun and there and not _of_later_attempt(cause, effect)
    return of_its_time and (soon or (direct and not chronic))


def _of_later_attempt(cause: Finding, effect: Finding) -> bool:
    """What a later attempt shows is no cause of what an earlier one had shown."""
    return cause.attempt > effect.attempt


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
