"""Numbers as frameworks spell them. One parser for every format; nothing is ever evaluated."""

from __future__ import annotations

import functools
import math
import re

_WORDS = {"infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}
_LONGEST = 80
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\s*\[?([^(),\[\]]+?)\]?\s*(?:,[^()]*)?\)")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
# A number with a unit; how long something took ("6s") is none.
_NUMBER_LIKE = re.compile(
    r"[-+]?\d[\d,' \u00a0]*(?:\.\d*)?(?:e[-+]?\d*)?\s?"
    r"(?:k|[mbgt]|[munµ]s|x|[kmgt]i?b|it|tok|hz|w)?(?:/[a-z]{1,3})?",
    re.IGNORECASE,
)
_QUOTES = "'\""


def number(value: object) -> float | None:
    """A logged value as a number; None if it is none."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return spelled(value)
    return None


@functools.lru_cache(maxsize=65_536)
def spelled(text: str) -> float | None:
    """A number in words of a log: `1.2e-5`, `"nan"`, `np.float64(0.1)`, `1,234`, `53.12%`.

    A percentage is a fraction. `tensor(nan, device='cuda:0')` is what it shows.
    """
    word = text.strip().strip(_QUOTES).strip()
    if not word or len(word) > _LONGEST:
        return None
    if word.endswith(")") and (wrapped := _WRAPPED.fullmatch(word)):
        word = wrapped[1].strip()
    if word.endswith("%"):
        part = _plain(word[:-1])
        return None if part is None else part / 100
    return _plain(word)


def _plain(word: str) -> float | None:
    try:
        return None if "_" in word else float(word)
    except ValueError:
        pass
    if _GROUPED.fullmatch(word):
        return float(word.replace(",", ""))
    return _WORDS.get(word.lower())


def looks_like_number(text: str) -> bool:
    """Whether text that spells no number looks like one: `1.5k`, `12 ms`, `1 250`."""
    word = text.strip()
    return len(word) <= _LONGEST and bool(_NUMBER_LIKE.fullmatch(word)) and spelled(word) is None
