"""Which rollouts are kept, what of their text, and the ring that a critical event writes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlprobe.errors import UsageError
from rlprobe.store.text import plain_text, stable_id
from rlprobe.values import Rollout, flat

_RING_CHARACTERS = 64 * 1024 * 1024

# Arguments of `Recorder.samples` with one value per rollout or per group.
ARGUMENTS = (
    "prompts",
    "completions",
    "rewards",
    "advantages",
    "completion_lengths",
    "truncated",
    "group_ids",
    "prompt_ids",
    "logprob_means",
    "kls",
)


@dataclass(frozen=True, slots=True)
class SamplePolicy:
    """How much of the rollouts is recorded. Groups are always kept whole.

    Attributes:
        every: record rollouts of every n-th step that has any; 0 records none.
        groups: groups kept per step and rank; the most telling ones first.
        text: `full`, `truncated:N` (first and last N/2 characters), `hash`, or `none`.
        ring_steps: steps whose rollouts are held in memory, whole, and written out by a critical
            event; 0 holds none.
    """

    every: int = 1
    groups: int = 8
    text: str = "truncated:8000"
    ring_steps: int = 3

    def __post_init__(self) -> None:
        kind, _, limit = self.text.partition(":")
        known = self.text in {"full", "hash", "none"} or (kind == "truncated" and limit.isdigit())
        if not known:
            raise UsageError(
                f"Couldn't use text policy '{self.text}': not one of full, truncated:N, hash, none"
            )
        if min(self.every, self.groups, self.ring_steps) < 0:
            raise UsageError("Couldn't use a negative number in a sample policy")

    def shorten(self, text: str | None) -> str | None:
        """The part of a text that may enter the recording."""
        if text is None or self.text == "full":
            return text
        if self.text == "none":
            return None
        if self.text == "hash":
            return stable_id(text)
        limit = int(self.text.partition(":")[2])
        if len(text) <= limit:
            return text
        half = limit // 2
        left_out = len(text) - 2 * half
        return f"{text[:half]}\n[… {left_out:,} characters left out …]\n{text[len(text) - half :]}"


@dataclass
class RolloutSelector:
    """Turns the arguments of `Recorder.samples` into rollouts, chooses, and keeps the ring.

    Runs on the writer thread. The choice of groups draws no random numbers.
    """

    policy: SamplePolicy
    _calls: int = 0
    _ring: deque[list[Rollout]] = field(default_factory=deque)
    _written: set[str] = field(default_factory=set)

    def select(
        self, step: int, attempt: int, rank: int, content: Mapping[str, Any]
    ) -> list[Rollout]:
        """The rollouts of one call that are to be written now."""
        rollouts = _rollouts(step, attempt, rank, self._calls, content)
        self._calls += 1
        if self.policy.ring_steps:
            self._ring.append(rollouts)
            self._trim_ring()
        if not self.policy.every or (self._calls - 1) % self.policy.every:
            return []
        return self._finish(_telling(rollouts, self.policy.groups))

    def ring(self, trigger: str) -> list[Rollout]:
        """Rollouts of the ring that are not written yet, marked with what triggered this."""
        held = [rollout for call in self._ring for rollout in call]
        self._ring.clear()
        new = [rollout for rollout in held if rollout.sample_id not in self._written]
        return self._finish([(rollout, f"ring:{trigger}") for rollout in new])

    def _finish(self, chosen: Sequence[tuple[Rollout, str]]) -> list[Rollout]:
        self._written.update(rollout.sample_id for rollout, _ in chosen)
        return [
            replace(
                rollout,
                prompt_id=rollout.prompt_id or _prompt_id(rollout.prompt),
                prompt=self.policy.shorten(rollout.prompt),
                completion=self.policy.shorten(rollout.completion),
                capture_reason=reason,
            )
            for rollout, reason in chosen
        ]

    def _trim_ring(self) -> None:
        while len(self._ring) > self.policy.ring_steps or (
            len(self._ring) > 1 and _characters(self._ring) > _RING_CHARACTERS
        ):
            gone = self._ring.popleft()
            self._written.difference_update(rollout.sample_id for rollout in gone)


def _prompt_id(prompt: str | None) -> str:
    return stable_id(prompt) if prompt else ""


def _characters(ring: deque[list[Rollout]]) -> int:
    return sum(len(rollout.completion or "") for call in ring for rollout in call)


def _rollouts(
    step: int, attempt: int, rank: int, call: int, content: Mapping[str, Any]
) -> list[Rollout]:
    completions = [plain_text(item) for item in content["completions"]]
    size = len(completions)
    columns = {name: _column(content.get(name), size) for name in _FLOATS}
    components = {
        name: _column(values, size) for name, values in (content["reward_components"] or {}).items()
    }
    prompts = [plain_text(item) for item in _spread(content["prompts"], size)]
    groups = _groups(content, prompts, step)
    lengths = _column(content.get("completion_lengths"), size)
    truncated = _column(content.get("truncated"), size)
    ids = _spread(content.get("prompt_ids"), size)
    return [
        Rollout(
            step=step,
            attempt=attempt,
            rank=rank,
            group_id=groups[index],
            sample_id=f"a{attempt}.s{step}.r{rank}.c{call}.{index}",
            prompt_id="" if ids[index] is None else str(ids[index]),
            prompt=prompts[index],
            completion=completions[index],
            reward=columns["rewards"][index],
            reward_components=_earned(components, index),
            advantage=columns["advantages"][index],
            completion_length=_whole(lengths[index]),
            truncated=None if truncated[index] is None else bool(truncated[index]),
            logprob_mean=columns["logprob_means"][index],
            kl=columns["kls"][index],
        )
        for index in range(size)
    ]


def _earned(components: Mapping[str, list[float | None]], index: int) -> dict[str, float]:
    values = ((name, column[index]) for name, column in components.items())
    return {name: value for name, value in values if value is not None}


_FLOATS = ("rewards", "advantages", "logprob_means", "kls")


def _column(values: Any, size: int) -> list[float | None]:
    if values is None:
        return [None] * size
    if hasattr(values, "detach"):
        values = values.cpu().tolist()
    numbers = [None if value is None else float(value) for value in values]
    return (numbers + [None] * size)[:size]


def _spread(values: Any, size: int) -> list[Any]:
    """One value per rollout, from one per rollout or one per group of equal size."""
    if values is None:
        return [None] * size
    items = list(values)
    if items and len(items) < size and size % len(items) == 0:
        share = size // len(items)
        return [item for item in items for _ in range(share)]
    return (items + [None] * size)[:size]


def _whole(value: float | None) -> int | None:
    return None if value is None or value != value else int(value)  # noqa: PLR0124 - NaN


def _groups(content: Mapping[str, Any], prompts: list[str | None], step: int) -> list[str]:
    size = len(prompts)
    given = content.get("group_ids")
    if given is not None:
        return [str(item) for item in _spread(given, size)]
    group_size = content.get("group_size")
    if group_size:
        return [f"s{step}.g{index // int(group_size)}" for index in range(size)]
    seen: dict[str | None, int] = {}
    return [f"s{step}.g{seen.setdefault(prompt, len(seen))}" for prompt in prompts]


def _telling(rollouts: list[Rollout], limit: int) -> list[tuple[Rollout, str]]:
    """Whole groups: the widest advantages, one flat group, then others in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group_id, []).append(rollout)
    order: dict[str, str] = {}
    if len(groups) > limit:
        widest = max(groups, key=lambda name: _reach(groups[name]))
        order[widest] = "widest advantages"
        equal = next((name for name in groups if _equal(groups[name])), None)
        if equal is not None:
            order.setdefault(equal, "equal rewards")
    for name in groups:
        order.setdefault(name, "all groups" if len(groups) <= limit else "first groups")
    chosen = list(order)[:limit]
    return [(rollout, order[name]) for name in chosen for rollout in groups[name]]


def _reach(group: list[Rollout]) -> float:
    values = [abs(rollout.advantage) for rollout in group if rollout.advantage is not None]
    finite = [value for value in values if value == value]  # noqa: PLR0124 - NaN
    return max(finite, default=0.0)


def _equal(group: list[Rollout]) -> bool:
    rewards = [rollout.reward for rollout in group if rollout.reward is not None]
    return len(rewards) > 1 and bool(flat(rewards))
