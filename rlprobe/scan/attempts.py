"""A run that was resumed: which attempts are judged on their own, and what became of their faults.

The run as it is now follows the latest attempt at every step. What an earlier attempt had logged
beyond the step at which it was overtaken is a branch that was abandoned: the run is judged once
more as it was when that attempt ended. What is found in rows that branches share is told once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlprobe import order_statistics
from rlprobe.findings import Finding, Severity
from rlprobe.scan.context import Context
from rlprobe.store.run import Run
from rlprobe.values import two_counters

_ROWS = 1_500_000  # of abandoned branches that the whole catalogue judges, the newest first
_BRANCHES = 12  # so many of them at most; of older ones only the facts are told
_PASSED = 5  # rows past an onset that tell whether it came again
_REACH = 25  # rows past an onset in which what comes again is the same


@dataclass(eq=False)
class Branch:
    """The run as one attempt left it, and what is found in it.

    Attributes:
        attempt: the last one that it follows.
        begins: first step of every attempt of the run that logged any.
        whole: judged by the whole catalogue; else by what tells facts.
        findings: linked by cause.
    """

    context: Context
    attempt: int = 1
    begins: Mapping[int, int] = field(default_factory=dict)
    whole: bool = True
    findings: Sequence[Finding] = ()
    _sorted: dict[str, list[Finding]] = field(default_factory=dict, repr=False)
    _sorted_of: Sequence[Finding] = field(default=(), repr=False)

    def parting(self, later: Branch) -> int:
        """The first step at which a later branch goes its own way."""
        between = (n for n in self.begins if self.attempt < n <= later.attempt)
        return min(self.begins[number] for number in between)

    def after(self, attempt: int) -> int:
        """The next attempt that logged any."""
        return min(number for number in self.begins if number > attempt)

    def same(self, item: Finding, parting: int, *, later: bool) -> Finding | None:
        """What this branch tells of an episode of another one, with which it shares rows.

        Args:
            parting: the first step that they do not share.
            later: whether this is the later branch of the two.
        """
        for own in self._of_detector().get(item.detector, ()):
            if _same(item, own, parting) if later else _same(own, item, parting):
                return own
        return None

    def _of_detector(self) -> Mapping[str, Sequence[Finding]]:
        if self._sorted_of is not self.findings:
            self._sorted = {}
            for item in self.findings:
                self._sorted.setdefault(item.detector, []).append(item)
            self._sorted_of = self.findings
        return self._sorted


def branches(run: Run) -> list[Branch]:
    """The run as it is now, then what was abandoned, the latest attempt first."""
    frame = run.steps if len(run.steps) else run.ranks
    if not len(frame) or bool((frame.attempt == frame.attempt[0]).all()):
        return [Branch(Context(run))]
    begins, ends = {}, {}
    for number in order_statistics.distinct(frame.attempt).tolist():
        steps = frame.step[frame.attempt == number]
        begins[number], ends[number] = int(steps.min()), int(steps.max())
    chosen = [Branch(Context(run), max(begins), begins)]
    rows = 0
    for number, following in reversed(list(itertools.pairwise(begins))):
        if begins[following] > ends[number] or two_counters(run.info.attempts):
            continue  # the next one goes on where this one ended: nothing was abandoned
        context = Context(run, upto=number)
        rows += len(context.steps)
        whole = rows <= _ROWS and len(chosen) <= _BRANCHES
        chosen.append(Branch(context, number, begins, whole))
    return chosen


def remarks(judged: Sequence[Branch]) -> tuple[str, ...]:
    """What of the abandoned branches was not judged as all else, in words."""
    numbers = sorted(branch.attempt for branch in judged if not branch.whole)
    if not numbers:
        return ()
    which = "attempt" if len(numbers) == 1 else f"attempts {numbers[0]} to"
    return (f"of what {which} {numbers[-1]} left behind, only facts were checked",)


def with_attempts(findings: Iterable[Finding], context: Context) -> list[Finding]:
    """The findings, each with the attempt of the row it begins at, unless it names its own."""
    return [
        item if item.attempt else replace(item, attempt=context.attempt_at(item.first_bad_step))
        for item in findings
    ]


# --- what several branches show -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Told:
    """What is told of all branches.

    Attributes:
        findings: in order of onset; at one step, those of the run as it is now first.
        branch_of: the branch that each belongs to, by key.
    """

    findings: tuple[Finding, ...]
    branch_of: Mapping[str, Branch]

    def context_of(self, finding: Finding) -> Context:
        """The run as the branch of a finding had it."""
        return self.branch_of[finding.key].context


def told_once(judged: Sequence[Branch]) -> Told:
    """The findings of all branches: those in rows that they share once, with what became of them.

    Args:
        judged: as `branches` gives them.
    """
    for branch in judged:
        branch.findings = _by_who_shows_it(branch, judged)
    by_key: dict[str, Finding] = {}
    branch_of: dict[str, Branch] = {}
    first_cause: dict[str, str | None] = {}
    for place, branch in enumerate(judged):
        twins = {item: twin for item, twin in _twins(branch, judged[:place]) if twin in by_key}
        for item in branch.findings:
            cause = twins.get(item.caused_by or "", item.caused_by)
            key = twins.get(item.key, item.key)
            first_cause[key] = cause
            if key not in by_key:
                by_key[key] = replace(item, caused_by=cause)
                branch_of[key] = branch
    by_key = {key: _by_its_own(item, by_key, first_cause) for key, item in by_key.items()}
    for group in _over(by_key, branch_of, judged[0]):
        number = _resolver(group, branch_of[group[0].key], judged)
        by_key |= {item.key: replace(item, resolved_by=number) for item in group}
    ordered = sorted(by_key.values(), key=lambda item: item.first_bad_step)
    return Told(tuple(ordered), branch_of)


def _by_its_own(
    item: Finding, by_key: Mapping[str, Finding], first_cause: Mapping[str, str | None]
) -> Finding:
    """A finding whose cause is a later attempt's has the one that its own attempt tells, if any."""

    def attempt(key: str | None) -> int:
        cause = by_key.get(key or "")
        return 0 if cause is None else cause.attempt

    if attempt(item.caused_by) <= item.attempt:
        return item
    own = first_cause.get(item.key)
    return replace(item, caused_by=own if 0 < attempt(own) <= item.attempt else None)


def _by_who_shows_it(branch: Branch, judged: Sequence[Branch]) -> list[Finding]:
    """The findings of a branch with the first attempt that shows each; `caused_by` follows."""
    older = [other for other in reversed(judged) if other.whole and other.attempt < branch.attempt]
    made = [replace(item, attempt=_shown_by(item, branch, older)) for item in branch.findings]
    keys = {old.key: new.key for old, new in zip(branch.findings, made, strict=True)}
    return [replace(item, caused_by=keys.get(item.caused_by or "")) for item in made]


def _shown_by(item: Finding, branch: Branch, older: Sequence[Branch]) -> int:
    """The attempt of its row, or a later one if earlier ones had the row and did not tell it."""
    number = item.attempt
    for other in older:
        parting = other.parting(branch)
        if number > other.attempt or item.first_bad_step >= parting:
            continue
        known = other.same(item, parting, later=False)
        if known is not None and known.severity >= min(item.severity, Severity.WARNING):
            break
        number = other.after(other.attempt)
    return number


def _twins(branch: Branch, later: Sequence[Branch]) -> Iterator[tuple[str, str]]:
    """Keys of findings that a later branch tells as well, with their keys there."""
    for other in later:
        parting = branch.parting(other)
        for item in branch.findings:
            if (twin := other.same(item, parting, later=True)) is not None:
                yield item.key, twin.key


def _same(item: Finding, later: Finding, parting: int) -> bool:
    """Whether a later branch tells the same episode, no milder, in rows that both have."""
    if item.detector != later.detector or later.severity < item.severity:
        return False
    if max(item.first_bad_step, later.first_bad_step) >= parting or item.ranks != later.ranks:
        return False
    if item.severity >= Severity.WARNING:
        return _episode(item) == _episode(later)
    return item.first_bad_step <= later.last_bad_step and later.first_bad_step <= item.last_bad_step


def _episode(item: Finding) -> tuple[str | None, int, tuple[str, ...]]:
    return item.variant, item.first_bad_step, item.metrics[:1]


# --- what became of what is over ------------------------------------------------------------------


def _over(
    by_key: Mapping[str, Finding], branch_of: Mapping[str, Branch], now: Branch
) -> list[list[Finding]]:
    """Findings of abandoned branches, and ends of earlier launches; what hangs together as one."""
    groups: dict[tuple[str, int], list[Finding]] = {}
    for key, item in by_key.items():
        branch = branch_of[key]
        if branch is not now or (item.state == "ended_run" and item.attempt < now.attempt):
            groups.setdefault((_root(item, by_key), branch.attempt), []).append(item)
    return list(groups.values())


def _root(item: Finding, by_key: Mapping[str, Finding]) -> str:
    seen = {item.key}
    while (cause := by_key.get(item.caused_by or "")) is not None and cause.key not in seen:
        item = cause
        seen.add(item.key)
    return item.key


def _resolver(group: Sequence[Finding], branch: Branch, judged: Sequence[Branch]) -> int | None:
    """The first later attempt that got past all of them without any of it; None if none did."""
    shown = max(item.attempt for item in group)
    onset = max(item.first_bad_step for item in group)
    own = branch.context.steps
    beyond = int((own > onset).sum()) if shown == branch.attempt else 0
    least = min(_PASSED, max(1, beyond))
    for other in reversed(judged):
        if other.attempt <= shown:
            continue
        steps = other.context.steps
        parting = min(begin for n, begin in other.begins.items() if shown < n <= other.attempt)
        past = steps[(steps > onset) & (steps >= parting)]
        if len(past) >= least and not _again(group, other, parting):
            return other.context.attempt_at(int(past[0]))
    return None


def _again(group: Sequence[Finding], other: Branch, parting: int) -> bool:
    """Whether a later branch shows some of it again, or anything critical, about there."""
    keys = {item.key for item in group}
    detectors = {item.detector for item in group}
    onset, interval = max(item.first_bad_step for item in group), other.context.interval
    for item in other.findings:
        if item.severity < Severity.WARNING or item.key in keys:
            continue
        reach = _PASSED if item.state == "ended_run" else _REACH  # a later end is another one
        own = item.first_bad_step >= parting and item.severity is Severity.CRITICAL
        there = item.first_bad_step <= onset + reach * interval and item.last_bad_step >= parting
        if there and (own or item.detector in detectors):
            return True
    return False
