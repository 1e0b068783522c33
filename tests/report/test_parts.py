"""Numbers, sparklines and escapes."""

from __future__ import annotations

import math
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.report import escape, numbers
from rlprobe.report.sparkline import around, sparkline
from rlprobe.scan.excerpts import excerpt
from rlprobe.values import Series


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


@given(st.lists(st.floats(), max_size=40), st.booleans())
def test_a_sparkline_has_one_character_per_value(values: list[float], log: bool) -> None:
    assert len(sparkline(values, log=log)) == len(values)


def test_sparkline() -> None:
    assert sparkline([1, 1, 1]) == "▁▁▁"
    assert sparkline([0, 1, math.nan, math.inf]) == "▁█!!"
    assert sparkline([1e-4, 1e-2, 1.0], log=True) == "▁▅█"
    assert sparkline([math.nan]) == "!"


def _series(values: list[float]) -> Series:
    return Series("grad_norm", np.arange(1, len(values) + 1, dtype=np.int64), np.array(values))


@given(st.integers(1, 400), st.integers(0, 400), st.integers(2, 400))
def test_the_caret_is_under_the_onset(onset: int, length: int, size: int) -> None:
    values = [1.0 if step < onset else 100.0 for step in range(1, size + 1)]
    picture = excerpt(_series(values), onset, onset + length)
    if onset > size:
        assert picture is None
        return
    assert picture is not None
    drawn = around(picture, onset + length)
    assert len(drawn.line) <= 34
    if onset > 1:
        assert drawn.line[: drawn.caret] == "▁" * drawn.caret
        assert drawn.line[drawn.caret] == "█"
        assert (drawn.before, drawn.worst) == (1.0, 100.0)


def test_a_spike_survives_squeezing() -> None:
    values = [1.0] * 500 + [2.0] * 500
    values[700] = 500.0
    picture = excerpt(_series(values), 501, 1000)
    assert picture is not None
    drawn = around(picture, 1000)
    assert "█" in drawn.line
    assert drawn.worst == 500.0


@given(st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L", "So"])))
def test_a_line_is_visible(text: str) -> None:
    shown = escape.line(text)
    hidden = {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert hidden <= {"\u200c", "\u200d"}
    if text.isprintable():
        assert shown == text


def test_escapes() -> None:
    assert escape.line("a\x1b[2Jb\r\n\u202e\x9b\udcff") == r"a\x1b[2Jb\r\n\u202e\x9b\udcff"
    assert escape.line("日本語 é [bold]") == "日本語 é [bold]"
    assert escape.block("a\r\nb\tc\x00") == ["a", r"b   c\x00"]
    assert escape.name("x" * 10_000, 9) == "xxxx…xxxx"
    assert escape.start("long text", 5) == "long…"
    assert escape.markdown("a|b @me <i> [x](http://y)").startswith(r"a\|b @<!-- -->me &lt;i&gt;")
    assert escape.code("a`b``c") == "``` a`b``c ```"
