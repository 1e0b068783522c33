"""Loops in rollouts: the same n-gram again and again, in any script."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlprobe.errors import UsageError

N = 8
MOST_REPEATS = 3
# Scripts that write without spaces: each character is a token. Everything else goes by words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")
_LONG_WORD = 40  # characters; longer "words" are text without spaces, and go by characters
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 over the golden ratio: a multiplicative hash


def tokens_of(text: str) -> list[str]:
    """Words, punctuation marks, and single characters where a script has no spaces.

    Raises:
        UsageError: no text.
    """
    if not isinstance(text, str):
        raise UsageError(f"Couldn't split 'text' {text!r}: it is no text")
    found: list[str] = []
    for token in _TOKEN.findall(text):
        if len(token) > _LONG_WORD:
            found.extend(token)
        else:
            found.append(token)
    return found


def most_repeats(text_or_tokens: str | Sequence[int] | NDArray[Any], n: int = N) -> int:
    """How often the commonest n-gram occurs: 0 for fewer than n tokens.

    Text goes by words (or characters, where there are no spaces), token ids as they are. Costs a
    sort of the n-grams' 64-bit hashes: a few million tokens a second.

    Raises:
        UsageError: `n` below 1, or neither text nor token ids.
    """
    if n < 1:
        raise UsageError(f"Couldn't count n-grams of 'n' {n}: must be at least 1")
    ids = _ids(text_or_tokens)
    if len(ids) < n:
        return 0
    hashes = np.sort(_window_hashes(ids, n))
    edges = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]]))
    return int(np.diff(edges).max())


def _ids(source: str | Sequence[int] | NDArray[Any]) -> NDArray[np.uint64]:
    if isinstance(source, str):
        numbers: dict[str, int] = {}
        tokens = tokens_of(source)
        return np.array([numbers.setdefault(t, len(numbers)) for t in tokens], dtype=np.uint64)
    detach = getattr(source, "detach", None)  # a torch tensor, on whatever device
    array = np.asarray(source if detach is None else detach().cpu().numpy())
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"Couldn't read 'text_or_tokens' as text or token ids: shape {array.shape}, "
            f"type {array.dtype}"
        )
    return array.astype(np.int64).astype(np.uint64)


def _window_hashes(ids: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """A polynomial hash of every window of n ids, modulo 2^64."""
    mixed = (ids + np.uint64(1)) * _FACTOR
    mixed ^= mixed >> np.uint64(29)
    size = len(ids) - n + 1
    hashes = np.zeros(size, dtype=np.uint64)
    for offset in range(n):
        hashes = hashes * np.uint64(0xBF58476D1CE4E5B9) + mixed[offset : offset + size]
    return hashes


class RepetitionDetector:
    """Watches one rollout token by token; constant work per token, memory by distinct n-grams.

    A rollout loops once an n-gram has occurred more than `max_repeats` times; it stays so. Counts
    are exact: n-grams are compared as they are, not by hash.

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
        self._counts: dict[tuple[Hashable, ...], int] = {}

    def feed(self, token: Hashable) -> bool:
        """Take the next token; whether the rollout loops by now."""
        window = self._window
        window.append(token)
        if len(window) == window.maxlen:
            gram = tuple(window)
            count = self._counts.get(gram, 0) + 1
            self._counts[gram] = count
            if count > self.max_repeats:
                self.looping = True
        return self.looping

    def feed_all(self, tokens: Iterable[Hashable]) -> bool:
        """Take several tokens; whether the rollout loops by now.

        The same as `feed` for each, without the calls: this is the inner loop of generation.
        """
        window, counts, n = self._window, self._counts, self._window.maxlen
        append, get, most = window.append, counts.get, self.max_repeats
        for token in tokens:
            append(token)
            gram = tuple(window)
            if len(gram) == n:
                count = get(gram, 0) + 1
                counts[gram] = count
                if count > most:
                    self.looping = True
        return self.looping
