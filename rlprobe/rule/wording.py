"""An episode in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rlprobe.detector import Detector
from rlprobe.findings import Evidence, Finding, Severity, State
from rlprobe.numbers import short
from rlprobe.rule.episodes import Change, Stretch
from rlprobe.rule.levels import Levels
from rlprobe.rule.rewards import Learnt

SINCE = "\ue000"  # in a sentence: "from step N on"; a story, which gives the step, leaves it out
_ASIDE = "\ue001"  # on both sides of what a story leaves out


class Episode(Protocol):
    """What a finding is about: a `Stretch`, a `Period`, or a detector's own."""

    @property
    def first(self) -> int:
        """First bad step."""
        ...

    @property
    def last(self) -> int:
        """Last step that belongs to it."""
        ...

    @property
    def state(self) -> State:
        """Whether it goes on, has passed, or ended the run."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that show it."""
        ...


def finding(  # noqa: PLR0913 - the fields of a finding
    detector: Detector,
    episode: Episode,
    sentence: str,
    *,
    evidence: Iterable[Evidence | None],
    remedies: Iterable[str],
    severity: Severity | None = None,
    confidence: float = 0.8,
    variant: str | None = None,
    metrics: Sequence[str] | None = None,
    ranks: Sequence[int] = (),
    samples: Sequence[str] = (),
) -> Finding:
    """The finding of an episode: id, steps and state are filled in.

    Args:
        sentence: what happened, with the numbers; `SINCE` stands for "from step N on", `after`
            writes "after step N".
        evidence: what it rests on; None is left out.
        remedies: what to try, most likely cure first; "" is left out.
        severity: default: the detector's worst.
        metrics: default: the episode's own.
    """
    since = f" from step {episode.first:,} on"
    dated = sentence.replace(f",{SINCE}", _aside(f",{since}")).replace(SINCE, _aside(since))
    parts = dated.split(_ASIDE)
    return Finding(
        detector=detector.id,
        variant=variant,
        severity=detector.severity if severity is None else severity,
        confidence=confidence,
        first_bad_step=episode.first,
        last_bad_step=episode.last,
        state=episode.state,
        summary="".join(parts),
        statement="".join(parts[::2]),
        evidence=tuple(item for item in evidence if item is not None),
        remedies=tuple(remedy for remedy in remedies if remedy),
        metrics=tuple(episode.metrics if metrics is None else metrics),
        ranks=tuple(ranks),
        samples=tuple(samples),
    )


def shift_finding(  # noqa: PLR0913 - what a shift is told by
    detector: Detector,
    stretch: Stretch,
    what: str,
    levels: tuple[float, float],
    *,
    severity: Severity,
    beside: Change,
    remedies: Iterable[str],
    confidence: float = 0.7,
    why: str = "",
) -> Finding:
    """The finding of a level that went to another one in one row, and stays: variant `shift`.

    Args:
        what: what has the level, and `{}` where the two numbers stand.
        levels: before and after.
        beside: what another metric did meanwhile.
        why: what the run tells of it.
    """
    before, now = levels
    went = what.format(f"from {short(before)} to {short(now)}")
    told = f" ({why})" if why else ""
    return finding(
        detector,
        stretch,
        f"{went} in one row{told} and stayed there,{SINCE}.",
        variant="shift",
        severity=severity,
        confidence=confidence,
        evidence=(
            stretch.at_onset(before),
            stretch.in_all(now, before, "level since, against the rows before"),
            beside.evidence(),
        ),
        remedies=(
            "what changed at this step: data, sampling settings, weights, stop tokens, the cap?",
            *remedies,
        ),
    )


def drift_finding(
    detector: Detector,
    stretch: Stretch,
    what: str,
    levels: Levels,
    learnt: Learnt | None,
    *,
    remedies: Iterable[str],
) -> Finding:
    """The finding of a level that drifted over the run while nothing was learnt: variant `slow`.

    Info where no reward is logged that would tell why.

    Args:
        what: what drifted and how, and `{}` where the two numbers stand.
        learnt: what the task gained meanwhile, which was not enough.
    """
    begun, now = levels.beginning, levels.now
    gain = "and no reward is logged that would tell why"
    if learnt is not None:
        gain = f"while {learnt.metric} went from {short(learnt.before)} to {short(learnt.now)} only"
    return finding(
        detector,
        stretch,
        f"{what.format(f'from {short(begun)} to {short(now)}')} over the run,{SINCE}, {gain}.",
        variant="slow",
        severity=Severity.INFO if learnt is None else Severity.WARNING,
        confidence=0.5 if learnt is None else 0.7,
        evidence=(
            stretch.at_onset(begun),
            stretch.in_all(now, begun, "median of the last tenth against the first"),
            None if learnt is None else learnt.evidence(),
        ),
        remedies=remedies,
    )


def after(step: int) -> str:
    """In a sentence: " after step N"; a story, which gives the step, leaves it out."""
    return _aside(f" after step {step:,}")


def _aside(text: str) -> str:
    return f"{_ASIDE}{text}{_ASIDE}"


def listed(names: Sequence[object], most: int = 4) -> str:
    """The first few of many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def restore(step: int) -> str:
    """The remedy that undoes what came after a step."""
    return f"restore a checkpoint from before step {step:,}"
