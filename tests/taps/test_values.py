"""Which of the things that a tracker is given are numbers."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.taps.values import numbers, of_array, of_histogram, scalar

PLAIN = st.one_of(st.floats(allow_nan=False), st.integers(), st.booleans())
NAMES = st.text("abc", min_size=1, max_size=3)
NESTED = st.recursive(PLAIN, lambda inner: st.dictionaries(NAMES, inner, max_size=3))


def leaves(value: Any) -> int:
    return sum(map(leaves, value.values())) if isinstance(value, dict) else 1


@given(st.dictionaries(st.text(max_size=3), PLAIN))
def test_plain_numbers_pass_as_they_are(row: dict[str, Any]) -> None:
    assert numbers(row) == row
    assert numbers(row) is not row


@given(st.dictionaries(NAMES, NESTED, max_size=4))
def test_nested_numbers_keep_their_values_under_a_joined_name(row: dict[str, Any]) -> None:
    assert len(numbers(row)) <= leaves(row)
    for name, value in numbers(row, ".").items():
        inner: Any = row
        for part in name.split("."):
            inner = inner[part]
        assert inner is value


def test_what_is_no_number_is_left_out() -> None:
    table = SimpleNamespace(data=[[1]], columns=["a"])
    row = {
        "loss": np.float32(0.5), "text": "12", "none": None, "table": table, "list": [1.0],
        "image": {"_type": "image-file", "size": 3}, "array": np.zeros(3), "one": np.ones((1, 1)),
        "half": Fraction(1, 2), 7: 1,
    }  # fmt: skip
    named = numbers(row)
    assert set(named) == {"loss", "one", "half", "7"}
    assert named["one"].shape == ()
    assert float(named["half"]) == 0.5


def test_a_histogram_becomes_what_is_told_of_a_distribution() -> None:
    logged = SimpleNamespace(bins=[0.0, 1.0, 2.0, 3.0], histogram=[0, 2, 2])
    assert numbers({"h": logged}) == pytest.approx(
        {"h_mean": 2.0, "h_std": 0.5, "h_min": 1.0, "h_max": 3.0, "h_p95": 2.9}
    )
    assert of_histogram("h", [0, 1], [0]) == {}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_an_array_and_a_list_say_the_same(values: list[float]) -> None:
    of_list = of_array("x", values)
    of_numpy = {name: float(value) for name, value in of_array("x", np.array(values)).items()}
    assert of_list == pytest.approx(of_numpy, abs=1e-6)
    assert of_list["x_min"] == min(values)
    assert of_array("x", []) == of_array("x", np.zeros(0)) == {}


@pytest.mark.parametrize("value", ["1", b"1", [1], None, {"a": 1}, np.zeros(2), object()])
def test_no_scalar(value: Any) -> None:
    assert scalar(value) is None
