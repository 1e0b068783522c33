"""RANK_SILENT: a rank stopped reporting while the others went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import (
    Absence,
    Moment,
    Period,
    absences,
    after,
    all_steps,
    finding,
    listed,
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
HANGS = ("timeout", "timed out", "time-out", "collective", "nccl", "watchdog", "barrier", "hang")

Heard: TypeAlias = "Mapping[int, stats.IntArray]"  # steps at which each rank reported anything


@dataclass(frozen=True, slots=True)
class _Silence:
    """A rank that fell silent.

    Attributes:
        last: the last step that it reported.
        back: the step at which it reported again, or None.
        missed: logged steps without it.
    """

    rank: int
    last: int
    back: int | None
    missed: int


class RankSilent(Detector):
    """A rank stopped reporting while the others went on.

    What it detects
        A rank whose rows end, or pause, although the other ranks go on; one that lacks the last
        step before the run died in a collective operation; and one that had not come to the
        collective in which the watchdogs of the others gave up.

    Why it matters
        The others wait for it in the next collective operation and die of a time-out, hours later
        and with a message that names everybody but the rank that is missing.

    How it is computed
        From the steps at which each rank reported anything. Ranks that fall silent together are one
        finding; a rank that does not belong to a smaller or changed world any more is passed over.
        And from what the watchdogs print, in recordings and in console logs.

    What to do
        Look at that rank's machine: its own log, `dmesg` (Xid, out of memory), the network link.
        Without a trace there, take a stack dump of all ranks at the next hang.

    When it is wrong
        A restart with fewer ranks is no silence. Ranks that log more rarely than others are
        compared with their own interval. A log that holds the output of one machine alone lacks
        the ranks of the others; as many as half of those that are heard are not called missing.

    References
        PyTorch documentation: NCCL flight recorder and `TORCH_NCCL_ASYNC_ERROR_HANDLING`.
    """

    id = "RANK_SILENT"
    severity = Severity.CRITICAL
    facts_only = True
    needs = (*(("ranks", name) for name in REPORTED), ("event:collective_timeout",))
    caused_by = (
        "RANK_OUTLIER",
        "STRAGGLER",
        "GRAD_PATHOLOGY",
        "NONFINITE_METRIC",
        "KV_CACHE_PRESSURE",
        "LENGTH_EXPLOSION",
    )

    missed: float = knob(5, "intervals that a silent rank has missed", minimum=1)

    flush_seconds = fixed(10.0, "what a kill may cost a rank of its last rows, with a wide margin")
    at_once = fixed(2, "logged steps within which several ranks fall silent together")
    crowd = fixed(4, "ranks that a run needs for one of them to be alone behind")
    few = fixed(8, "one rank in so many, or a single one, may lack the last step")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per moment at which ranks fell silent; at its end, only where none did."""
        if run.incomplete("ranks") or run.incomplete("events"):
            raise Inconclusive("part of what the ranks recorded could not be read")
        told = [self._missing(run, item) for item in absences(run)]
        yield from told
        heard = _heard(run)
        if len(heard) < 2:
            if told:
                return
            raise Inconclusive("fewer than two ranks reported values of their own")
        for entry in (item for item in self.rules() if item.variant != "missing"):
            silences = sorted(entry.judge(self, run, heard), key=lambda silence: silence.last)
            lasts = np.array([silence.last for silence in silences])
            for start, end in stats.clusters(lasts, self.at_once * run.interval):
                yield self._finding(run, silences[start : end + 1], entry.variant, len(heard))
            if silences:
                return

    @rule("missing")
    def _missing(self, run: RunContext, item: Absence) -> Finding:
        """A collective timed out, and of its process group at most half of the ranks had begun
        fewer collectives than the others; or at most a third of all ranks said nothing while the
        others waited in one and the same operation. Critical.
        """
        step = run.last_step if item.step is None else item.step
        first = next(iter(item.ranks))
        plural = "s" if len(item.ranks) > 1 else ""
        behind = (
            f"had begun collective {item.reached:,} when the others were at {item.others:,}"
            if item.reached is not None and item.others is not None
            else f"said nothing while {item.heard} others gave up"
        )
        where = f" in {item.operation}" if item.operation else ""
        missed = item.others if item.reached is None else item.reached
        episode = finding(
            self,
            Moment(step, "ended_run" if run.ended else "ongoing"),
            f"A collective{where} timed out{after(step)}: rank{plural} {listed(item.ranks, 8)} "
            f"{behind}.",
            variant="missing",
            severity=Severity.CRITICAL,
            confidence=0.9 if item.reached is not None else 0.6,
            evidence=(
                Evidence(
                    "event:collective_timeout",
                    item.step,
                    float(item.heard if missed is None else missed),
                    None if item.others is None else float(item.others),
                    first,
                    "ranks that told of it" if missed is None else "last collective it had begun",
                ),
            ),
            remedies=_look(first),
            ranks=list(item.ranks),
        )
        return replace(episode, attempt=item.attempt)

    @rule("silent")
    def _silent(self, run: RunContext, heard: Heard) -> Iterator[_Silence]:
        """A rank misses more than `missed` of its own usual intervals while at least half of the
        others go on; at the end of a run that died, also more than a kill may have cost it.
        Critical; a warning if it came back.
        """
        flush = self._flush_steps(run)
        every = all_steps(list(heard.values()))
        missed_between = lru_cache(maxsize=None)(partial(_others_in, heard))
        for rank, own in heard.items():
            usual = int(np.fmax(run.interval, stats.median(np.diff(own))))
            limit = self.missed * usual
            gaps = np.flatnonzero(np.diff(own) > limit + usual)[: stats.MOST_EPISODES]
            backs: list[int | None] = [*own[gaps + 1].tolist(), None]
            for last, back in zip([*own[gaps].tolist(), int(own[-1])], backs, strict=True):
                least = limit if back else max(limit, flush)
                until = back or run.last_step + 1
                most = np.diff(every.searchsorted((last + 1, until)))[0]  # nobody has more
                if most * run.interval <= least:
                    continue
                missed = missed_between(last, until)
                if missed * run.interval > least and not _left(run, rank, last):
                    yield _Silence(rank, last, back, missed)

    def _flush_steps(self, run: RunContext) -> float:
        """Rows that a rank may have lost when the run died; 0 where it did not."""
        pace = run.series("step_time")
        seconds = float("nan") if pace is None else stats.median(pace.values)
        return self.flush_seconds / seconds if run.ended and seconds > 0 else 0.0

    @rule("before_end")
    def _before_end(self, run: RunContext, heard: Heard) -> list[_Silence]:
        """No rank is silent, but the run ended in a collective time-out and a few ranks lack its
        very last step: no more than one in eight, or one. Critical.
        """
        ends = {rank: int(steps[-1]) for rank, steps in heard.items()}
        final = max(ends.values())
        behind = [_Silence(rank, end, None, 1) for rank, end in ends.items() if end < final]
        few = len(ends) >= self.crowd and len(behind) <= max(1, len(ends) // self.few)
        return behind if few and _hung(run) else []

    def _finding(
        self, run: RunContext, group: list[_Silence], variant: str | None, ranks: int
    ) -> Finding:
        silent = sorted({item.rank for item in group})
        last, missed = group[0].last, max(item.missed for item in group)
        backs = [item.back for item in group if item.back is not None]
        recovered = len(backs) == len(group)
        seen = max(backs) - 1 if recovered else run.last_step
        period = Period(run, min(last + run.interval, run.last_step), seen, recovered)
        plural = "s" if len(silent) > 1 else ""
        what = (
            f"stopped reporting{after(last)} while the others went on"
            if variant == "silent"
            else f"lack{'' if plural else 's'} the last step that the others reported, and the run "
            "hung"
        )
        again = f", until step {seen + 1:,}" if recovered else ""
        note = "last step of the rank, against the last of the run"
        return finding(
            self,
            period,
            f"Rank{plural} {listed(silent, 8)} of {ranks} {what}{again}: "
            f"{missed:,} logged step{'s' if missed != 1 else ''} missed.",
            variant=variant,
            severity=Severity.WARNING if recovered else Severity.CRITICAL,
            confidence=0.9 if variant == "silent" else 0.6,
            evidence=(
                Evidence("step", last, float(last), float(run.last_step), silent[0], note),
                Evidence("step", None, float(missed), rank=silent[0], note="steps missed"),
            ),
            remedies=_look(silent[0]),
            ranks=silent,
        )


def _look(rank: int) -> tuple[str, ...]:
    return (
        f"read the log and `dmesg` of the machine of rank {rank} around that step",
        "take stack dumps of all ranks at the next hang (py-spy, the NCCL flight recorder)",
        "restart without that machine from the last checkpoint",
    )


def _heard(run: RunContext) -> Heard:
    steps: dict[int, list[stats.IntArray]] = {}
    for metric in REPORTED:
        for rank, series in run.rank_series(metric).items():
            steps.setdefault(rank, []).append(series.steps)
    return {rank: all_steps(parts) for rank, parts in sorted(steps.items())}


def _others_in(heard: Heard, last: int, back: int) -> int:
    """Steps in between that at least half of the other ranks reported (their median number).

    The rank in question reported none of them, and so is the first of all in order.
    """
    between = (steps.searchsorted((last + 1, back)) for steps in heard.values())
    _, *others = sorted(int(end - start) for start, end in between)
    return others[len(others) // 2]


def _left(run: RunContext, rank: int, last: int) -> bool:
    """Whether the rank is no longer part of the run: a restart with a smaller world."""
    later = [item.world_size for item in run.attempts if (item.first_step or 0) > last]
    several = any(item.world_size > 1 for item in run.attempts[:1])
    smaller = any(size <= rank for size in later if size > 1 or several)
    return smaller or any((event.step or 0) >= last for event in run.events("topology_changed"))


def _hung(run: RunContext) -> bool:
    crashes = run.events("crash")
    texts = [
        f"{item.message} {item.data.get('kind')} {item.data.get('exception')}" for item in crashes
    ]
    return any(word in text.lower() for text in texts for word in HANGS)
