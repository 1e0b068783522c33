"""Loops: the same count, streaming and at once, in any script."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.errors import UsageError
from rlprobe.guards import RepetitionDetector, most_repeats, stop_on_repetition, tokens_of


def counted(tokens: list[int], n: int) -> int:
    grams = Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
    return max(grams.values(), default=0)


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3) | st.sampled_from([151_643, -1]), max_size=80),
    n=st.integers(1, 9),
)
def test_most_repeats_counts_exactly(tokens: list[int], n: int) -> None:
    assert most_repeats(tokens, n) == counted(tokens, n)
    assert most_repeats(np.array(tokens, dtype=np.int64), n) == counted(tokens, n)


@settings(max_examples=100, deadline=None)
@given(tokens=st.lists(st.integers(0, 2), max_size=60), n=st.integers(1, 5))
def test_streaming_agrees(tokens: list[int], n: int) -> None:
    detector = RepetitionDetector(n, max_repeats=3)
    assert detector.feed_all(tokens) == (counted(tokens, n) > 3)


@pytest.mark.parametrize(
    "phrase",
    [
        "wait let me double check this once more ",
        "等等让我再检查一遍这个答案",
        "もう一度この答えを確認してみましょう",
        "รอสักครู่ให้ฉันตรวจสอบอีกครั้ง",
        "letmecheckthisagainbecauseimaybewrong",
        "подождите дайте мне ещё раз проверить этот ответ ",
        "x = x + 1 ; y = y + 2 ; ",
    ],
)
def test_loops_are_seen_in_any_script(phrase: str) -> None:
    assert most_repeats(phrase * 5) >= 4
    assert most_repeats(phrase) <= 1


def test_words_and_characters() -> None:
    assert tokens_of("Wait, 等等 ok") == ["Wait", ",", "等", "等", "ok"]


def test_a_rollout_ends_when_it_loops() -> None:
    stop = stop_on_repetition(n=4, max_repeats=2)
    ids: list[int] = []
    ended = None
    for position in range(40):
        ids.append(position % 4)
        if stop(ids):
            ended = position
            break
    assert ended == 11, "the third time that 0 1 2 3 is complete"


@pytest.mark.parametrize("bad", [{"n": 0}, {"max_repeats": 0}])
def test_numbers_below_one(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="0"):
        RepetitionDetector(**bad)


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(UsageError, match="'text_or_tokens'"):
        most_repeats([1.5, 2.5])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="'text_or_tokens'"):
        most_repeats(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'text' 5"):
        tokens_of(5)  # type: ignore[arg-type]
