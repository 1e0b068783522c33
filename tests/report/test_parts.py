"""Numbers, sparklines and escapes."""

from __future__ import annotations

import math
import unicodedata

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.report import escape
from rlprobe.report.sparkline import around, sparkline
from rlprobe.scan.excerpts import excerpt
from rlprobe.values import Series


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
