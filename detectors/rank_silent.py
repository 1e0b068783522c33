"""RANK_SILENT: a rank stopped reporting while the others went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Event,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Series,
    Severity,
    knob,
)

REPORTED = (
    "step_time",
    "loss",
    "grad_norm",
    "reward_mean",
    "completion_length_mean",
    "kl_mean",
    "entropy",
    "tokens_per_second",
    "memory_allocated",
)
FLUSH_SECONDS = 10.0  # what a kill may cost a rank of its last rows, with a wide margin
HANGS = ("timeout", "timed out", "time-out", "collective", "nccl", "watchdog", "barrier", "hang")


@dataclass(frozen=True, slots=True)
class _Silence:
    """Ranks that fell silent after the same step.

    Attributes:
        last: the last step that they reported.
        back: the step at which they reported again, or None.
        missed: logged steps without them.
    """

    ranks: tuple[int, ...]
    last: int
    back: int | None
    missed: int
    at_end: bool


class RankSilent(Detector):
    """A rank stopped reporting while the others went on.

    What it detects
        A rank whose rows end, or pause, although the other ranks go on (`silent`); and one that
        lacks the last step before the run died in a collective operation (`before_end`).

    Why it matters
        The others wait for it in the next collective operation and die of a time-out, hours later
        and with a message that names everybody but the rank that is missing.

    How it is computed
        From the steps at which each rank reported anything. A rank is silent when it misses
        `missed` of its own usual intervals while at least half of the ranks go on; where the run
        died, also so many as a kill may have cost it (10 seconds' worth). One missing step is
        enough where the run ended in a collective time-out and only a few ranks lack it.

    What to do
        Look at that rank's machine: its own log, `dmesg` (Xid, out of memory), the network link.
        Without a trace there, take a stack dump of all ranks at the next hang.

    When it is wrong
        A restart with fewer ranks is no silence: ranks beyond the new world size are passed over.
        Ranks that log more rarely than others are compared with their own interval.

    References
        PyTorch documentation: NCCL flight recorder and `TORCH_NCCL_ASYNC_ERROR_HANDLING`.
    """

    id = "RANK_SILENT"
    severity = Severity.CRITICAL
    facts_only = True
    needs = tuple(("ranks", name) for name in REPORTED)
    caused_by = (
        "RANK_OUTLIER",
        "STRAGGLER",
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "KV_CACHE_PRESSURE",
        "LENGTH_EXPLOSION",
    )

    missed: float = knob(5, "intervals that a silent rank has missed", minimum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per moment at which ranks fell silent."""
        heard = _heard(run)
        if len(heard) < 2:
            raise Inconclusive("fewer than two ranks reported values of their own")
        found = [
            item for rank, own in heard.items() for item in self._silences(run, rank, own, heard)
        ]
        for group in _together(found or _before_end(run, heard), run.interval):
            yield _finding(run, group, len(heard))

    def _silences(
        self, run: RunContext, rank: int, own: stats.IntArray, heard: Mapping[int, stats.IntArray]
    ) -> Iterator[_Silence]:
        usual = _interval(own, run.interval)
        limit = self.missed * usual
        gaps = np.flatnonzero(np.diff(own) > limit + usual)
        for gap in gaps[: stats.MOST_EPISODES].tolist():
            last, back = int(own[gap]), int(own[gap + 1])
            missed = _others_in(heard, rank, last, back)
            if missed * run.interval > limit and not _left(run, rank, last):
                yield _Silence((rank,), last, back, missed, at_end=False)
        last = int(own[-1])
        missed = _others_in(heard, rank, last, run.last_step + 1)
        if missed * run.interval > max(limit, _flush_steps(run)) and not _left(run, rank, last):
            yield _Silence((rank,), last, None, missed, at_end=False)


def _heard(run: RunContext) -> dict[int, stats.IntArray]:
    """Steps at which each rank reported anything."""
    steps: dict[int, list[stats.IntArray]] = {}
    for metric in REPORTED:
        for rank, series in run.rank_series(metric).items():
            steps.setdefault(rank, []).append(series.steps)
    return {rank: _merged(parts) for rank, parts in sorted(steps.items())}


def _merged(parts: list[stats.IntArray]) -> stats.IntArray:
    first = parts[0]
    if all(len(part) == len(first) and bool((part == first).all()) for part in parts[1:]):
        return first
    return np.unique(np.concatenate(parts))


def _interval(steps: stats.IntArray, usual: int) -> int:
    return max(usual, int(np.median(np.diff(steps)))) if len(steps) > 1 else usual


def _others_in(heard: Mapping[int, stats.IntArray], rank: int, last: int, back: int) -> int:
    """Steps in between that at least half of the other ranks reported (their median number)."""
    counts = sorted(
        int(np.searchsorted(steps, back) - np.searchsorted(steps, last, side="right"))
        for other, steps in heard.items()
        if other != rank
    )
    return counts[len(counts) // 2] if len(counts) > 2 else counts[-1]


def _left(run: RunContext, rank: int, last: int) -> bool:
    """Whether the rank is no longer part of the run: a restart with a smaller world."""
    later = [item for item in run.attempts if (item.first_step or 0) > last]
    smaller = any(1 < item.world_size <= rank for item in later) or any(
        item.world_size == 1 and rank > 0 and run.attempts[0].world_size > 1 for item in later
    )
    changed = any((event.step or 0) >= last for event in run.events("topology_changed"))
    return smaller or changed


def _flush_steps(run: RunContext) -> float:
    """Rows that a rank may have lost when the run died; 0 where it did not."""
    pace: Series | None = run.series("step_time")
    seconds = stats.median(pace.values) if pace is not None else float("nan")
    return FLUSH_SECONDS / seconds if run.ended and seconds > 0 else 0.0


def _before_end(run: RunContext, heard: Mapping[int, stats.IntArray]) -> list[_Silence]:
    """The few ranks that lack the very last step of a run that hung."""
    if not any(_hung(event) for event in run.events("crash")):
        return []
    ends = {rank: int(steps[-1]) for rank, steps in heard.items()}
    final = max(ends.values())
    behind = [rank for rank, end in ends.items() if end < final]
    if len(ends) < 4 or len(behind) > max(1, len(ends) // 8):
        return []
    return [_Silence((rank,), ends[rank], None, 1, at_end=True) for rank in behind]


def _hung(event: Event) -> bool:
    text = f"{event.message} {event.data.get('kind')} {event.data.get('exception')}".lower()
    return any(word in text for word in HANGS)


def _together(found: list[_Silence], interval: int) -> Iterator[_Silence]:
    """Silences of several ranks that begin together, as one; half of all ranks at most."""
    groups: list[list[_Silence]] = []
    for item in sorted(found, key=lambda silence: (silence.last, silence.ranks)):
        if groups and item.last - groups[-1][0].last <= 2 * interval:
            groups[-1].append(item)
        else:
            groups.append([item])
    for group in groups:
        ranks = tuple(sorted({rank for item in group for rank in item.ranks}))
        backs = [item.back for item in group if item.back is not None]
        back = max(backs) if len(backs) == len(group) else None
        missed = max(item.missed for item in group)
        yield _Silence(ranks, group[0].last, back, missed, at_end=group[0].at_end)


def _finding(run: RunContext, silence: _Silence, ranks: int) -> Finding:
    first = silence.last + run.interval
    names = ", ".join(map(str, silence.ranks[:8]))
    many = len(silence.ranks) > 1
    rest = (
        f"lack{'' if many else 's'} the last step that the others reported, and the run hung"
        if silence.at_end
        else f"stopped reporting after step {silence.last:,} while the others went on"
    )
    again = "" if silence.back is None else f", until step {silence.back:,}"
    recovered = silence.back is not None
    return Finding(
        detector="RANK_SILENT",
        variant="before_end" if silence.at_end else "silent",
        severity=Severity.WARNING if recovered else Severity.CRITICAL,
        confidence=0.6 if silence.at_end else 0.9,
        first_bad_step=min(first, run.last_step),
        last_bad_step=run.last_step if silence.back is None else silence.back - 1,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=(
            f"Rank{'s' if many else ''} {names} of {ranks} {rest}{again}: "
            f"{silence.missed:,} logged step{'s' if silence.missed != 1 else ''} missed."
        ),
        evidence=(
            Evidence(
                "step",
                silence.last,
                float(silence.last),
                float(run.last_step),
                rank=silence.ranks[0],
                note="last step of the rank, against the last of the run",
            ),
            Evidence(
                "step", None, float(silence.missed), rank=silence.ranks[0], note="steps missed"
            ),
        ),
        remedies=(
            f"read the log and `dmesg` of the machine of rank {silence.ranks[0]} around that step",
            "take stack dumps of all ranks at the next hang (py-spy, the NCCL flight recorder)",
            "restart without that machine from the last checkpoint",
        ),
        ranks=silence.ranks,
    )
