"""Loops in rollouts while they are generated; `rlprobe.repetition` reads what is whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from rlprobe.errors import UsageError
from rlprobe.repetition import COVERED, MOST_REPEATS, N, apart, most_repeats, tokens_of

__all__ = ["MOST_REPEATS", "N", "RepetitionDetector", "most_repeats", "tokens_of"]


class RepetitionDetector:
    """Watches one rollout token by token, and tells as soon as what has come so far is a loop.

    A loop is what REPETITION_LOOP calls one: an n-gram that has come more than `max_repeats` times
    without overlap, or overlapping ones that fill half of it. A rollout that loops stays so. Counts
    are exact: n-grams are compared as they are, not by hash. Constant work per token, memory by
    tokens.

    When not to use it: tables, code and lists repeat short n-grams honestly. Keep `n` at 8 or
    above, and look at the reasoning block only.

    Args:
        n: length of the n-gram.
        max_repeats: occurrences of one n-gram that are still allowed.

    Raises:
        UsageError: a number below 1.
    """

    def __init__(self, n: int = N, max_repeats: int = MOST_REPEATS) -> None:
        if n < 1 or max_repeats < 1:
            raise UsageError(
                f"Couldn't watch for 'n' {n} and 'max_repeats' {max_repeats}: must be at least 1"
            )
        self.max_repeats = max_repeats
        self.looping = False
        self._window: deque[Hashable] = deque(maxlen=n)
        self._places: dict[tuple[Hashable, ...], list[int]] = {}
        self._tokens = 0
        self._covered: set[int] = set()  # tokens inside n-grams that came too often

    def feed(self, token: Hashable) -> bool:
        """Take the next token; whether the rollout loops by now."""
        return self.feed_all((token,))

    def feed_all(self, tokens: Iterable[Hashable]) -> bool:
        """Take several tokens; whether the rollout loops by now."""
        window, seen, n = self._window, self._places, self._window.maxlen or 0
        append, get, most = window.append, seen.get, self.max_repeats
        for token in tokens:
            if self.looping:
                break
            append(token)
            self._tokens += 1
            gram = tuple(window)
            if len(gram) == n:
                places = get(gram)
                if places is None:
                    seen[gram] = [self._tokens - n]
                    continue
                places.append(self._tokens - n)
                if len(places) > most:
                    self.looping = self._is_loop(places, n)
        return self.looping

    def _is_loop(self, places: list[int], n: int) -> bool:
        """Whether an n-gram at these places, the last of them new, makes a loop of the rollout."""
        if apart(places, n) > self.max_repeats:
            return True
        new = places if len(places) == self.max_repeats + 1 else places[-1:]
        for place in new:
            self._covered.update(range(place, place + n))
        return len(self._covered) >= COVERED * self._tokens
