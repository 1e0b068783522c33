"""Tables of numbers in every shape of console output: read back or refused, never read wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.importers.judge import EXACT, LOST, REFUSED, SAID, WRONG, Judgement, judge
from tests.importers.shapes import SHAPES, log, plain
from tests.importers.tables import Cell, Table

_PLAINLY = 12  # tables of each shape


def judged(text: str, table: Table) -> Judgement:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        path.write_bytes(text.encode())
        return judge(path, table)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_shape_without_decorations_is_read_value_for_value(shape: str) -> None:
    for seed in range(_PLAINLY):
        made = plain(Random(seed), shape)
        judgement = judged(made.text, made.table)
        assert judgement.outcome == EXACT, (judgement.faults, made.text)


# By seed: what hypothesis draws depends on the modules that other tests have loaded.
@pytest.mark.parametrize("seed", range(300))
def test_no_log_is_read_wrong_and_nothing_is_lost_without_a_word(seed: int) -> None:
    made = log(Random(seed))
    judgement = judged(made.text, made.table)
    assert judgement.outcome in (EXACT, SAID, REFUSED), (judgement.faults, made.text)


def _table(*losses: float, key: str = "loss") -> Table:
    rows = [{key: Cell(str(value), str(value), value)} for value in losses]
    return Table(list(range(1, len(losses) + 1)), rows)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("step: 1, loss: 0.5\nstep: 2, loss: 0.25\n", EXACT),
        ("step: 1, loss: 0.5\nstep: 2, loss: 0.24\n", WRONG),
        ("step: 1, loss: 0.5\nstep: 2, loss: 0.25\nstep: 3, loss: 0.1\n", WRONG),
        ("step: 1, loss: 0.5, kl: 0.1\nstep: 2, loss: 0.25, kl: 0.1\n", WRONG),
        ("nothing here\n", REFUSED),
    ],
)
def test_the_judge_tells_what_was_read_from_what_was_written(text: str, outcome: str) -> None:
    assert judged(text, _table(0.5, 0.25)).outcome == outcome


def test_the_judge_tells_what_is_lost() -> None:
    judgement = judged("step: 1, loss: 0.5\n", _table(0.5, 0.25))
    assert (judgement.outcome, judgement.right, judgement.missing) == (LOST, 1, 1)
