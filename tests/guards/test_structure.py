"""Tag trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlprobe.errors import UsageError
from rlprobe.guards import read_tags

GOOD = "<think>a < b</think> <answer>4</answer>"


def test_a_whole_text() -> None:
    report = read_tags(GOOD)
    assert report.balanced
    assert report.content(GOOD, "answer") == ["4"]
    assert [block.tag for block in report.blocks] == ["think", "answer"]


@pytest.mark.parametrize(
    ("text", "unclosed", "unopened", "crossed", "malformed"),
    [
        ("<think>on and on", ("think",), (), 0, 0),
        ("</think>4", (), ("think",), 0, 0),
        ("<think><answer></think></answer>", (), (), 1, 0),
        ("<think a </think>", (), ("think",), 0, 1),
        ("<think><think></think>", ("think",), (), 0, 0),
        ("<br/>", (), (), 0, 0),
        ("", (), (), 0, 0),
        ("2 < 3 and 3 > 2", (), (), 0, 0),
    ],
)
def test_what_is_wrong(
    text: str, unclosed: tuple[str, ...], unopened: tuple[str, ...], crossed: int, malformed: int
) -> None:
    report = read_tags(text)
    found = (report.unclosed, report.unopened, report.crossed, report.malformed)
    assert found == (unclosed, unopened, crossed, malformed)
    assert report.balanced == (found == ((), (), 0, 0))
    assert report.runaway == bool(unclosed)


def test_only_named_tags_count() -> None:
    assert read_tags("<b>bold <think>x</think>", frozenset({"think"})).balanced


@given(st.text(alphabet="<>/think ab", max_size=60))
def test_any_text_is_read(text: str) -> None:
    report = read_tags(text)
    for block in report.blocks:
        assert 0 <= block.start <= block.end <= len(text)


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(UsageError, match="'text' None"):
        read_tags(None)  # type: ignore[arg-type]
