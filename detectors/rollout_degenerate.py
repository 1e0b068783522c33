"""ROLLOUT_DEGENERATE: the rollouts of a group are empty, all the same, or all cut."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

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
from rlprobe.rule import SINCE, Sampled, SampledEpisode, Shown, finding, known, unpicked

Group = Sequence[Rollout]
Groups = Sequence[Group]


class RolloutDegenerate(Detector):
    """The rollouts of a group are empty, all the same, or all cut at the cap.

    What it detects
        From recorded rollouts: completions without text, groups in which nearly all completions are
        the same, and groups in which every completion was cut at the cap.

    Why it matters
        A group learns from the differences between its rollouts. Empty, identical or unfinished
        rollouts have none, whatever the mean reward says.

    How it is computed
        A recorded step is bad at `share` of such rollouts or groups if the run's own past was below
        half of it; most of three recorded steps in a row must be, and a start that passes is left
        out. The first bad step is then looked for between the steps that were read. All are
        warnings.

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
    stage = "rollout"
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

    members = fixed(3, "rollouts that make a group, and equal ones that make a duplicate")
    same = fixed(0.75, "share of a group with one and the same text")
    solved = fixed(0.9, "share of the best reward seen that duplicates earn if the task is solved")

    def scan(self, run: RunContext) -> Iterator[Finding]:
        """Empty ones, duplicates, and cut ones in turn."""
        groups = functools.cache(functools.partial(self._groups, run))
        for entry in self.rules():
            if entry.variant == "after_cap" and run.series("truncation_rate") is not None:
                continue
            bad_ones = functools.partial(entry.judge, self)
            sampled = Sampled.of(run, functools.partial(_shown, groups, bad_ones))
            if not sampled.shown:
                raise Inconclusive("no recorded group has texts or lengths")
            usual = np.nan_to_num(sampled.shares.past(above=0.25, warmup=2).level)
            bad = (sampled.shares.values >= self.share) & (usual < self.share / 2)
            for episode in sampled.episodes(bad, self.share):
                rewards = (_rewards(chain(*groups(shown.step))) for shown in sampled.shown)
                yield self._finding(episode, entry.variant, max(chain(*rewards), default=math.nan))

    @rule("empty")
    def _empty(self, groups: Groups) -> tuple[float, Groups]:
        """Rollouts without text, or of at most one token where texts are not recorded."""
        empty = [*filter(_is_empty, chain(*groups))]
        bad = [group for group in groups if any(map(_is_empty, group))]
        return len(empty) / sum(map(len, groups)), bad

    @rule("duplicates")
    def _duplicates(self, groups: Groups) -> tuple[float, Groups]:
        """Groups with three quarters of their rollouts equal, letter by letter. Info where they
        earn nearly the best reward of the run.
        """
        bad = [group for group in groups if self._is_same(group)]
        return len(bad) / len(groups), bad

    @rule("after_cap")
    def _after_cap(self, groups: Groups) -> tuple[float, Groups]:
        """Groups of which every rollout was cut, where no truncation rate is logged."""
        bad = [group for group in groups if all(rollout.truncated for rollout in group)]
        return len(bad) / len(groups), bad

    def _is_same(self, group: Group) -> bool:
        texts = Counter(
            rollout.completion for rollout in group if (rollout.completion or "").strip()
        )
        often = max(texts.values(), default=0)
        return often >= max(self.members, self.same * len(group))

    def _groups(self, run: RunContext, step: int) -> Groups:
        """Groups large enough to compare, of which texts or lengths are known."""
        by_id: dict[str, list[Rollout]] = {}
        for rollout in unpicked(run.rollouts(step)):
            if rollout.completion is not None or rollout.completion_length is not None:
                by_id.setdefault(rollout.group_id, []).append(rollout)
        return [group for group in by_id.values() if len(group) >= self.members]

    def _finding(self, episode: SampledEpisode, variant: str | None, best: float) -> Finding:
        means = [np.mean(_rewards(shown.bad) or [np.nan]) for shown in episode.shown]
        reward = stats.median(np.array(means, dtype=np.float64))
        solved = variant == "duplicates" and best > 0 and reward >= self.solved * best
        earned = Evidence("samples", None, reward, known(best), note="reward, against the best")
        what, remedies = WORDS[variant or ""]
        return finding(
            self,
            episode.period,
            f"{episode.share:.0%} of the recorded {what}{SINCE}"
            f"{', at the best reward of the run' if solved else ''}.",
            variant=variant,
            severity=Severity.INFO if solved else Severity.WARNING,
            confidence=episode.confidence,
            evidence=episode.evidence(
                "share at the onset", earned if math.isfinite(reward) else None
            ),
            remedies=remedies,
            samples=episode.samples,
        )


WORDS = {
    "empty": (
        "rollouts are empty",
        (
            "look at the end token, the stop strings and the chat template",
            "give empty rollouts no reward, and leave them out of the loss",
        ),
    ),
    "duplicates": (
        "groups say one and the same thing",
        (
            "check the sampling temperature, and that rollouts of a prompt have seeds of their own",
            "drop groups without differences before the update (dynamic sampling)",
        ),
    ),
    "after_cap": (
        "groups are cut at the cap, every rollout of them",
        (
            "read the linked rollouts: good but unfinished, or running on?",
            "raise the length cap, or mask truncated rollouts from the loss",
        ),
    ),
}


def _shown(
    groups_at: Callable[[int], Groups], judge: Callable[[Groups], tuple[float, Groups]], step: int
) -> Shown | None:
    groups = groups_at(step)
    if not groups:
        return None
    share, bad = judge(groups)
    return Shown(step, share, [*chain(*bad)], (bad or groups)[0])


def _is_empty(rollout: Rollout) -> bool:
    if rollout.completion is not None:
        return not rollout.completion.strip()
    return rollout.completion_length is not None and rollout.completion_length <= 1


def _rewards(rollouts: Iterable[Rollout]) -> list[float]:
    rewards = (rollout.reward for rollout in rollouts if rollout.reward is not None)
    return [reward for reward in rewards if math.isfinite(reward)]
