"""What is said of a file that no format could read: what was seen, what it is nearest to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers import open_runs
from tests.importers.reading import log


def refusal(tmp_path: Path, name: str, content: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        open_runs(log(tmp_path, name, content))
    return caught.value


def test_lines_that_look_like_metrics_are_quoted_with_their_numbers(tmp_path: Path) -> None:
    text = "hello\nusing 8 workers\nsome reward score 0.43 was seen\nthe loss fell by 0.2 or so\n"
    error = refusal(tmp_path, "run.log", text)
    assert isinstance(error, UnknownFormatError)
    assert 'line 3: "some reward score 0.43 was seen"' in str(error)
    assert 'line 4: "the loss fell by 0.2 or so"' in str(error)
    assert "using 8 workers" not in str(error), "what speaks of a loss or a reward comes first"
    assert "Nearest: console output (3 lines have numbers beside words, but none tells a step)" in (
        str(error)
    )
    assert "trainer_state" not in f"{error} {error.hint}", "no list of all formats"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("took 3.5 of 9\n", "1 line has numbers beside words, but none the name of a metric"),
        ("hello\n\nthere\n", "No number in it stands beside a word: it is no log of metrics."),
        ("a|b\n---|---\n1|2\n3|4\n", "no column has the name of a metric that rlprobe knows"),
        ("# a\n1,2,3\n4,5,6\n7,8,9\n", "its first line names no columns: it holds numbers"),
        ("1,2,3\n4,5,6\n7,8,9\n", "its first line names no columns: it holds numbers"),
    ],
)
def test_the_nearest_format_is_named_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    error = refusal(tmp_path, "run.txt", text)
    assert why in str(error)
    assert "Seen: line " in str(error)


def test_without_numbers_the_first_line_is_quoted(tmp_path: Path) -> None:
    assert 'Seen: line 3: "hello".' in str(refusal(tmp_path, "a.txt", "\n\nhello\nthere\n"))


def test_what_is_quoted_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    said = str(refusal(tmp_path, "a.txt", "reward \x1b]0;x\x07 0.5 \u202e" + "y" * 500 + "\n"))
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "…" in said
    assert len(said) < 400


def test_a_format_that_took_it_for_its_own_says_why_and_what_it_saw(tmp_path: Path) -> None:
    error = refusal(
        tmp_path, "a.json", '{\n "scores": {"reward": "high"},\n "final_loss": 0.2\n}\n'
    )
    assert isinstance(error, EmptyRunError)
    assert "Couldn't find metrics in" in str(error)
    assert 'Seen: line 3: ""final_loss": 0.2". Nearest: json.' in str(error)


def test_what_is_no_text_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    said = str(refusal(tmp_path, "a.bin", b"\x89HDF\r\n\x1a\n" + bytes(200)))
    assert "It begins with the bytes 89 48 44 46 0d 0a 1a 0a (HDF5)" in said
    assert "Seen" not in said
