"""Names of the groups of rollouts: a call's groups are its own, whatever an earlier one named them.

A group is whole in one call of `Recorder.samples`. Two calls of one step (micro-batches, several
generations) may number their groups alike, or have the same prompts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_MOST_STEPS = 256  # whose names are remembered; a step that comes again later is told by its call


class GroupNames:
    """Names that no other call of this process gives at the same step.

    Args:
        rank: of this process, which is part of the names where it is not 0.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._named: dict[int, dict[str, int]] = {}  # by step, the call that was first to name it
        self._is_forgetful = False

    def numbered(self, step: int, call: int, keys: Sequence[Hashable]) -> list[str]:
        """Names for groups that have none of their own: entries with the same key are one group."""
        named, whose = self._of(step), f"r{self._rank}." if self._rank > 0 else ""
        again = f"c{call}." if self._is_forgetful and not named else ""
        first, numbers = len(named), dict[Hashable, int]()
        for key in keys:
            numbers.setdefault(key, first + len(numbers))
        names = {key: f"s{step}.{whose}{again}g{number}" for key, number in numbers.items()}
        named.update(dict.fromkeys(names.values(), call))
        return [names[key] for key in keys]

    def given(self, step: int, call: int, names: Sequence[str]) -> list[str]:
        """The names that somebody gave, those of an earlier call with this one's number."""
        named = self._of(step)
        for name in dict.fromkeys(names):
            named.setdefault(name, call)
        return [name if named[name] == call else f"{name}#{call}" for name in names]

    def _of(self, step: int) -> dict[str, int]:
        if step not in self._named:
            while len(self._named) >= _MOST_STEPS:
                self._is_forgetful = True
                del self._named[next(iter(self._named))]
            self._named[step] = {}
        return self._named[step]
