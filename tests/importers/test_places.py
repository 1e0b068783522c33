"""Pairs that are found from their numbers are those that a search from their names finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.importers.console.pairs import PLAIN
from rlprobe.importers.console.places import near_numbers

PIECES = st.sampled_from(
    [
        "loss", "grad_norm", "a", "step", "actor/lr(1e-4)", "time (ms)", "inf", "nan", "INFO", "np",
        "tensor", "layer2.w", "x@5", "50%", "the", "of", "info", "mean(s)", "_q", "Größe", "\u017f",
        "0.5", "12", "-3e-4", "1,234", "nan", "+inf", ".5", "5.", "7/90", "np.float64(0.1)",
        "tensor(0.5, device='cuda:0')", "0x1f", "3ms", "12%", "2.5it/s", "٣", "1e400",
        " ", " ", " ", "  ", "\t", ": ", "=", " = ", "=>", "#", "[", "]", "(", ")", "|", ",", ";",
        "*", "+", "-", "/", ".", "±", ":", "\n", "'", "{", "\u00a0",
    ]
)  # fmt: skip


@settings(max_examples=3000, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_the_same_pairs(text: str) -> None:
    found = [(match.span(), match.groupdict()) for match in near_numbers(PLAIN, text)]
    assert found == [(match.span(), match.groupdict()) for match in PLAIN.finditer(text)]


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["loss", "the", "mean of", "inf", "step", "is", "grad norm", "x/y"]),
            st.sampled_from(["0.5", "12", "nan", "3.5 ms", "tensor(1.5)", "= 5", ": 7", "* 3"]),
        ),
        max_size=40,
    ).map(" ".join)
)
def test_the_same_pairs_in_words(text: str) -> None:
    found = [match.span() for match in near_numbers(PLAIN, text)]
    assert found == [match.span() for match in PLAIN.finditer(text)]
