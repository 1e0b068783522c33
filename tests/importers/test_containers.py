"""Compression, encodings and line ends: the same run, however its text is kept."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from rlprobe.errors import InputError
from rlprobe.importers import compression, open_runs
from rlprobe.importers.source import Source, _with_newlines
from tests.importers.reading import log, points, read

ROWS = [{"step": step, "loss": 4.5 - step / 8} for step in range(1, 8)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = "step,loss\n" + "".join(f"{row['step']},{row['loss']}\n" for row in ROWS)
CONSOLE = "".join(f"step {row['step']} | loss {row['loss']}\n" for row in ROWS)
EXPECTED = [(row["step"], row["loss"]) for row in ROWS]
TEXTS = {"m.jsonl": JSONL, "m.csv": CSV, "m.log": CONSOLE}


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
ENCODED: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "utf-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 without a mark": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
    "utf-32 without a mark": lambda text: text.encode("utf-32-le"),
    "utf-32-be": lambda text: text.encode("utf-32-be"),
}
ENDS = {"LF": "\n", "CR": "\r", "CR LF": "\r\n", "CR CR LF": "\r\r\n"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("encode", ENCODED.values(), ids=ENCODED)
@pytest.mark.parametrize("name", TEXTS)
def test_text_is_read_whatever_it_is_wrapped_in(
    name: str, encode: Callable[[str], bytes], suffix: str, end: str, tmp_path: Path
) -> None:
    data = COMPRESSED[suffix](encode(TEXTS[name].replace("\n", end)))
    run = read(tmp_path, name + suffix, data)
    assert points(run, "loss") == EXPECTED
    assert not run.problems


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("encode", ENCODED.values(), ids=ENCODED)
def test_standard_input_is_read_like_a_file(
    encode: Callable[[str], bytes], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = COMPRESSED[suffix](encode(JSONL.replace("\n", "\r")))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    (run,) = open_runs("-")
    assert points(run, "loss") == EXPECTED


def test_line_ends_of_several_kinds_in_one_file(tmp_path: Path) -> None:
    ends = ["\r\n", "\r", "\n", "\r\r\n", "\r", "\r\n", ""]
    text = "".join(json.dumps(row) + end for row, end in zip(ROWS, ends, strict=True))
    assert points(read(tmp_path, "m.jsonl", text), "loss") == EXPECTED


@pytest.mark.parametrize("pieces", [(b"a\r", b"\nb"), (b"a\r", b"\r\nb"), (b"a\r\r", b"\nb")])
def test_a_line_end_that_is_cut_between_two_blocks_is_one(pieces: Iterable[bytes]) -> None:
    assert b"".join(_with_newlines(pieces)) == b"a\nb"
    assert b"".join(_with_newlines([b"a\r", b"b\r"])) == b"a\nb\n"


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_of_a_compressed_file_that_was_cut_the_beginning_is_read(
    suffix: str, tmp_path: Path
) -> None:
    many = "".join(json.dumps({"step": n, "loss": n * 0.618 % 1}) + "\n" for n in range(60_000))
    data = COMPRESSED[suffix](many.encode())
    run = read(tmp_path, "m.jsonl" + suffix, data[: len(data) * 3 // 4])
    steps = [step for step, _ in points(run, "loss")]
    assert steps == list(range(len(steps)))
    assert 1_000 < len(steps) < 60_000


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_what_swells_without_bounds_is_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "HARMLESS_BYTES", 1024 * 1024)
    bomb = log(tmp_path, "m.log" + suffix, COMPRESSED[suffix](b"\n" * 60_000_000))
    with pytest.raises(InputError, match="it swells to more than 400 times its size"):
        list(Source(bomb).chunks())


def test_what_only_begins_like_a_compressed_file(tmp_path: Path) -> None:
    run = read(tmp_path, "m.log", "BZh9 is our cluster\n" + CONSOLE)
    assert points(run, "loss") == EXPECTED
    with pytest.raises(InputError, match="Couldn't read"):
        read(tmp_path, "n.xz", b"\xfd7zXZ\0" + b"garbage" * 20)


def test_files_that_go_on_from_one_another_are_one_text(tmp_path: Path) -> None:
    first = log(tmp_path, "a.gz", gzip.compress(b"1\n2"))
    last = log(tmp_path, "c", "3\n".encode("utf-16"))
    assert list(Source(last, parts=[first, last]).lines()) == [b"1", b"2", b"3"]
