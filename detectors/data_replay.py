"""DATA_REPLAY: after a restart the same prompts come again, or a batch was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from rlprobe.rule import SINCE, Period, finding, restarts


@dataclass(frozen=True, slots=True)
class _Batch:
    """Prompts recorded at one step."""

    step: int
    prompts: frozenset[str]
    samples: tuple[str, ...]


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
        batch that it shares most prompts with. A run that had met known prompts before its restart,
        too, or restarts at the end of an epoch, is passed over.

    What to do
        Save the data cursor with the checkpoint, and move it past a batch on purpose, in the log.

    When it is wrong
        Small data sets repeat anyway, and a restart at the end of an epoch begins the data again:
        both are passed over. Where few groups are recorded, batches may share none by chance.

    References
        PyTorch documentation, StatefulDataLoader. transformers `Trainer`, `ignore_data_skip`.
    """

    id = "DATA_REPLAY"
    severity = Severity.WARNING
    facts_only = True
    needs = (("samples",),)
    caused_by = ("RESTART_DISCONTINUITY",)

    share: float = knob(0.5, "share of known prompts that is a replay", minimum=0.1, maximum=1)

    most_before = fixed(64, "recorded steps that are read before a restart: the first and the last")
    most_after = fixed(12, "recorded steps that are read after it")
    least_steps = fixed(2, "recorded steps that must repeat, and that must be there on either side")
    new = fixed(0.2, "mean share of known prompts up to which a run had met mostly new ones")
    near_epoch = fixed(0.02, "of an epoch: a restart so close to its end begins the data again")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per restart after which prompts come again."""
        steps, half = run.sample_steps(), self.most_before // 2
        short = False
        for restart in restarts(run)[:20]:
            earlier = [step for step in steps if step < restart]
            before = _batches(run, [*earlier[:half], *earlier[half:][-half:]])
            after = _batches(run, [step for step in steps if step >= restart][: self.most_after])
            if min(len(before), len(after)) < self.least_steps:
                short = True
            elif _repeats(before) <= self.new and not self._new_epoch(run, restart):
                ahead = _left_over(run, restart, self.most_before)
                for entry in self.rules():
                    if matches := entry.judge(self, before, after, ahead):
                        yield self._finding(run, restart, matches, entry.variant)
        if short:
            raise Inconclusive("too few recorded rollouts around a restart")

    @rule("replayed")
    def _replayed(self, before: Batches, after: Batches, ahead: Batches) -> list[_Match]:
        """At least `share` of the prompts of several batches had been seen before the restart. A
        warning.
        """
        matches = self._matches(after, before)
        return matches if len(matches) >= self.least_steps else []

    @rule("skipped")
    def _skipped(self, before: Batches, after: Batches, ahead: Batches) -> list[_Match]:
        """No batch comes again, and the first one has `share` of the prompts of a later step, which
        an earlier launch that had got further tells. A warning.
        """
        matches = [] if self._matches(after, before) else self._matches(after[:1], ahead)
        return [match for match in matches if match.source.step > match.batch.step]

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

    def _finding(
        self, run: RunContext, restart: int, matches: list[_Match], variant: str | None
    ) -> Finding:
        first, last = matches[0], matches[-1].batch.step
        step, source = first.batch.step, first.source.step
        what = (
            f"prompts of step {source:,} on come again{SINCE}, on {len(matches):,} recorded steps"
            if variant == "replayed"
            else f"step {step:,} has the prompts that belong to step {source:,}: "
            f"{source - step:,} batches were left out"
        )
        note = "share of its prompts that step {:,} had"
        return finding(
            self,
            Period(run, step, last, recovered=last < run.last_step),
            f"After the restart at step {restart:,}, {what}.",
            variant=variant,
            confidence=0.85,
            evidence=(
                Evidence("samples", m.batch.step, m.share, note=note.format(m.source.step))
                for m in matches[:5]
            ),
            remedies=(
                "save and restore the data cursor with the checkpoint",
                "if a batch did the harm, leave it out on purpose and write that down",
            ),
            samples=(*first.batch.samples[:8], *first.source.samples[:8]),
        )


def _batches(run: RunContext, steps: Sequence[int]) -> list[_Batch]:
    batches = []
    for step in steps:
        rollouts = [item for item in run.rollouts(step) if item.prompt_id or item.prompt]
        prompts = frozenset(item.prompt_id or str(item.prompt) for item in rollouts)
        if prompts:
            batches.append(_Batch(step, prompts, tuple(item.sample_id for item in rollouts)))
    return batches


def _left_over(run: RunContext, restart: int, most: int) -> list[_Batch]:
    """Batches of an earlier launch beyond the last step of the one that took over."""
    numbers = [attempt.number for attempt in run.attempts if attempt.first_step == restart]
    beyond = [step for step in run.sample_steps() if step > restart][-most:] if numbers else []
    return [
        batch
        for batch in _batches(run, beyond)
        if any(rollout.attempt < numbers[0] for rollout in run.rollouts(batch.step)[:1])
    ]


def _repeats(batches: Batches) -> float:
    """Mean share of prompts that an earlier batch of these had, too."""
    seen: set[str] = set(batches[0].prompts)
    shares = []
    for batch in batches[1:]:
        shares.append(len(batch.prompts & seen) / len(batch.prompts))
        seen |= batch.prompts
    return sum(shares) / len(shares)
