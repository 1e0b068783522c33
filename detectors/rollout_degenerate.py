"""ROLLOUT_DEGENERATE: the rollouts of a group are empty, all the same, or all cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    knob,
)
from rlprobe.rule import first_bad_sampled, sampled_steps

MOST_STEPS = 100  # sampled steps that are read
SPAN = 3  # sampled steps that are looked at together
LASTING = 0.6
LEAST_GROUP = 3  # rollouts in a group
SAME = 0.75  # share of a group with one and the same text
SOLVED = 0.9  # of the best reward seen

Groups = Sequence[Sequence[Rollout]]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the groups of one step showed.

    Attributes:
        share: share of rollouts (or of groups) that are degenerate.
        reward: mean reward of the degenerate groups; NaN where not recorded.
        best: highest reward of the step.
        group: the whole group of the first degenerate rollout, or the first group, as sample ids.
    """

    step: int
    share: float
    reward: float
    best: float
    group_id: str
    group: tuple[str, ...]


class RolloutDegenerate(Detector):
    """The rollouts of a group are empty, all the same, or all cut at the cap.

    What it detects
        From recorded rollouts: completions without text (`empty`), groups in which nearly all
        completions are the same (`duplicates`), and groups in which every completion was cut at the
        cap (`after_cap`, where no truncation rate is logged).

    Why it matters
        A group learns from the differences between its rollouts. Empty, identical or unfinished
        rollouts have none, whatever the mean reward says.

    How it is computed
        The share of empty rollouts, or of such groups, at each recorded step. A step is bad at
        `share` if the run's own past was below half of it; most of three recorded steps in a row
        must be. A group is a duplicate with three quarters of its rollouts equal, letter by letter.
        The first bad step is looked for between the steps that were read.

    What to do
        Empty: look at the end token, the stop strings and the chat template. Duplicates: check the
        sampling temperature and seeds (one seed for all rollouts of a prompt?). Cut: raise the cap.

    When it is wrong
        A policy that has solved short tasks gives the same right answer each time: duplicates at
        the best reward of the run are only info.

    References
        Yu et al., DAPO (2025). vLLM documentation, per-request seeds.
    """

    id = "ROLLOUT_DEGENERATE"
    severity = Severity.WARNING
    facts_only = True
    needs = (("samples",),)
    caused_by = (
        "ENTROPY_COLLAPSE",
        "LENGTH_COLLAPSE",
        "LENGTH_EXPLOSION",
        "KL_BLOWUP",
        "GRAD_PATHOLOGY",
        "REPETITION_LOOP",
        "POLICY_MISMATCH",
        "REWARD_HACKING",
    )

    share: float = knob(0.5, "share of rollouts or groups that is bad", minimum=0.05, maximum=1)

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Empty ones, duplicates, and cut ones in turn."""
        steps = sampled_steps(run.sample_steps(), MOST_STEPS, SPAN)
        groups = {step: _groups(run, step) for step in steps}
        if not any(groups.values()):
            raise Inconclusive("no recorded group has texts or lengths")
        for variant, look in LOOKS.items():
            if variant == "after_cap" and run.series("truncation_rate") is not None:
                continue
            seen = [_look(step, groups[step], look) for step in steps if groups[step]]
            yield from self._episodes(run, seen, variant, look)

    def _episodes(
        self, run: RunContext, seen: list[_Seen], variant: str, look: Look
    ) -> Iterator[Finding]:
        shares = np.array([item.share for item in seen])
        usual = np.nan_to_num(stats.past_baseline(shares, above=0.25, warmup=2).center)
        bad = (shares >= self.share) & (usual < self.share / 2)
        for episode in stats.persistent(bad, width=SPAN, share=LASTING, gap=SPAN):
            if len(episode) < min(2, len(seen)) or (episode.start == 0 and episode.recovered):
                continue
            before = seen[episode.start - 1] if episode.start else None
            first = self._first(run, before, seen[episode.start], look)
            top = max((item.best for item in seen if np.isfinite(item.best)), default=float("nan"))
            yield _finding(run, variant, first, seen[episode.rows], before, top, episode.recovered)

    def _first(self, run: RunContext, good: _Seen | None, bad: _Seen, look: Look) -> _Seen:
        def at(step: int) -> _Seen | None:
            groups = _groups(run, step)
            found = _look(step, groups, look) if groups else None
            return found if found is not None and found.share >= self.share else None

        return first_bad_sampled(run, good.step if good else None, bad, lambda seen: seen.step, at)


# --- what is degenerate ---------------------------------------------------------------------------

Look = Callable[[Groups], tuple[float, Sequence[Sequence[Rollout]]]]


def _empty(groups: Groups) -> tuple[float, Groups]:
    hits = [[rollout for rollout in group if _is_empty(rollout)] for group in groups]
    total = sum(map(len, groups))
    bad = [group for group, hit in zip(groups, hits, strict=True) if hit]
    return sum(map(len, hits)) / total, bad


def _is_empty(rollout: Rollout) -> bool:
    if rollout.completion is not None:
        return not rollout.completion.strip()
    return rollout.completion_length is not None and rollout.completion_length <= 1


def _duplicates(groups: Groups) -> tuple[float, Groups]:
    bad = [group for group in groups if _same(group)]
    return len(bad) / len(groups), bad


def _same(group: Sequence[Rollout]) -> bool:
    texts = Counter(rollout.completion for rollout in group if (rollout.completion or "").strip())
    often = max(texts.values(), default=0)
    return often >= LEAST_GROUP and often >= SAME * len(group)


def _cut(groups: Groups) -> tuple[float, Groups]:
    bad = [group for group in groups if all(rollout.truncated for rollout in group)]
    return len(bad) / len(groups), bad


LOOKS: dict[str, Look] = {"empty": _empty, "duplicates": _duplicates, "after_cap": _cut}


# --- steps ----------------------------------------------------------------------------------------


def _groups(run: RunContext, step: int) -> list[list[Rollout]]:
    """Groups large enough to compare, of which texts or lengths are known."""
    by_id: dict[str, list[Rollout]] = {}
    for rollout in run.rollouts(step):
        if rollout.completion is not None or rollout.completion_length is not None:
            by_id.setdefault(rollout.group_id, []).append(rollout)
    return [group for group in by_id.values() if len(group) >= LEAST_GROUP]


def _look(step: int, groups: Groups, look: Look) -> _Seen:
    share, bad = look(groups)
    shown = bad[0] if bad else groups[0]
    rewards = [rollout.reward for group in bad for rollout in group if rollout.reward is not None]
    every = [rollout.reward for group in groups for rollout in group if rollout.reward is not None]
    return _Seen(
        step,
        share,
        sum(rewards) / len(rewards) if rewards else float("nan"),
        max(every, default=float("nan")),
        shown[0].group_id,
        tuple(rollout.sample_id for rollout in shown),
    )


# --- words ----------------------------------------------------------------------------------------

_SAID = {
    "empty": "of the recorded rollouts are empty",
    "duplicates": "of the recorded groups say one and the same thing",
    "after_cap": "of the recorded groups are cut at the cap, every rollout of them",
}
_REMEDIES = {
    "empty": (
        "look at the end token, the stop strings and the chat template",
        "give empty rollouts no reward, and leave them out of the loss",
    ),
    "duplicates": (
        "check the sampling temperature, and that rollouts of a prompt have seeds of their own",
        "drop groups without differences before the update (dynamic sampling)",
    ),
    "after_cap": (
        "read the linked rollouts: good but unfinished, or running on?",
        "raise the length cap, or mask truncated rollouts from the loss",
    ),
}


def _finding(
    run: RunContext,
    variant: str,
    first: _Seen,
    seen: Sequence[_Seen],
    before: _Seen | None,
    top: float,
    recovered: bool,  # noqa: FBT001
) -> Finding:
    share = float(np.mean([item.share for item in seen]))
    reward = float(np.median([item.reward for item in seen]))
    solved = variant == "duplicates" and top > 0 and reward >= SOLVED * top
    evidence = [
        Evidence(
            "samples",
            first.step,
            first.share,
            None if before is None else before.share,
            note=f"share at the onset; see the whole group {first.group_id}",
        ),
        Evidence("samples", None, share, note="mean share over the recorded steps of it"),
    ]
    if np.isfinite(reward):
        known = top if np.isfinite(top) else None
        evidence.append(Evidence("samples", None, reward, known, note="reward, against the best"))
    if before is not None:
        note = f"share before it; compare with group {before.group_id}"
        evidence.append(Evidence("samples", before.step, before.share, note=note))
    solved_too = ", at the best reward of the run" if solved else ""
    return Finding(
        detector="ROLLOUT_DEGENERATE",
        variant=variant,
        severity=Severity.INFO if solved else Severity.WARNING,
        confidence=0.85 if len(seen) >= SPAN else 0.7,
        first_bad_step=first.step,
        last_bad_step=seen[-1].step if recovered else run.last_step,
        state="recovered" if recovered else "ended_run" if run.ended else "ongoing",
        summary=f"{share:.0%} {_SAID[variant]} from step {first.step:,} on{solved_too}.",
        evidence=tuple(evidence),
        remedies=_REMEDIES[variant],
        samples=(*first.group, *(before.group if before else ())),
    )
