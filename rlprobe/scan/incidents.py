"""Links findings by cause and tells the story: one root, its consequences, where to go back to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlprobe.detector import Detector
from rlprobe.findings import Finding, Incident, Link, Restore, Severity
from rlprobe.scan.context import Context

_REACH_ROWS = 25  # logged rows after the end of a cause in which a consequence may still begin
_LEAD_ROWS = 60  # logged rows after the onset of a cause: what went on for longer explains no change
_SLACK_ROWS = 2  # logged rows by which a consequence may seem to begin before its cause


@dataclass(frozen=True, eq=False)
class _Causes:
    """Declared cause edges, and those that follow when a pathology in between was not seen."""

    detectors: Mapping[str, type[Detector]]

    def direct(self, effect: str) -> frozenset[str]:
        detector = self.detectors.get(effect)
        return frozenset(detector.caused_by) if detector else frozenset()

    @functools.cache  # noqa: B019 - lives as long as one scan
    def all(self, effect: str) -> frozenset[str]:
        found: set[str] = set()
        frontier = set(self.direct(effect))
        while frontier:
            found |= frontier
            frontier = {cause for known in frontier for cause in self.direct(known)} - found
        return frozenset(found - {effect})


def build_incidents(
    findings: Sequence[Finding], detectors: Mapping[str, type[Detector]], context: Context
) -> tuple[tuple[Finding, ...], tuple[Incident, ...]]:
    """The findings with `caused_by` set, in order of onset, and their incidents, worst first."""
    causes = _Causes(detectors)
    ordered = _in_causal_order(findings, causes)
    linked: list[Finding] = []
    for finding in ordered:
        cause = _cause(finding, linked, causes, context.interval)
        linked.append(replace(finding, caused_by=cause.key) if cause else finding)
    roots = [finding for finding in linked if finding.caused_by is None]
    incidents = [_incident(root, linked, context) for root in roots]
    incidents.sort(key=lambda item: (-item.severity, item.chain[0].step))
    return tuple(linked), tuple(incidents)


def _in_causal_order(findings: Sequence[Finding], causes: _Causes) -> list[Finding]:
    """By onset; at one step, causes before what they may cause, then the more severe."""

    def depth(finding: Finding) -> int:
        return len(causes.all(finding.detector))

    return sorted(
        findings, key=lambda f: (f.first_bad_step, depth(f), -f.severity, f.detector, f.key)
    )


def _cause(
    effect: Finding, earlier: Sequence[Finding], causes: _Causes, interval: int
) -> Finding | None:
    """The nearest earlier finding that may have caused this one; direct edges are preferred."""
    reach = _REACH_ROWS * interval
    possible = [
        cause
        for cause in earlier
        if cause.severity >= Severity.WARNING
        and cause.detector in causes.all(effect.detector)
        and effect.first_bad_step <= cause.last_bad_step + reach
        and effect.first_bad_step <= cause.first_bad_step + _LEAD_ROWS * interval
    ]
    direct = [cause for cause in possible if cause.detector in causes.direct(effect.detector)]
    return max(direct or possible, key=lambda cause: cause.first_bad_step, default=None)


def _incident(root: Finding, findings: Sequence[Finding], context: Context) -> Incident:
    chain = _chain(root, findings)
    links = tuple(
        Link(f.key, f.detector, f.first_bad_step, f.first_bad_step - root.first_bad_step)
        for f in chain
    )
    last_good = _last_good(root, context)
    restore = find_restore(root.first_bad_step, context)
    ended = any(f.state == "ended_run" or f.detector == "CRASH" for f in chain)
    return Incident(
        root=root.key,
        severity=max(f.severity for f in chain),
        chain=links,
        last_good_step=last_good,
        restore=restore,
        ended_run=ended and context.ended,
        story=_story(chain, last_good, restore),
    )


def _chain(root: Finding, findings: Sequence[Finding]) -> list[Finding]:
    keys = {root.key}
    chain = [root]
    for finding in findings:  # in order of onset, so a cause comes before what it caused
        if finding.caused_by in keys:
            keys.add(finding.key)
            chain.append(finding)
    return chain


def _last_good(root: Finding, context: Context) -> int | None:
    before = int(np.searchsorted(context.steps, root.first_bad_step))
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


def _story(chain: Sequence[Finding], last_good: int | None, restore: Restore | None) -> str:
    root = chain[0]
    sentences = [f"From step {root.first_bad_step:,}: {_sentence(root.summary)}"]
    for finding in chain[1:]:
        lead = finding.first_bad_step - root.first_bad_step
        when = "At the same step" if lead == 0 else f"{lead:,} steps later"
        sentences.append(f"{when}: {_sentence(finding.summary)}")
    if last_good is not None:
        sentences.append(f"The last good step is {last_good:,}.")
    if restore is not None:
        sentences.append(f"Go back to the checkpoint of step {restore.step:,} ({restore.path}).")
    if root.remedies:
        sentences.append(f"Before going on: {_sentence(root.remedies[0])}")
    return " ".join(sentences)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."
