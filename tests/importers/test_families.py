"""Logs of the frameworks, as each prints them, are read value for value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers import families, families_classic, families_rl
from tests.importers.judge import EXACT, judge
from tests.importers.reading import log
from tests.importers.tables import Cell, Table

FAMILIES = {**families.FAMILIES, **families_rl.FAMILIES, **families_classic.FAMILIES}


def table(sample: families.Sample) -> Table:
    """The numbers of a sample as a table to be judged by."""
    rows = [
        {key: Cell(repr(values[at]), repr(values[at]), values[at]) for key, values in items}
        for at in range(len(sample.steps))
        for items in [sample.values.items()]
    ]
    return Table(sample.steps, rows)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_is_read_value_for_value(tmp_path: Path, name: str) -> None:
    sample = FAMILIES[name]()
    judgement = judge(log(tmp_path, sample.file, sample.text), table(sample), beside=True)
    assert judgement.outcome == EXACT, (judgement.faults, sample.text)
