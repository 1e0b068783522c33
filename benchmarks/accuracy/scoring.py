"""What was said about a run of the lab, against what is known about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy.faults import Fault


@dataclass(frozen=True)
class Alarm:
    """One thing that a tool said, at warning or above; `step` where it names one."""

    what: str
    step: int | None
    critical: bool = False


@dataclass(frozen=True)
class Score:
    """One tool on one log.

    Attributes:
        detected: an expected alarm came; for a healthy run, nothing came.
        error: rows between the first bad step and the nearest expected alarm, or None; 0 for what
            shows late.
        early: alarms clearly before the fault, or on a healthy run: false ones.
        extra: what else was said from the fault on; consequences, mostly.
    """

    tool: str
    fault: str
    seed: int
    healthy: bool
    detected: bool
    error: int | None
    early: tuple[str, ...]
    hits: tuple[str, ...]
    extra: tuple[str, ...]


def score(
    tool: str, fault: Fault, seed: int, at: int, alarms: Sequence[Alarm], *, by_class: bool = True
) -> Score:
    """Judge the alarms of one tool on one run.

    Args:
        at: the step of the fault.
        by_class: whether the names of alarms are ours; of another tool, any alarm is a hit.
    """
    slack = 2 * fault.interval
    early = [item for item in alarms if fault.healthy or (item.step or at) < at - slack]
    rest = [item for item in alarms if item not in early]
    hits = [item for item in rest if not by_class or item.what.split(":")[0] in fault.expected]
    steps = [abs(item.step - at) for item in hits if item.step is not None]
    if fault.slow:
        steps = [0 for _ in steps]
    return Score(
        tool=tool,
        fault=fault.name,
        seed=seed,
        healthy=fault.healthy,
        detected=not alarms if fault.healthy else bool(hits),
        error=min(steps) // fault.interval if steps else None,
        early=_said(early),
        hits=_said(hits),
        extra=_said([item for item in rest if item not in hits]),
    )


def _said(alarms: Sequence[Alarm]) -> tuple[str, ...]:
    return tuple(f"{item.what}@{'-' if item.step is None else item.step}" for item in alarms)


def table(scores: Sequence[Score]) -> str:
    """One line per run and tool, then the totals of each tool."""
    lines = [
        "| fault | seed | tool | found | rows off | false alarms | also said |",
        "|" + "---|" * 7,
    ]
    for item in scores:
        found = "silent" if item.healthy and item.detected else ", ".join(item.hits) or "-"
        off = "" if item.error is None else str(item.error)
        cells = (found, off, ", ".join(item.early), ", ".join(item.extra))
        lines.append(f"| {item.fault} | {item.seed} | {item.tool} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_totals(scores)])


def _totals(scores: Sequence[Score]) -> list[str]:
    lines = [
        "| tool | faults found | within 3 rows | median rows off | false alarms before a fault "
        "| on healthy runs |",
        "|" + "---|" * 6,
    ]
    for tool in dict.fromkeys(item.tool for item in scores):
        own = [item for item in scores if item.tool == tool]
        faulty = [item for item in own if not item.healthy]
        healthy = [item for item in own if item.healthy]
        errors = sorted(item.error for item in faulty if item.error is not None)
        lines.append(
            f"| {tool} | {_share([item.detected for item in faulty])} "
            f"| {_share([item.error is not None and item.error <= 3 for item in faulty])} "
            f"| {errors[len(errors) // 2] if errors else '-'} "
            f"| {_share([bool(item.early) for item in faulty])} "
            f"| {_share([bool(item.early) for item in healthy])} |"
        )
    return lines


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values)}/{len(values)}"
