"""Templates of lines that repeat say what the parser says, whatever the numbers are."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.importers.console.repeats.meaning import Meanings, RowHead
from rlprobe.importers.console.repeats.shapes import Meaning, Shapes

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.floats(-1e4, 1e4).map(lambda value: f"{value:.4f}"),
    st.floats(-1e4, 1e4).map(lambda value: f"{value:.3E}"),
    st.integers(-20, 10**12).map(str),
    st.sampled_from(
        ["nan", "-inf", "+1.5", ".5", "5.", "1,234", "12%", "0", "1e-05", "None", "3ms"]
    ),
)
MEANINGS = Meanings()
SHAPES = (
    "average reward score: {1}",
    "|    {0:<9} | {1:<12} |",
    "| ep_rew_mean | {1:<12} |",
    "|E2E latency={1}s |Generate time={2}s ({3}%) |AvgSamplesPerSec={0}",
    "    loss       {1}",
    "[rank3]: {0}:{1} reward mean {2} and {3}",
    "2025-06-01 11:02:03,{3} - INFO - loss {1}, kl {2}",
    "{{'loss': {0}, 'grad_norm': {1}, 'reward': {2}, 'epoch': {3}}}",
    "step {0} | loss: {1} | reward {2} | dt: {3}ms",
    "(Worker pid={3}) step:{0} - actor/pg_loss:{1} - critic/rewards/mean:{2} - kl:{3}",
    "[2025-06-01 11:02:{3}] iteration {0:>9}/  5000 | lm loss: {1} | grad norm: {2} |",
    "Epoch: {3} | Step: {0} | Actor Loss: {1} | Critic Loss: {2}",
    "epoch [{3}][ {0}/ 500] loss: {1} ({2}) lr: {2}",
    "iter {0}: loss={1} reward_{3}={2}, reward={2}%",
    "Global step {0}: {{'reward': {1}, 'loss': {2}, 'kl': {3}}}",
    "INFO {0}: the loss of step {1} was {2} after {3} s",
    "| {0} | loss {1} | {2} | {3}",
    "step {0}, {1},{2} loss: {3}",
)


def same(a: Meaning | None, b: Meaning | None) -> bool:
    if a is None or b is None:
        return a is b
    one, other = a[1], b[1]
    return (a[0], one.keys()) == (b[0], other.keys()) and all(
        one[key] == other[key] or (math.isnan(one[key]) and math.isnan(other[key])) for key in one
    )


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_lines_of_one_shape(shape: str, rows: list[tuple[str, ...]], seed: int) -> None:
    numbers = random.Random(seed)
    shapes = Shapes(MEANINGS.looked_up)
    plain = [tuple(f"{numbers.random():.5f}" for _ in range(4)) for _ in range(8)]
    counted = [(str(step), *row[1:]) for step, row in enumerate(plain, start=1)]
    for row in (*plain, *counted, *rows):
        text = shape.format(*row)
        assert same(shapes.parse(text), MEANINGS.looked_up(text)), text


def test_a_line_that_repeats_is_read_without_its_parser() -> None:
    asked: list[str] = []

    def parser(text: str) -> Meaning | None:
        asked.append(text)
        return MEANINGS.looked_up(text)

    shapes = Shapes(parser)
    lines = [
        f"step {step} | loss: {0.5 / step:.6f} | reward: {step * 0.01:.4f}"
        for step in range(1, 400)
    ]
    rows = [shapes.parse(text) for text in lines]
    assert rows[-1] == (
        RowHead(None, broken=True, prefixed=False, framed=False),
        {"loss": 0.001253, "reward": 3.99, "step": 399.0},
    )
    assert len(asked) < 60


def test_units_and_names_with_digits_keep_their_meaning() -> None:
    shapes = Shapes(MEANINGS.looked_up)
    lines = [
        f"step {step} loss: 0.{step} reward_{step % 3}: 0.5 time: {step}.5ms" for step in range(90)
    ]
    assert [shapes.parse(text) for text in lines] == [MEANINGS.looked_up(text) for text in lines]
