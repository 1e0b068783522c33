"""Blocks of JSON lines are read as the lines one by one would be."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlprobe.importers.documents import json_blocks
from rlprobe.importers.documents.jsonl import JSONLines
from rlprobe.importers.importer import Reading
from rlprobe.importers.source import Source
from tests.importers.reading import log

ODD: dict[str, list[str]] = {
    "plain": [],
    "missing": ['{"step": 3, "loss": 0.5}', '{"step": 4, "kl": 1}'],
    "null": ['{"step": 3, "loss": null, "kl": 0.5}'],
    "literals": ['{"step": 3, "loss": NaN, "kl": -Infinity}', '{"step": 4, "loss": Infinity}'],
    "text": ['{"step": 3, "loss": "0.5", "kl": 2}', '{"step": 4, "loss": "nan"}'],
    "words": ['{"step": 3, "loss": 0.5, "note": "1.5k", "phase": "train"}'],
    "another key": ['{"step": 3, "loss": 0.5, "kl": 0.25, "late": 7}'],
    "key twice": ['{"step": 3, "loss": 0.5, "loss": 0.75}'],
    "escapes": [
        '{"step": 3, "loss": 0.5, "text": "a \\"kl\\": 5"}',
        '{"step": 4, "l\\u006fss": 2}',
    ],
    "truth": ['{"step": 3, "loss": true, "kl": false}'],
    "lists": ['{"step": 3, "loss": 0.5, "all": [1, 2]}', '{"step": 4, "all": ["a", {"loss": 3}]}'],
    "nested": ['{"step": 3, "a": {"loss": 0.5, "b": {"kl": 2}}}', '{"step": 4, "a": 5}'],
    "empty object": ['{"step": 3, "a": {}, "loss": 0.5}'],
    "huge": ['{"step": 3, "loss": 1e400, "kl": 123456789012345678901234567890}'],
    "steps": [
        '{"step": 2.5, "loss": 1}',
        '{"step": "7/90", "loss": 2}',
        '{"step": 3.0, "loss": 4}',
    ],
    "no step": ['{"loss": 0.5}', '{"load": 12, "fan": 2}', '{"note": "x"}'] * 4,
    "evaluation": ['{"step": 3, "eval_loss": 0.5, "reward": 2}', '{"step": 4, "eval_loss": 0.25}'],
    "mode": ['{"step": 3, "mode": "eval", "loss": 0.5}', '{"step": 4, "mode": "train", "loss": 1}'],
    "summary": ['{"step": 3, "train_runtime": 12.5, "train_loss": 0.5}'],
    "wrapper": ['{"step": 3, "metrics": {"loss": 0.5}}', '{"step": 4, "config": {"lr": 1}}'],
    "bad": ["not json", '{"step": 3, "loss": 0.5', "[1, 2]", "", "{'step': 4}"],
    "case": ['{"step": 3, "Loss": 0.5, "KL": 2}'],
    "blanks": ['{"step" : 3, "loss" :0.5}', '  {"step": 4,  "loss":1}\r'],
}
BASES: dict[str, Any] = {
    "flat": lambda step: {"step": step, "loss": step / 7, "kl": 1e-5 * step},
    "unnumbered": lambda step: {"loss": step / 7, "kl": 1e-5 * step},
    "verl": lambda step: {"step": step, "data": {"loss": step / 7, "kl": None if step % 5 else 2}},
    "wrapped": lambda step: {"metrics": {"loss": step / 7}, "step": step, "config": {"lr": 0.5}},
    "nested": lambda step: {"step": step, "a": {"loss": step / 7, "b": {"kl": step}}},
    "worded": lambda step: {"step": step, "phase": ("train", "eval")[step % 2], "loss": step / 7},
    "quoted": lambda step: {"step": f"{step}/500", "loss": f"{step / 7:.3f}", "time": "1m 3s"},
}


def told(reading: Reading) -> tuple[Any, ...]:
    columns = {
        name: (np.where(valid, values, -1).tolist(), valid.tolist())
        for name, (values, valid) in sorted(reading.rows.columns().items())
        if valid.any()
    }
    shown = {name: ([repr(v) for v in values], valid) for name, (values, valid) in columns.items()}
    problems = [problem.message for problem in reading.problems]
    return reading.rows.steps().tolist(), shown, list(reading.notes), problems, reading.unread


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("odd", ODD)
def test_blocks_and_lines(
    base: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [json.dumps(BASES[base](step)) for step in range(1, 40)]
    numbers = random.Random(odd)
    for line in ODD[odd]:
        rows.insert(numbers.randint(3, len(rows)), line)
    path = log(tmp_path, "run.jsonl", "\n".join(rows) + "\n")
    monkeypatch.setattr(json_blocks, "WORTHWHILE_BYTES", 10**9)
    (slow,) = JSONLines().read(Source(path))
    monkeypatch.setattr(json_blocks, "WORTHWHILE_BYTES", 0)
    (fast,) = JSONLines().read(Source(path))
    assert told(fast) == told(slow)


@pytest.mark.parametrize("base", BASES)
def test_rows_of_one_kind_are_read_at_once(base: str) -> None:
    reader = json_blocks.BlockReader(null_is_nan=base == "verl")
    block = "\n".join(json.dumps(BASES[base](step)) for step in range(1, 400)).encode()
    found = reader.read(block)
    assert found is not None
    assert found.size == 399
