"""DATA_REPLAY: after a restart the same prompts come again, or a batch was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlprobe.detector import (
    Detector,
    Evidence,
    Finding,
    Inconclusive,
    RunContext,
    Severity,
    knob,
)

MOST_BEFORE = 64  # sampled steps that are read before a restart: the first and the last of them
MOST_AFTER = 12  # and after it
LEAST_STEPS = 2  # of them that must repeat
NEW = 0.2  # share of known prompts up to which a run had seen mostly new ones
NEAR_EPOCH = 0.02  # of an epoch


@dataclass(frozen=True, slots=True)
class _Batch:
    """Prompts recorded at one step."""

    step: int
    prompts: frozenset[str]
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Match:
    """A batch after a restart and the earlier batch that it shares most prompts with."""

    batch: _Batch
    source: _Batch
    share: float


class DataReplay(Detector):
    """After a restart the same prompts come again, or the batch that did harm was left out.

    What it detects
        Batches after a restart whose prompts had been trained on before it (`replayed`), and
        batches that are ahead of where the data should be, so that some were left out (`skipped`).

    Why it matters
        Without the data cursor a restart trains on the first prompts a second time and never sees
        the last ones. If a batch caused the incident, the same batch comes again and causes it
        again; if it was left out in silence, nobody knows that the run is not comparable.

    How it is computed
        From the prompts of recorded rollouts. After each restart, the share of prompts that had
        been seen before it is compared with the same share before the restart: a run that met new
        prompts until then, and now meets at least `share` known ones on several steps, replays. An
        earlier launch that had got further tells which batch belongs to which step.

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

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """One finding per restart after which prompts come again."""
        steps = run.sample_steps()
        doubt = ""
        for restart in _restarts(run):
            before = _batches(run, _ends([step for step in steps if step < restart]))
            after = _batches(run, [step for step in steps if step >= restart][:MOST_AFTER])
            ahead = _left_over(run, restart, steps)
            if len(before) < LEAST_STEPS or len(after) < LEAST_STEPS:
                doubt = "too few recorded rollouts around a restart"
                continue
            if _repeats(before) > NEW or _new_epoch(run, restart):
                continue
            found = self._matches(after, before)
            if len(found) >= LEAST_STEPS:
                yield _finding(run, restart, found, "replayed")
            skipped = self._matches(after[:1], ahead)
            if skipped and not found and skipped[0].source.step > after[0].step:
                yield _finding(run, restart, skipped, "skipped")
        if doubt:
            raise Inconclusive(doubt)

    def _matches(self, after: list[_Batch], known: list[_Batch]) -> list[_Match]:
        return [
            match for batch in after for match in _best(batch, known) if match.share >= self.share
        ]


def _restarts(run: RunContext) -> list[int]:
    launches = [attempt.first_step for attempt in run.attempts if attempt.number > 1]
    resumed = [event.step for event in run.events("resumed")]
    steps = {step for step in (*launches, *resumed) if step is not None}
    return sorted(step for step in steps if step > run.first_step)[:20]


def _ends(steps: list[int]) -> list[int]:
    """The first and the last of many steps."""
    half = MOST_BEFORE // 2
    return steps if len(steps) <= MOST_BEFORE else [*steps[:half], *steps[-half:]]


def _batches(run: RunContext, steps: list[int]) -> list[_Batch]:
    found = []
    for step in steps:
        rollouts = [
            rollout for rollout in run.rollouts(step) if rollout.prompt_id or rollout.prompt
        ]
        prompts = frozenset(rollout.prompt_id or str(rollout.prompt) for rollout in rollouts)
        if prompts:
            found.append(_Batch(step, prompts, tuple(rollout.sample_id for rollout in rollouts)))
    return found


def _left_over(run: RunContext, restart: int, steps: tuple[int, ...]) -> list[_Batch]:
    """Batches of an earlier launch beyond the last step of the one that took over."""
    numbers = [attempt.number for attempt in run.attempts if attempt.first_step == restart]
    if not numbers:
        return []
    beyond = [step for step in steps if step > restart][-MOST_BEFORE:]
    return [
        batch
        for batch in _batches(run, beyond)
        if any(rollout.attempt < numbers[0] for rollout in run.rollouts(batch.step)[:1])
    ]


def _repeats(batches: list[_Batch]) -> float:
    """Mean share of prompts that an earlier batch of these had, too."""
    seen: set[str] = set()
    shares = []
    for batch in batches:
        if seen:
            shares.append(len(batch.prompts & seen) / len(batch.prompts))
        seen |= batch.prompts
    return sum(shares) / len(shares) if shares else 0.0


def _new_epoch(run: RunContext, restart: int) -> bool:
    epoch = run.series("epoch")
    if epoch is None:
        return False
    at: Mapping[int, float] = dict(zip(epoch.steps.tolist(), epoch.values.tolist(), strict=True))
    done = at.get(restart - run.interval, at.get(restart, 0.5))
    return min(done % 1, 1 - done % 1) <= NEAR_EPOCH and done >= 1 - NEAR_EPOCH


def _best(batch: _Batch, known: list[_Batch]) -> Iterator[_Match]:
    shared = [(len(batch.prompts & other.prompts), -other.step, other) for other in known]
    most, _, source = max(shared, default=(0, 0, batch), key=lambda item: item[:2])
    if most:
        yield _Match(batch, source, most / len(batch.prompts))


def _finding(run: RunContext, restart: int, found: list[_Match], variant: str) -> Finding:
    first, last = found[0], found[-1]
    step, source = first.batch.step, first.source.step
    said = (
        f"prompts of step {source:,} on come again from step {step:,} on, on {len(found):,} "
        "recorded steps"
        if variant == "replayed"
        else f"step {step:,} has the prompts that belong to step {source:,}: "
        f"{source - step:,} batches were left out"
    )
    ongoing = last.batch.step >= run.last_step
    return Finding(
        detector="DATA_REPLAY",
        variant=variant,
        severity=Severity.WARNING,
        confidence=0.85,
        first_bad_step=step,
        last_bad_step=run.last_step if ongoing else last.batch.step,
        state="ongoing" if ongoing else "recovered",
        summary=f"After the restart at step {restart:,}, {said}.",
        evidence=tuple(
            Evidence(
                "samples",
                match.batch.step,
                match.share,
                note=f"share of its prompts that step {match.source.step:,} had",
            )
            for match in found[:5]
        ),
        remedies=(
            "save and restore the data cursor with the checkpoint",
            "if a batch did the harm, leave it out on purpose and write that down",
        ),
        samples=(*first.batch.samples[:8], *first.source.samples[:8]),
    )
