"""Blocks of a table are read as its lines one by one would be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlprobe.errors import EmptyRunError
from rlprobe.importers.documents import csv_blocks, csv_reader, csv_table
from rlprobe.importers.documents.csv_table import CSVTable
from rlprobe.importers.importer import Reading
from rlprobe.importers.source import Source
from tests.importers.reading import log

HEADERS = (
    "step,loss,reward,note,kl",
    "loss,reward,note,kl,lr",
    "step,a - loss,b - loss,a - kl,b - loss__MIN",
    "Step,run - loss,run - loss__MIN,run - loss__MAX,mode",
    "step,eval_loss,loss,split,loss",
    "step,loss,rank,,Wall time",
    "run,step,loss,kl,reward",
    "step,metric,value,a,b",
    ",loss,kl,entropy,time",
)
NUMBERS = (
    "0.5",
    "-1e-05",
    "12",
    "3.25",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e400",
    "+2",
    ".5",
    "5.",
)
BLANKS = ("", "", "None", "null", "NA", "-", "n/a", "  ")
ODD = (
    *("1_0", "0x10", "1,5", '"0.5"', "nan(1)", "np.float64(2)", "tensor(3.)", "12%", "1.5k", "5."),
    *("True", "12 ms", chr(0x661), "1e", "#5", " 0.5 ", "\t7", "text", "a b", "1 250", "10:30"),
    *("2024-01-01 10:00", "train", "val", "eval", "é", "Infinity now", "nano"),
)
LINES = ("", "   ", "# a comment", "step,loss", "a,b,c", "1,2,3,4,5,6", '"open', "1,2,3,4,", ",,,,")
SEPARATORS = (",", "\t", ";", "|")

cell = st.one_of(
    *(st.sampled_from(NUMBERS) for _ in range(6)),
    st.sampled_from(BLANKS),
    st.sampled_from(ODD),
    st.floats(width=64).map(repr),
)
plain = st.sampled_from(NUMBERS)


@st.composite
def tables(draw: st.DrawFn) -> str:
    header = draw(st.sampled_from(HEADERS))
    strange = draw(st.sampled_from((0, 0, 1, 1, 2, 8)))
    words = draw(st.sampled_from((None, "text", "2024-01-01 10:00", "train", "a")))
    rows = []
    for step in range(draw(st.integers(2, 30))):
        cells = [str(step + 1), *(draw(plain) for _ in range(4))]
        if words is not None:
            cells[3] = words
        rows.append(cells)
    for _ in range(strange):
        cells = rows[draw(st.integers(0, len(rows) - 1))]
        cells[draw(st.integers(0, 4))] = draw(cell)
    lines = [header, *map(",".join, rows)]
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from((*LINES, header))))
    text = draw(st.sampled_from(("\n", "\r\n", "\r"))).join(lines)
    separator = draw(st.sampled_from(SEPARATORS))
    quoted = draw(st.sampled_from(("", "", "all", "text")))
    if quoted and draw(st.booleans()):
        text = re.sub(r"[^,\r\n]+" if quoted == "all" else r"[a-z][^,\r\n]*", r'"\g<0>"', text)
    if quoted == "all" and draw(st.booleans()):
        text = re.sub(r"(?<=,)(?=[,\r\n])", '""', text)
    return text.replace(",", separator) + draw(st.sampled_from(("", "\n")))


def content(reading: Reading) -> dict[str, Any]:
    steps = reading.rows.steps()
    columns = {
        name: [(row, repr(float(values[row]))) for row in np.flatnonzero(valid).tolist()]
        for name, (values, valid) in reading.rows.columns().items()
    }
    kept = {name: column for name, column in columns.items() if column}
    parts = (reading.run, reading.step_key, reading.framework, list(reading.notes))
    said = ([str(problem) for problem in reading.problems], reading.unread)
    return {"steps": steps.tolist(), "columns": kept, "parts": parts, "said": said}


def contents(path: Path) -> list[dict[str, Any]] | str:
    try:
        return [content(reading) for reading in CSVTable().read(Source(path))]
    except EmptyRunError as error:
        return str(error)


def both(path: Path, bytes_at_once: int) -> tuple[Any, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "WORTHWHILE_BYTES", 10**9)
        one_by_one = contents(path)
        patch.setattr(csv_reader, "WORTHWHILE_BYTES", 1)
        patch.setattr(csv_reader, "_SMALLEST", 1)
        patch.setattr(csv_table, "BLOCK_BYTES", bytes_at_once)
        return one_by_one, contents(path)


@settings(max_examples=150, deadline=None)
@given(text=tables(), bytes_at_once=st.sampled_from((40, 90, 200, 100_000)))
def test_blocks_tell_what_the_lines_tell(
    tmp_path_factory: pytest.TempPathFactory, text: str, bytes_at_once: int
) -> None:
    path = log(tmp_path_factory.mktemp("table"), "progress.csv", text)
    one_by_one, at_once = both(path, bytes_at_once)
    assert at_once == one_by_one


def taken_at_once(path: Path) -> tuple[list[Reading], int]:
    """What a table holds, and how many of its bytes were read in blocks."""
    taken: list[int] = []
    whole = csv_blocks.BlockReader.read

    def counted(self: Any, block: bytes, first: int) -> Any:
        found = whole(self, block, first)
        taken.append(0 if found is None else len(block))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks.BlockReader, "read", counted)
        patch.setattr(csv_reader, "WORTHWHILE_BYTES", 1)
        return CSVTable().read(Source(path)), sum(taken)


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("word", ["word", '"word"'])
def test_plain_tables_are_read_in_blocks(tmp_path: Path, separator: str, word: str) -> None:
    rows = [f"{step},{step / 7},{'' if step % 3 else step},{word}" for step in range(1, 400)]
    lines = [f"{row}\n".replace(",", separator) for row in ("step,loss,eval_acc,note", *rows)]
    path = log(tmp_path, "metrics.csv", "".join(lines))
    (reading,), taken = taken_at_once(path)
    assert taken == sum(map(len, lines[1:-1]))
    assert reading.rows.steps().tolist() == list(range(1, 400))
    values, valid = reading.rows.columns()["eval_acc"]
    assert np.flatnonzero(valid).tolist() == list(range(2, 399, 3))
    assert values[valid].tolist() == list(range(3, 400, 3))


def test_exports_with_each_cell_in_quotes_are_read_in_blocks(tmp_path: Path) -> None:
    header = '"Step","one - loss","one - loss__MIN","two - loss","two - loss__MIN"\n'
    rows = [
        f'"{step}","{step / 7}","{step / 7}",'
        + (f'"{step / 9}","{step / 9}"\n' if step < 300 else '"",""\n')
        for step in range(1, 400)
    ]
    readings, taken = taken_at_once(log(tmp_path, "export.csv", header + "".join(rows)))
    assert taken == sum(map(len, rows[:-1]))
    assert [reading.run for reading in readings] == ["one", "two"]
    assert [reading.rows.steps()[-1] for reading in readings] == [399, 299]
    assert readings[1].rows.columns()["loss"][0].tolist() == [step / 9 for step in range(1, 300)]


def test_a_row_that_does_not_fit_costs_its_block_only(tmp_path: Path) -> None:
    rows = [f"{step},{step / 7:.6f},0.5" for step in range(1, 2001)]
    rows[1000] += ",7"
    path = log(tmp_path, "metrics.csv", "\n".join(["step,loss,kl", *rows]))
    one_by_one, at_once = both(path, 4000)
    assert at_once == one_by_one
    assert len(at_once[0]["steps"]) == 1999
    (unread,) = at_once[0]["said"][1]
    assert unread.examples == ((1002, rows[1000]),)
