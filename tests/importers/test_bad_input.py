"""Broken, hostile and odd files: bounded, and told by rlprobe's own errors."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlprobe.errors import InputError, RlprobeError
from rlprobe.importers import compression, open_runs, rows, source
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.steps import SettledSteps
from rlprobe.importers.numbers import number
from tests.importers.reading import log, only, points, read

ROWS = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'


def test_compressed_files(tmp_path: Path) -> None:
    expected = [(1, 0.5), (2, 0.25)]
    assert points(read(tmp_path, "a.jsonl.gz", gzip.compress(ROWS.encode())), "loss") == expected
    packed = pa.Codec("zstd").compress(ROWS.encode(), asbytes=True)
    assert points(read(tmp_path, "a.jsonl.zst", packed), "loss") == expected


def test_a_compressed_file_that_was_cut_is_read_up_to_the_cut(tmp_path: Path) -> None:
    text = "".join(json.dumps({"step": s, "loss": s / 7}) + "\n" for s in range(5000))
    packed = gzip.compress(text.encode())
    run = read(tmp_path, "a.jsonl.gz", packed[: len(packed) // 2])
    assert 1000 < len(run.steps) < 4000


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "HARMLESS_BYTES", 1 << 20)
    path = tmp_path / "bomb.log.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(64):
            file.write(b"a " * (1 << 19))
    with pytest.raises(InputError, match="swells"):
        open_runs(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ROWS.encode())))
    (run,) = open_runs("-")
    assert points(run, "loss") == [(1, 0.5), (2, 0.25)]


def test_a_huge_line_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 1 << 16)
    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 18)
    text = (
        '{"step": 1, "loss": 0.5}\n{"step": 2, "x": "'
        + "y" * (1 << 20)
        + '"}\n{"step": 3, "loss": 0.25}\n'
    )
    for name in ("a.jsonl", "a.log"):
        run = read(tmp_path, name, text)
        assert points(run, "loss") == [(1, 0.5), (3, 0.25)]


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'[{"step": 1, "loss": 1},' * 20_000,
        b'{"step": 1, "a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b"{" * 1_000_000,
        b"'" * 1_000_000,
        b"| " * 500_000,
        b"step 1 " * 200_000,
        b"rewards: [" * 100_000,
        b"<td>" * 200_000,
        b"\x1b[" * 500_000,
        b"1%|" * 300_000,
        bytes(range(256)) * 4000,
        b"\x00" * 1_000_000,
        b"PK\x03\x04" + b"\x00" * 1000,
        b"\xff\xfe" + b"\x00\xd8" * 1000,
        b"\x1f\x8b\x08\x00" + b"junk" * 100,
        b"\x28\xb5\x2f\xfd" + b"junk" * 100,
        b"a,b\n" + b'"' * 1_000_000,
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.log", "a.csv"])
def test_hostile_content_takes_little_time(tmp_path: Path, content: bytes, name: str) -> None:
    started = time.perf_counter()
    with contextlib.suppress(RlprobeError):
        open_runs(log(tmp_path, name, content))
    assert time.perf_counter() - started < 10


def test_countless_keys_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_CELLS", 100_000)
    text = "".join(json.dumps({"step": s, f"k{s}": 1.0, "loss": 0.5}) + "\n" for s in range(3000))
    run = read(tmp_path, "a.jsonl", text)
    assert len(points(run, "loss")) == 3000
    assert any("keys left out" in note for note in run.info.notes)


SEEDS = {
    "trainer_state.json": json.dumps({"log_history": [{"step": s, "loss": 0.5} for s in range(9)]}),
    "a.jsonl": ROWS * 5,
    "golden.json": json.dumps({"lm loss": {"values": {"1": 10.5, "2": "nan"}}}),
    "a.csv": "step,loss,reward\n1,0.5,\n2,0.25,nan\n" * 3,
    "hf.log": " 10%|█ | 1/10 [00:01<00:09,  1.0s/it]{'loss': 0.5, 'grad_norm': nan, 'epoch': 0.1}\n"
    * 4,
    "verl.log": "(TaskRunner pid=1) step:1 - actor/pg_loss:np.float64(nan) - actor/lr(1e-4):0.01\n"
    * 4,
    "megatron.log": " iteration 10/ 100 | lm loss: 1.0E+00 | loss scale: 1.0 | grad norm: 0.5 |\n"
    * 4,
    "table.log": "| Step | Training Loss |\n|--|--|\n| 1 | 0.5 |\n<tr><td>1</td></tr>\n",
    "block.log": "Learning iteration 1/9\n Mean reward: 0.5\nrewards: [1, 2]\n"
    "OVERFLOW! Skipping step. reducing to 2\n",
}


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("seed", range(40))
def test_mutated_logs_raise_nothing_but_our_own(tmp_path: Path, name: str, seed: int) -> None:
    mutations = random.Random(f"{name}{seed}")
    content = bytearray(SEEDS[name].encode())
    for _ in range(mutations.randint(1, 12)):
        at = mutations.randrange(len(content))
        junk = mutations.choice(
            [
                mutations.randbytes(3),
                b"\n",
                b"{",
                b"}",
                b"'",
                b'"',
                b"nan",
                b"-",
                b"9" * 30,
                b"|",
                b"\r",
            ]
        )
        content[at : at + mutations.randint(0, 4)] = junk
    with contextlib.suppress(RlprobeError):
        open_runs(log(tmp_path, name, bytes(content)))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=400), st.sampled_from(["a.json", "a.jsonl", "a.csv", "a.log", "a.gz"]))
def test_any_bytes(tmp_path: Path, content: bytes, name: str) -> None:
    with contextlib.suppress(RlprobeError):
        open_runs(log(tmp_path, name, content))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.one_of(
            st.text(max_size=80),
            st.sampled_from([line for t in SEEDS.values() for line in t.splitlines()]),
        ),
        max_size=20,
    )
)
def test_any_lines_of_a_console(lines: list[str]) -> None:
    reader, steps = Reader(), SettledSteps()
    rows = [row for line in lines for row in reader.feed(line)] + reader.finish()
    for row in rows:
        steps.add(row)
    numbers, _ = steps.settled()
    assert len(numbers) == len(rows)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["step", "loss", "1", "values", "data"]), inner, max_size=4
            )
        ),
        max_leaves=20,
    )
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_json(tmp_path: Path, document: object) -> None:
    for name in ("a.json", "a.jsonl", "trainer_state.json"):
        with contextlib.suppress(RlprobeError):
            open_runs(log(tmp_path, name, json.dumps(document)))


@given(st.floats())
def test_numbers_come_back(value: float) -> None:
    for text in (repr(value), f"np.float64({value!r})", f"tensor({value!r}, device='cuda:0')"):
        assert repr(number(text)) == repr(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234", 1234.0),
        ("53.12%", 0.5312),
        ("NAN", "nan"),
        ("-Infinity", -float("inf")),
        ("1_0", None),
        ("1,23", None),
        ("", None),
        ("x", None),
        ("9" * 100, None),
        (True, 1.0),
        (10**400, float("inf")),
    ],
)
def test_spellings(text: object, expected: object) -> None:
    value = number(text)
    assert (
        (value == pytest.approx(expected))
        if isinstance(expected, float)
        else str(value) == str(expected)
    )


def test_a_good_file_beside_a_broken_one(tmp_path: Path) -> None:
    log(tmp_path, "a.jsonl", ROWS)
    log(tmp_path, "b.json", "[" * 5000)
    assert len(only(tmp_path).steps) == 2
