"""Rollouts of any source -> rollouts in groups, and what they tell of each step as metrics."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlprobe.importers.rows import RowTable
from rlprobe.store.text import stable_id
from rlprobe.values import Rollout, flat

MOST_ROLLOUTS = 200_000  # kept with their text; later ones count in the metrics alone
LONGEST_TEXT = 16_000  # characters of a text that are kept: its beginning and its end


@dataclass(slots=True)
class Sampled:
    """One completion as its log tells of it. None: not told.

    Attributes:
        group: the log's own name for the group.
        length: tokens of the completion.
        characters: length of the completion's text.
    """

    step: int
    prompt: str | None
    completion: str | None
    reward: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    group: str | None = None
    length: int | None = None
    truncated: bool | None = None
    prompt_id: str = ""
    characters: int | None = None


class DerivedRows(RowTable):
    """Metrics that rollouts tell, and nobody logged.

    They make a reading no log of metrics: its length is 0. Beside such a log they fill its gaps.
    """

    def __len__(self) -> int:
        return 0


class Rollouts:
    """Collects completions, step by step.

    Attributes:
        name: the file's; ids begin with it, so that those of several files differ.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._by_step: dict[int, list[Sampled]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sampled: Sampled) -> None:
        """Take one completion; texts are shortened."""
        sampled.characters = None if sampled.completion is None else len(sampled.completion)
        prompt, sampled.prompt_id = _kept(sampled.prompt) if sampled.prompt else (None, "")
        completion = sampled.completion and _shortened(sampled.completion)
        kept = self._count < MOST_ROLLOUTS
        sampled.prompt, sampled.completion = (prompt, completion) if kept else (None, None)
        self._by_step.setdefault(sampled.step, []).append(sampled)
        self._count += 1

    def finish(self) -> tuple[list[Rollout], RowTable, list[str]]:
        """The rollouts, one row of metrics per step, and what was assumed."""
        rollouts: list[Rollout] = []
        table = DerivedRows()
        for step in sorted(self._by_step):
            members = self._by_step[step]
            groups = _groups(f"{self.name}.s{step}", members)
            with np.errstate(all="ignore"):  # rewards may be infinite, or nearly
                table.add(step, _metrics(members, groups))
            room = MOST_ROLLOUTS - len(rollouts)
            rollouts += _rollouts(f"{self.name}.s{step}", members, groups)[: max(room, 0)]
        left_out = self._count - len(rollouts)
        notes = [f"{left_out:,} later rollouts: only in the metrics"] if left_out else []
        return rollouts, table, notes


# The prompt of a group comes once per completion, so that what was told of it is told again.
@functools.lru_cache(maxsize=64)
def _kept(prompt: str) -> tuple[str, str]:
    """What is kept of a prompt, and the recording's name for it."""
    return _shortened(prompt), stable_id(prompt)


@functools.lru_cache(maxsize=64)
def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out:,} characters left out …]\n{text[-half:]}"


def _groups(prefix: str, members: Sequence[Sampled]) -> list[str]:
    """The group of each: as the log names it, else neighbours or all with one prompt.

    Trainers write the completions of a group one after another. Where neighbours with the same
    prompt are not equally many, the batch was shuffled, and all of a prompt are one group.
    """
    if all(member.group is not None for member in members):
        return [f"{prefix}.{member.group}" for member in members]
    prompts = [member.prompt_id for member in members]
    runs = [len(list(run)) for _, run in itertools.groupby(prompts)]
    if runs[0] > 1 and len(set(runs)) == 1:
        return [f"{prefix}.g{index // runs[0]}" for index in range(len(members))]
    seen: dict[str, int] = {}
    return [f"{prefix}.g{seen.setdefault(prompt, len(seen))}" for prompt in prompts]


def _rollouts(prefix: str, members: Sequence[Sampled], groups: Sequence[str]) -> list[Rollout]:
    return [
        Rollout(
            step=member.step,
            group_id=group,
            sample_id=f"{prefix}.{index}",
            prompt_id=member.prompt_id,
            prompt=member.prompt,
            completion=member.completion,
            reward=member.reward,
            reward_components=member.components,
            advantage=member.advantage,
            completion_length=member.length,
            truncated=member.truncated,
            capture_reason="log",
        )
        for index, (member, group) in enumerate(zip(members, groups, strict=True))
    ]


def _metrics(members: Sequence[Sampled], groups: Sequence[str]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    rewards = [member.reward for member in members if member.reward is not None]
    if rewards:
        metrics["reward_mean"] = float(np.mean(rewards))
        metrics["reward_min"] = float(np.min(rewards))
        metrics["reward_max"] = float(np.max(rewards))
    metrics.update(_of_groups(members, groups))
    lengths = [member.length for member in members if member.length is not None]
    if lengths:
        metrics["completion_length_mean"] = float(np.mean(lengths))
        metrics["completion_length_max"] = float(np.max(lengths))
    else:
        characters = [m.characters for m in members if m.characters is not None]
        if characters:
            metrics["completion_characters_mean"] = float(np.mean(characters))
    cut = [member.truncated for member in members if member.truncated is not None]
    if cut:
        metrics["truncation_rate"] = float(np.mean(cut))
    return {**metrics, **_of_components(members)}


def _of_groups(members: Sequence[Sampled], groups: Sequence[str]) -> dict[str, float]:
    by_group: dict[str, list[float]] = {}
    for member, group in zip(members, groups, strict=True):
        if member.reward is not None:
            by_group.setdefault(group, []).append(member.reward)
    several = [np.array(rewards) for rewards in by_group.values() if len(rewards) > 1]
    if not several:
        return {}
    spreads = [float(rewards.std()) for rewards in several]
    equal = [bool(flat(rewards)) for rewards in several]
    return {
        "reward_group_std_mean": float(np.mean(spreads)),
        "zero_variance_group_fraction": float(np.mean(equal)),
    }


def _of_components(members: Iterable[Sampled]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for member in members:
        for name, value in member.components.items():
            values.setdefault(name, []).append(value)
    return {f"reward_component/{name}": float(np.mean(v)) for name, v in values.items()}
