"""An episode in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlprobe.detector import Detector
from rlprobe.findings import Evidence, Finding, Severity
from rlprobe.rule.episodes import Period, Stretch

SINCE = "\ue000"  # in a sentence: "from step N on"; a story, which gives the step, leaves it out


def finding(  # noqa: PLR0913 - the fields of a finding
    detector: Detector,
    episode: Period | Stretch,
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
        sentence: what happened, with the numbers; `SINCE` stands for "from step N on".
        evidence: what it rests on; None is left out.
        remedies: what to try, most likely cure first; "" is left out.
        severity: default: the detector's worst.
        metrics: default: the episode's own.
    """
    since = f" from step {episode.first:,} on"
    return Finding(
        detector=detector.id,
        variant=variant,
        severity=detector.severity if severity is None else severity,
        confidence=confidence,
        first_bad_step=episode.first,
        last_bad_step=episode.last,
        state=episode.state,
        summary=sentence.replace(SINCE, since),
        statement=sentence.replace(f",{SINCE}", "").replace(SINCE, ""),
        evidence=tuple(item for item in evidence if item is not None),
        remedies=tuple(remedy for remedy in remedies if remedy),
        metrics=tuple(episode.metrics if metrics is None else metrics),
        ranks=tuple(ranks),
        samples=tuple(samples),
    )


def listed(names: Sequence[object], most: int = 4) -> str:
    """The first few of many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def restore(step: int) -> str:
    """The remedy that undoes what came after a step."""
    return f"restore a checkpoint from before step {step:,}"
