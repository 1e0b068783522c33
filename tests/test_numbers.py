"""Numbers for people: short, and never wrong about NaN and Inf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe import numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (142.6, "142.6"),
        (0.85, "0.85"),
        (0.875, "0.875"),
        (0.0412, "0.0412"),
        (0.10, "0.1"),
        (-18.4, "-18.4"),
        (2840.0, "2,840"),
        (12345678.0, "1.2e+07"),
        (7.6e-09, "7.6e-09"),
        (float("nan"), "NaN"),
        (float("inf"), "Inf"),
        (float("-inf"), "-Inf"),
        (3.0, "3"),
    ],
)
def test_number(value: float, shown: str) -> None:
    assert numbers.number(value) == shown


def test_other_numbers() -> None:
    assert numbers.ratio(168.2) == "x168"
    assert numbers.ratio(11.8) == "x12"
    assert numbers.ratio(1.1) == "+10 %"
    assert numbers.factor(2.345) == "2.3"
    assert numbers.ratio(0.03) == "x0.03"
    assert numbers.difference(0.812) == "+0.812"
    assert numbers.large(4.1e9) == "4.1 B"
    assert numbers.size(13_002_342) == "12.4 MiB"
    assert numbers.confidence(0.999) == "0.99"
    assert numbers.moment(float("nan")) == "?"
    assert numbers.moment(1e300) == "?"


@given(st.floats())
def test_any_float_is_a_number(value: float) -> None:
    assert 0 < len(numbers.number(value)) <= 12


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (10833.4, "10,833"), (0.01234, "0.0123"), (float("nan"), "nan"), (2e12, "2e+12")],
)
def test_a_number_in_a_sentence(value: float, text: str) -> None:
    assert numbers.short(value) == text
