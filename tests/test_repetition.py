"""Loops: one measure, in any script."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.errors import UsageError
from rlprobe.repetition import (
    block_of,
    loops,
    loops_in_completion,
    most_repeats,
    parts_of,
    tokens_of,
)


def counted(tokens: list[int], n: int) -> int:
    """Most occurrences of an n-gram, taking each as soon as it does not overlap the last."""
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for start in range(len(tokens) - n + 1):
        gram = tuple(tokens[start : start + n])
        count, free = seen.get(gram, (0, 0))
        if start >= free:
            seen[gram] = (count + 1, start + n)
    return max((count for count, _ in seen.values()), default=0)


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3) | st.sampled_from([151_643, -1]), max_size=80),
    n=st.integers(1, 9),
)
def test_most_repeats_counts_exactly(tokens: list[int], n: int) -> None:
    assert most_repeats(tokens, n) == counted(tokens, n)
    assert most_repeats(np.array(tokens, dtype=np.int64), n) == counted(tokens, n)
    assert loops(tokens, n, 3) or counted(tokens, n) <= 3


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
    assert loops(phrase * 5)
    assert most_repeats(phrase) <= 1
    assert not loops(phrase * 3)


LONG = " ".join(f"word{n}" for n in range(100))


@pytest.mark.parametrize(
    ("text", "often", "looping"),
    [
        ("but wait let me check this once again " * 41, 41, True),
        ("yes " * 20, 2, True),  # overlapping, but there is nothing else
        ("yes " * 20 + LONG, 2, False),
        ("yes " * 32 + LONG, 4, True),
        ("| --- " * 60 + LONG, 1, False),  # the rule of a table
        ("no no", 0, False),
        ("", 0, False),
    ],
)
def test_repeats_that_overlap_rules_and_short_texts(text: str, often: int, looping: bool) -> None:
    assert most_repeats(text) == often
    assert loops(text) == looping


def test_words_and_characters() -> None:
    assert tokens_of("Wait, 等等 ok\n") == ["Wait", ",", "等", "等", "ok"]
    assert tokens_of("a" * 25) == ["a"] * 25
    assert tokens_of(" \t") == tokens_of("") == []


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("<think>why</think>so", "why"),
        ("<think>why", "why"),
        ("why</think>so", "why"),
        ("so", "so"),
        ("<think></think>so", "<think></think>so"),
    ],
)
def test_the_reasoning_of_a_text(text: str, block: str) -> None:
    assert block_of(text) == block


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(UsageError, match="'text_or_tokens'"):
        most_repeats([1.5, 2.5])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="'text_or_tokens'"):
        most_repeats(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'n' 0"):
        loops("text", n=0)
    with pytest.raises(UsageError, match="'text' 5"):
        tokens_of(5)  # type: ignore[arg-type]


SENTENCE = "and so the sum of both sides is equal to the first number again. "


def words(seed: int, count: int = 60) -> str:
    rng = np.random.default_rng(seed)
    return " ".join(f"w{number}" for number in rng.integers(0, 400, count))


@pytest.mark.parametrize(
    ("text", "blocks", "outside"),
    [
        ("a b", ["a b"], ""),
        ("<think>a</think>b", ["a"], "\nb"),
        ("a</think>b", ["a"], "b"),
        ("a<think>b", ["b"], "a"),
        ("<think>a</think>b<think>c</think>d", ["a", "c"], "\nb\nd"),
        ("<think></think>a", [], "\na"),
    ],
)
def test_blocks_and_what_is_outside_of_them(text: str, blocks: list[str], outside: str) -> None:
    assert parts_of(text) == (blocks, outside)


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_anywhere_in_a_completion_is_found(seed: int) -> None:
    begun = f"<think>{words(seed)}</think>"
    assert not loops_in_completion(f"{begun}<answer>{words(seed + 100)}</answer>")
    assert loops_in_completion(f"{begun}<think>{SENTENCE * 5}</think><answer>1</answer>")
    assert loops_in_completion(f"{begun}{SENTENCE * 10}")
    assert loops_in_completion(f"{begun}<answer>{words(seed + 100, 400)} {SENTENCE * 12}</answer>")
    assert loops_in_completion(f"{begun}<answer>{'so ' * 90}</answer>")


@pytest.mark.parametrize(
    "answer",
    [
        "0 0 0 0 1 0 0 0\n" * 12,
        "".join(f"| {i} | the name of it | {i * 3} |\n" for i in range(40)),
        "".join(f"{i}. The value of the element is then {i * i}.\n" for i in range(40)),
        "".join(f"assert solution({i}, {i + 1}) == {2 * i + 1}\n" for i in range(40)),
        '{"type": "text", "value": 1},\n' * 20,
        "<td></td><td></td><td></td>\n" * 20,
        "- - - - - - - -\n" * 20,
        SENTENCE * 3,
    ],
)
def test_an_answer_may_repeat_what_it_must(answer: str) -> None:
    assert not loops_in_completion(f"<think>{words(0)}</think><answer>{answer}</answer>")
