"""Which rollouts are kept, what of their text, and the ring that a critical event writes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlprobe.errors import UsageError
from rlprobe.store.text import plain_text, stable_id
from rlprobe.values import flat

_RING_BYTES = 64 * 1024 * 1024

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
class RolloutEncoder:
    """Turns the arguments of `Recorder.samples` into rows, and keeps the ring.

    Runs on the writer thread. The choice of groups draws no random numbers.
    """

    policy: SamplePolicy
    _calls: int = 0
    _ring: deque[list[dict[str, Any]]] = field(default_factory=deque)
    _written: set[str] = field(default_factory=set)

    def encode(self, step: int, attempt: int, rank: int, content: Mapping[str, Any]) -> list[Any]:
        """The rows of one call that are to be written now."""
        rows = _rows(step, attempt, rank, self._calls, content)
        self._calls += 1
        if self.policy.ring_steps:
            self._ring.append(rows)
            self._trim_ring()
        if not self.policy.every or (self._calls - 1) % self.policy.every:
            return []
        return self._finish(_telling(rows, self.policy.groups))

    def ring(self, trigger: str) -> list[dict[str, Any]]:
        """Rows of the ring that are not written yet, marked with what triggered this."""
        rows = [row for call in self._ring for row in call if row["sample_id"] not in self._written]
        self._ring.clear()
        return self._finish([(row, f"ring:{trigger}") for row in rows])

    def _finish(self, chosen: Sequence[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
        finished = []
        for row, reason in chosen:
            self._written.add(row["sample_id"])
            prompt, completion = row["prompt"], row["completion"]
            finished.append(
                {
                    **row,
                    "prompt_id": row["prompt_id"] or (stable_id(prompt) if prompt else None),
                    "prompt": self.policy.shorten(prompt),
                    "completion": self.policy.shorten(completion),
                    "capture_reason": reason,
                }
            )
        return finished

    def _trim_ring(self) -> None:
        while len(self._ring) > self.policy.ring_steps or (
            len(self._ring) > 1 and _text_bytes(self._ring) > _RING_BYTES
        ):
            gone = self._ring.popleft()
            self._written.difference_update(row["sample_id"] for row in gone)


def _text_bytes(ring: deque[list[dict[str, Any]]]) -> int:
    return sum(len(row["completion"] or "") for call in ring for row in call)


def _rows(
    step: int, attempt: int, rank: int, call: int, content: Mapping[str, Any]
) -> list[dict[str, Any]]:
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
        {
            "step": step,
            "attempt": attempt,
            "rank": rank,
            "group_id": groups[index],
            "sample_id": f"a{attempt}.s{step}.r{rank}.c{call}.{index}",
            "prompt_id": None if ids[index] is None else str(ids[index]),
            "prompt": prompts[index],
            "completion": completions[index],
            "reward": columns["rewards"][index],
            "reward_components": [
                (name, values[index])
                for name, values in components.items()
                if values[index] is not None
            ],
            "advantage": columns["advantages"][index],
            "completion_length": _whole(lengths[index]),
            "truncated": None if truncated[index] is None else bool(truncated[index]),
            "logprob_mean": columns["logprob_means"][index],
            "kl": columns["kls"][index],
        }
        for index in range(size)
    ]


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


def _telling(rows: list[dict[str, Any]], limit: int) -> list[tuple[dict[str, Any], str]]:
    """Whole groups: the widest advantages, one flat group, then others in order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    order: dict[str, str] = {}
    if len(groups) > limit:
        widest = max(groups, key=lambda name: _reach(groups[name]))
        order[widest] = "widest advantages"
        flat = next((name for name in groups if _flat(groups[name])), None)
        if flat is not None:
            order.setdefault(flat, "equal rewards")
    for name in groups:
        order.setdefault(name, "all groups" if len(groups) <= limit else "first groups")
    chosen = list(order)[:limit]
    return [(row, order[name]) for name in chosen for row in groups[name]]


def _reach(group: list[dict[str, Any]]) -> float:
    values = [abs(row["advantage"]) for row in group if row["advantage"] is not None]
    finite = [value for value in values if value == value]  # noqa: PLR0124 - NaN
    return max(finite, default=0.0)


def _flat(group: list[dict[str, Any]]) -> bool:
    rewards = [row["reward"] for row in group if row["reward"] is not None]
    return len(rewards) > 1 and bool(flat(rewards))
