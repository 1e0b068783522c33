"""What is said about a run: findings, incidents, coverage, the report. Frozen values, no I/O."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from rlprobe.values import Attempt, FloatArray, IntArray, Problem, Unread

State = Literal["ongoing", "recovered", "ended_run"]
CoverageState = Literal["fired", "clean", "not_checked", "inconclusive", "failed"]
Verdict = Literal["pass", "warn", "fail", "not_judged"]


class Severity(enum.IntEnum):
    """How much harm: info = worth knowing, warning = learning harmed, critical = run harmed."""

    INFO = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def label(self) -> str:
        """The lower-case word used in JSON, configuration and flags."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> Severity:
        """The severity for its lower-case word; ValueError for anything else."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"not a severity: {word!r}") from None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on.

    Attributes:
        metric: canonical metric name, or `event:<kind>` / `samples`.
        step: where the number was read; None for a number over the whole run.
        value: the number; may be NaN or Inf.
        baseline: what it is compared with (the run's own past, a knob), if anything.
        rank: the rank it belongs to; None for a global value.
        note: what the number is, in a few words.
    """

    metric: str
    step: int | None
    value: float
    baseline: float | None = None
    rank: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """The picture of a finding: one metric around the onset, at most a few hundred values.

    A long view is squeezed: each value then stands for the rows from its own up to the next one's,
    and is theirs that is farthest from `before`, or not finite.

    Attributes:
        metric: canonical metric name.
        steps, values: shape (n,); NaN and Inf are values that were measured.
        onset: index of the first value of the episode.
        rows: shape (n,); the logged row of each value, counted from the first; a squeezed view
            leaves some out.
        before: median of the finite values before the onset; the value at the onset if there are
            none.
    """

    metric: str
    steps: IntArray
    values: FloatArray
    onset: int
    rows: IntArray
    before: float

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, repr=False)
class Finding:
    """One episode of one pathology.

    Attributes:
        first_bad_step: first step that belongs to the episode, not the step of being sure.
        last_bad_step: last step that belongs to it; the last step of the run while ongoing.
        confidence: 0..1, the share of such findings expected to be right.
        variant: which rule or regime of the detector fired, or None.
        summary: one or two sentences with the numbers; every number is in `evidence`.
        remedies: what to try, most likely cure first.
        samples: `sample_id`s of rollouts worth reading.
        caused_by: `key` of the finding this one follows from; set by the incident builder.
        statement: the summary without the step it begins at, for a story that gives it already.
        excerpt: the first metric that was logged, around the onset; None if none was, or not from
            there on. Set by the engine, and no part of what makes two findings equal.
        onset_logged: whether `first_bad_step` is a step of the run's log; set by the engine.
        attempt: the launch that shows it: the one whose row it begins at, or a later one if the
            rows up to the end of that one did not tell it yet. Set by the engine, where a detector
            has not (0).
        resolved_by: the later attempt that went back before it and is clean past it; None where it
            is part of the run as it is, or where no later attempt has passed it. Set by the engine.
    """

    detector: str
    severity: Severity
    confidence: float
    first_bad_step: int
    last_bad_step: int
    state: State
    summary: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[str, ...]
    variant: str | None = None
    metrics: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
    caused_by: str | None = None
    statement: str = ""
    excerpt: Excerpt | None = field(default=None, compare=False)
    onset_logged: bool = field(default=False, compare=False)
    attempt: int = 0
    resolved_by: int | None = None

    @property
    def key(self) -> str:
        """Identity within one report: `DETECTOR[:variant]@first_bad_step[/metric][#attempt]`.

        The attempt is left out where it is the first.
        """
        variant = f":{self.variant}" if self.variant else ""
        metric = f"/{self.metrics[0]}" if self.metrics else ""
        attempt = f"#{self.attempt}" if self.attempt > 1 else ""
        return f"{self.detector}{variant}@{self.first_bad_step}{metric}{attempt}"

    def __repr__(self) -> str:
        from rlprobe import _display

        return _display.finding_repr(self)

    def __str__(self) -> str:
        from rlprobe import _display

        return _display.finding_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from rlprobe import _display

        return _display.finding_html(self)


@dataclass(frozen=True, slots=True)
class Restore:
    """The checkpoint to go back to.

    Attributes:
        lacks: parts needed to resume that the checkpoint is known not to hold.
        has: parts it is known to hold; empty when nothing is known of its content.
    """

    step: int
    path: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """One finding of an incident, with its lead: steps after the root's onset."""

    key: str
    detector: str
    step: int
    lead: int


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings linked by cause: a root, then its consequences in order of onset.

    Attributes:
        root: `key` of the root finding.
        severity: the highest severity in the chain, of what is not resolved where something is not.
        last_good_step: last logged step before the root's onset; None when the run began bad.
        ended_run: whether the run died of it.
        story: one paragraph that an engineer would send to the team.
        attempt: the root's.
        resolved_by: the later attempt that went back before all of it and is clean past it.
    """

    root: str
    severity: Severity
    chain: tuple[Link, ...]
    last_good_step: int | None
    restore: Restore | None
    ended_run: bool
    story: str
    attempt: int = 1
    resolved_by: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of one detector: fired, clean, not_checked, inconclusive or failed, and why."""

    detector: str
    state: CoverageState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Signs of life of a run that has not told its end.

    Attributes:
        state: `running`, or `unknown` where its processes are on another machine.
        started: seconds since the epoch; NaN where not known.
        last_row: when the last row was recorded, likewise; None where there is none.
        pace: seconds from one row to the next, as it used to be; None where too few tell.
    """

    state: str
    started: float
    last_row: float | None
    pace: float | None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was scanned.

    Attributes:
        source: how it was read: `recording`, or the importer's format name.
        rows: metric rows read.
        ranks: ranks that reported; 0 when only global values are known.
        notes: assumptions made while reading, e.g. that steps are row numbers.
        health: what the recorder says it lost, e.g. `0 rows dropped`; empty when nothing is known.
        unread: what looks like metrics in the log and was not understood, one entry per thing.
        pulse: signs of life, where the run has not told its end.
    """

    id: str
    source: str
    framework: str | None
    algorithm: str | None
    first_step: int | None
    last_step: int | None
    rows: int
    attempts: tuple[Attempt, ...]
    ranks: int
    notes: tuple[str, ...] = ()
    health: str = ""
    unread: tuple[Unread, ...] = ()
    pulse: Pulse | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ScanReport:
    """Everything a scan has to say about one run.

    Attributes:
        reason: why the run was not judged, or not as a whole; one sentence, or empty.
        unmapped_metrics: metrics under names that the vocabulary has not.
    """

    path: str
    run: RunSummary
    verdict: Verdict
    findings: tuple[Finding, ...]
    incidents: tuple[Incident, ...]
    coverage: tuple[Coverage, ...]
    unmapped_metrics: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    reason: str = ""

    def finding(self, key: str) -> Finding:
        """The finding with this key; KeyError if there is none."""
        for finding in self.findings:
            if finding.key == key:
                return finding
        raise KeyError(key)

    def roots(self) -> tuple[Finding, ...]:
        """The root findings, in the order of the incidents."""
        return tuple(self.finding(incident.root) for incident in self.incidents)

    def lasting(self, incident: Incident) -> tuple[Finding, ...]:
        """What has not recovered of an incident, the worst first, where its root has.

        A metric may be as it was although the policy is lost: a dead one does not drift any more.
        """
        if self.finding(incident.root).state != "recovered":
            return ()
        chain = (self.finding(link.key) for link in incident.chain)
        lasts = [x for x in chain if x.state != "recovered" and x.severity > Severity.INFO]
        return tuple(sorted(lasts, key=lambda finding: -finding.severity))

    def __repr__(self) -> str:
        from rlprobe import _display

        return _display.report_repr(self)

    def __str__(self) -> str:
        from rlprobe import _display

        return _display.report_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from rlprobe import _display

        return _display.report_html(self)
