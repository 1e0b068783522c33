"""Which rollouts are kept, what of their text, and the ring that a critical event writes out."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlprobe.errors import UsageError
from rlprobe.recorder.group_names import GroupNames
from rlprobe.recorder.redact import Redact, redactor
from rlprobe.recorder.rollout_arguments import rollouts_of
from rlprobe.store.text import stable_id
from rlprobe.values import Rollout, flat

_RING_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SamplePolicy:
    """How much of the rollouts is recorded. Groups are always kept whole.

    Attributes:
        every: record rollouts of every n-th step that has any; 0 records none.
        groups: groups kept per step and rank; the most telling ones first.
        text: `full`, `truncated:N` (first and last N/2 characters), `hash`, or `none`.
        ring_steps: steps whose rollouts are held in memory, whole, and written out by a critical
            event; 0 holds none.
        redact: taken out of the text of prompts and completions before any of it is stored: a
            function from text to text, patterns (`re`) whose matches become `***`, or `secrets` for
            what looks like tokens and passwords. It runs on the writer thread. Where it fails, no
            text of that prompt or completion is stored, which is counted.
    """

    every: int = 1
    groups: int = 8
    text: str = "truncated:8000"
    ring_steps: int = 3
    redact: Redact | None = None

    def __post_init__(self) -> None:
        kind, _, limit = self.text.partition(":")
        known = self.text in {"full", "hash", "none"} or (kind == "truncated" and limit.isdigit())
        if not known:
            raise UsageError(
                f"Couldn't use text policy '{self.text}': not one of full, truncated:N, hash, none"
            )
        if min(self.every, self.groups, self.ring_steps) < 0:
            raise UsageError("Couldn't use a negative number in a sample policy")
        redactor(self.redact)

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

    Attributes:
        odd: called with the name of an argument of which a value had to be left out.
        failed: called with the error of a `redact` that fails.
    """

    policy: SamplePolicy
    odd: Callable[[str], None]
    failed: Callable[[BaseException], None] = lambda _: None
    _calls: int = 0
    _names: GroupNames | None = None
    _ring: deque[list[Rollout]] = field(default_factory=deque)
    _written: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._redact = redactor(self.policy.redact)

    def select(
        self, step: int, attempt: int, rank: int, content: Mapping[str, Any]
    ) -> list[Rollout]:
        """The rollouts of one call that are to be written now."""
        if self._names is None:
            self._names = GroupNames(rank)
        rollouts = rollouts_of(step, attempt, rank, self._calls, content, self._names, self.odd)
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
                prompt=self._stored(rollout.prompt),
                completion=self._stored(rollout.completion),
                capture_reason=reason,
            )
            for rollout, reason in chosen
        ]

    def _stored(self, text: str | None) -> str | None:
        """What of a text enters the recording."""
        if text is None or self._redact is None or self.policy.text in {"none", "hash"}:
            return self.policy.shorten(text)
        try:
            plain = self._redact(text)
            if not isinstance(plain, str):
                raise TypeError(f"it gave {type(plain).__name__}, no text")  # noqa: TRY301
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # somebody else's code
            self.failed(error)
            return None
        return self.policy.shorten(plain)

    def _trim_ring(self) -> None:
        while len(self._ring) > self.policy.ring_steps or (
            len(self._ring) > 1 and self.ring_bytes() > _RING_BYTES
        ):
            self.forget_oldest()

    def ring_bytes(self) -> int:
        """What the ring holds in memory, about."""
        return sum(size_of_rollout(rollout) for call in self._ring for rollout in call)

    def forget_oldest(self) -> int:
        """Take the oldest call out of the ring; how many of its rollouts are written nowhere."""
        if not self._ring:
            return 0
        oldest = {rollout.sample_id for rollout in self._ring.popleft()}
        unwritten = len(oldest - self._written)
        self._written -= oldest
        return unwritten


def _prompt_id(prompt: str | None) -> str:
    return stable_id(prompt) if prompt else ""


def size_of_rollout(rollout: Rollout) -> int:
    """Bytes of a rollout in memory, about."""
    return 1000 + sys.getsizeof(rollout.prompt) + sys.getsizeof(rollout.completion)


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
