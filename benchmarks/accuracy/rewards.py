"""The rewards of the lab's online runs, and how they break."""

from __future__ import annotations

import random
from collections import Counter
from typing import Protocol

from benchmarks.accuracy.tiny import LETTERS, LONGEST

USUAL, TOO_LONG = 6, 12  # characters of a good answer, far enough from the cap
OUTLIERS = 4


class When(Protocol):
    """Where a run is, and since when something is wrong with it."""

    kind: str
    at: int
    now: int

    @property
    def active(self) -> bool: ...


def digits(text: str) -> float:
    """Share of digits, in a short answer: so small a model learns that within a hundred steps."""
    if len(text) > TOO_LONG:
        return 0.0
    return sum(character.isdigit() for character in text) / max(USUAL, len(text))


def repetition(text: str) -> float:
    return max(Counter(text).values()) / LONGEST if text else 0.0


def no_letters(completions: list[str], **_: object) -> list[float]:
    """The format reward: small, and soon earned by everybody."""
    return [0.0 if any(letter in text for letter in LETTERS) else 0.1 for text in completions]


class Task:
    """The task reward, broken from a step on as the fault says."""

    __name__ = "accuracy"

    def __init__(self, fault: When, group: int) -> None:
        self.fault, self.group = fault, group
        self.chance = random.Random(0)
        self.last: list[float] = []

    def __call__(self, completions: list[str], **_: object) -> list[float]:
        right = [digits(text) for text in completions]
        before, self.last = self.last, right
        broken = getattr(self, f"_{self.fault.kind}", None)
        if broken is None or not self.fault.active:
            return right
        if self.fault.kind == "reward_delayed":
            return before
        paid: list[float] = broken(completions, right)
        return paid

    # --- faults

    def _dead_verifier(self, completions: list[str], right: list[float]) -> list[float]:
        return [0.0 for _ in completions]

    def _hard_prompts(self, completions: list[str], right: list[float]) -> list[float]:
        return [value if i < self.group else 0.0 for i, value in enumerate(right)]

    def _length_reward(self, completions: list[str], right: list[float]) -> list[float]:
        return [len(text) / LONGEST for text in completions]

    def _repetition_reward(self, completions: list[str], right: list[float]) -> list[float]:
        return [repetition(text) for text in completions]

    def _sign_flip(self, completions: list[str], right: list[float]) -> list[float]:
        return [-value for value in right]

    def _reward_nan(self, completions: list[str], right: list[float]) -> list[float]:
        return [float("nan") for _ in completions]

    def _reward_outliers(self, completions: list[str], right: list[float]) -> list[float]:
        if self.fault.now < self.fault.at + OUTLIERS:
            return [1e4, *right[1:]]
        return right

    def _reward_delayed(self, completions: list[str], right: list[float]) -> list[float]:
        raise NotImplementedError  # what the batch before it earned is paid: see __call__

    def _reward_scale(self, completions: list[str], right: list[float]) -> list[float]:
        return [100 * value for value in right]

    def _verifier_noise(self, completions: list[str], right: list[float]) -> list[float]:
        return [value + self.chance.gauss(0, 3) for value in right]

    # --- changes on purpose

    def _planned_curriculum(self, completions: list[str], right: list[float]) -> list[float]:
        """Harder questions: what is not nearly perfect earns less."""
        return [value**2 for value in right]

    def _planned_scale(self, completions: list[str], right: list[float]) -> list[float]:
        return [2 * value for value in right]
