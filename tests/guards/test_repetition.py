"""Loops while a rollout is generated: the same count as of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.errors import UsageError
from rlprobe.guards import RepetitionDetector, stop_on_repetition
from rlprobe.repetition import loops


@settings(max_examples=150, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 2), max_size=60),
    n=st.integers(1, 5),
    cut=st.integers(0, 60),
)
def test_the_stream_loops_as_soon_as_what_has_come_does(
    tokens: list[int], n: int, cut: int
) -> None:
    at_once, one_by_one = RepetitionDetector(n, max_repeats=3), RepetitionDetector(n, max_repeats=3)
    at_once.feed_all(tokens[:cut])
    looping = at_once.feed_all(tokens[cut:])
    for token in tokens:
        one_by_one.feed(token)
    so_far = (tokens[:end] for end in range(len(tokens) + 1))
    assert looping == one_by_one.looping == any(loops(part, n, 3) for part in so_far)


def test_a_run_of_one_token_is_a_loop_once_it_is_half_of_all_or_comes_four_times_apart() -> None:
    alone, within = RepetitionDetector(), RepetitionDetector()
    assert [alone.feed(7) for _ in range(12)] == [False] * 10 + [True] * 2
    assert not within.feed_all(range(100, 200))
    assert not within.feed_all([7] * 31)
    assert within.feed(7)


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
