"""DATA_REPLAY: after a restart the same prompts come again, or a batch was left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlprobe import stats
from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    Rollout,
    RunContext,
    Severity,
    fixed,
    knob,
    rule,
)
from rlprobe.rule import SINCE, Moment, Period, finding, restarts

WHOLE_BATCH = "all groups"  # why rollouts were kept, where those of all groups were
REMEDIES = (
    "save and restore the data cursor with the checkpoint",
    "if a batch did the harm, leave it out on purpose and write that down",
)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Prompts recorded at one step."""

    step: int
    prompts: frozenset[str]
    samples: tuple[str, ...]
    whole: bool  # all groups of the batch were recorded


Batches: TypeAlias = "Sequence[_Batch]"


@dataclass(frozen=True, slots=True)
class _Match:
    """A batch after a restart and a known batch that may be the same."""

    batch: _Batch
    source: _Batch

    @property
    def share(self) -> float:
        """Share of its prompts that the known batch has."""
        return len(self.batch.prompts & self.source.prompts) / len(self.batch.prompts)


@dataclass(frozen=True, slots=True)
class _Restart:
    """Batches around a restart.

    Attributes:
        taken_back: those that earlier launches had had from the restart on.
        later: recorded steps from the restart on.
    """

    run: RunContext
    step: int
    before: Batches
    after: Batches
    taken_back: Batches
    later: Sequence[int]


class DataReplay(Detector):
    """After a restart the same prompts come again, or the batch that did harm was left out.

    What it detects
        Batches after a restart whose prompts had been trained on before it, and batches that are
        ahead of where the data should be, so that some were left out.

    Why it matters
        Without the data cursor a restart trains on the first prompts a second time and never sees
        the last ones. If a batch caused the incident, the same batch comes again and causes it
        again; if it was left out in silence, nobody knows that the run is not comparable.

    How it is computed
        From the prompts of recorded rollouts: each batch after a restart is compared with the known
        batch that it shares most prompts with, also of those that an earlier launch had trained on
        beyond the restart: when the data go back with the weights, these come again. A run that had
        met known prompts before its restart, too, or restarts at the end of an epoch, is passed
        over.

    What to do
        Save the data cursor with the checkpoint, and move it past a batch on purpose, in the log.

    When it is wrong
        Small data sets repeat anyway, and a restart at the end of an epoch begins the data again:
        both are passed over. Where few groups are recorded, batches may share none by chance. Data
        that are drawn anew for each launch never come again, and nothing is amiss.

    References
        PyTorch documentation, StatefulDataLoader. transformers `Trainer`, `ignore_data_skip`.
    """

    id = "DATA_REPLAY"
    severity = Severity.WARNING
    facts_only = True
    needs = (("samples",),)
    stage = "machine"
    caused_by = ("RESTART_DISCONTINUITY",)

    share: float = knob(0.5, "share of known prompts that is a replay", minimum=0.1, maximum=1)

    most_before = fixed(64, "recorded steps that are read before a restart: the first and the last")
    most_after = fixed(12, "recorded steps that are read after it")
    least_steps = fixed(2, "recorded steps that must repeat, and that must be there on either side")
    new = fixed(0.2, "mean share of known prompts up to which a run had met mostly new ones")
    near_epoch = fixed(0.02, "of an epoch: a restart so close to its end begins the data again")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per restart after which prompts come again, or do not come that should."""
        short = False
        for step in restarts(run)[:20]:
            at = self._around(run, step)
            if min(len(at.before), len(at.after)) < self.least_steps:
                short = True
            elif _repeats(at.before) <= self.new and not self._new_epoch(run, step):
                judged = (entry.judge(self, at) for entry in self.rules())
                yield from itertools.islice(filter(None, judged), 1)
        if short:
            raise Inconclusive("too few recorded rollouts around a restart")

    @rule("replayed")
    def _replayed(self, at: _Restart) -> Finding | None:
        """At least `share` of the prompts of several batches had been seen before the restart. A
        warning.
        """
        matches = self._matches(at.after, at.before)
        if len(matches) < self.least_steps:
            return None
        what = (
            f"prompts of step {matches[0].source.step:,} on come again{SINCE}, on {len(matches):,} "
            "recorded steps"
        )
        return self._finding(at, matches, what, "replayed")

    @rule("skipped")
    def _skipped(self, at: _Restart) -> Finding | None:
        """No batch comes again, and the first one has `share` of the prompts of a later step, which
        an earlier launch that had got further tells. A warning.
        """
        if self._matches(at.after, at.before):
            return None
        for match in self._matches(at.after[:1], at.taken_back):
            step, source = match.batch.step, match.source.step
            if source > step:
                what = (
                    f"step {step:,} has the prompts that belong to step {source:,}: "
                    f"{source - step:,} batches were left out"
                )
                return self._finding(at, [match], what, "skipped")
        return None

    @rule("lost")
    def _lost(self, at: _Restart) -> Finding | None:
        """Batches that an earlier launch had had from the restart on were rolled back with the
        weights, and none of their prompts comes again, with all groups of them recorded. A warning.
        """
        run, back = at.run, at.taken_back
        steps = [*at.later[: self.most_before // 2], *at.later[-self.most_before // 2 :]]
        since = _batches(run.rollouts, sorted(set(steps)))
        if len(back) < self.least_steps or not all(batch.whole for batch in (*back, *since)):
            return None
        seen = frozenset().union(*(batch.prompts for batch in since))
        if any(batch.prompts & seen for batch in back):
            return None
        first, last = back[0].step, back[-1].step
        note = "share of the prompts of this step of an earlier launch that came again"
        return finding(
            self,
            Moment(since[0].step, "ongoing" if since[0].step == run.last_step else "recovered"),
            f"After the restart at step {at.step:,}, nothing of the {len(back):,} recorded batches "
            f"of steps {first:,} to {last:,} comes again, which were rolled back with the weights: "
            "what set off a failure may be among them.",
            variant="lost",
            confidence=0.7,
            evidence=(Evidence("samples", batch.step, 0.0, note=note) for batch in back[:5]),
            remedies=REMEDIES,
            samples=(*since[0].samples[:8], *back[0].samples[:8]),
        )

    def _around(self, run: RunContext, step: int) -> _Restart:
        steps, half = run.sample_steps(), self.most_before // 2
        earlier = [known for known in steps if known < step]
        later = [known for known in steps if known >= step]
        numbers = [item.number for item in run.attempts if item.first_step == step]
        back = [known for known in run.abandoned_steps() if known >= step] if numbers else []

        def taken_back(known: int) -> list[Rollout]:
            return [item for item in run.abandoned(known) if item.attempt < numbers[0]]

        return _Restart(
            run,
            step,
            before=_batches(run.rollouts, [*earlier[:half], *earlier[half:][-half:]]),
            after=_batches(run.rollouts, later[: self.most_after]),
            taken_back=_batches(taken_back, back[: self.most_before]),
            later=later,
        )

    def _new_epoch(self, run: RunContext, restart: int) -> bool:
        """Whether the restart is at the end of an epoch."""
        near = np.array([restart - run.interval, restart])
        logged = stats.at_steps(run.series("epoch"), near)
        done = next((value for value in logged.tolist() if not math.isnan(value)), 0.5)
        return min(done % 1, 1 - done % 1) <= self.near_epoch and done >= 1 - self.near_epoch

    def _matches(self, after: Batches, known: Batches) -> list[_Match]:
        """Batches that have enough in common with a known one, each with the first closest."""
        pairs = ([_Match(batch, source) for source in known] for batch in after if known)
        nearest = (
            max(of_batch, key=lambda pair: (pair.share, -pair.source.step)) for of_batch in pairs
        )
        return [match for match in nearest if match.share >= self.share]

    def _finding(self, at: _Restart, matches: Sequence[_Match], what: str, variant: str) -> Finding:
        first, last = matches[0], matches[-1].batch.step
        note = "share of its prompts that step {:,} had"
        return finding(
            self,
            Period(at.run, first.batch.step, last, recovered=last < at.run.last_step),
            f"After the restart at step {at.step:,}, {what}.",
            variant=variant,
            confidence=0.85,
            evidence=(
                Evidence("samples", m.batch.step, m.share, note=note.format(m.source.step))
                for m in matches[:5]
            ),
            remedies=REMEDIES,
            samples=(*first.batch.samples[:8], *first.source.samples[:8]),
        )


def _batches(rollouts: Callable[[int], Sequence[Rollout]], steps: Sequence[int]) -> list[_Batch]:
    batches = []
    for step in steps:
        known = [item for item in rollouts(step) if item.prompt_id or item.prompt]
        prompts = frozenset(item.prompt_id or str(item.prompt) for item in known)
        if prompts:
            whole = all(item.capture_reason == WHOLE_BATCH for item in known)
            samples = tuple(item.sample_id for item in known)
            batches.append(_Batch(step, prompts, samples, whole))
    return batches


def _repeats(batches: Batches) -> float:
    """Mean share of prompts that an earlier batch of these had, too."""
    seen: set[str] = set(batches[0].prompts)
    shares = []
    for batch in batches[1:]:
        shares.append(len(batch.prompts & seen) / len(batch.prompts))
        seen |= batch.prompts
    return sum(shares) / len(shares)
