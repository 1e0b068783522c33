"""One flipped bit, anywhere in a small recording: named and left out, or without any effect.

Single bits, one at a time, in shards, `run.json`, attempts and processes alike, are counted as
`named` (what could not be read is named, the rest is judged, and no verdict of pass comes of it),
`harmless` (every number and text is as it was), `SILENT` (another number or text, and nothing
said), `UNSCANNABLE`.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import astuple
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from rlprobe.cli import main as rlprobe
from rlprobe.exit_codes import COULD_NOT_JUDGE
from rlprobe.recorder.recorder import Recorder
from rlprobe.store.frame import Frame
from rlprobe.store.recording import Recording

NAMED, HARMLESS, SILENT, UNSCANNABLE = "named", "harmless", "SILENT", "UNSCANNABLE"
GOOD = frozenset({NAMED, HARMLESS})


def recorded(directory: Path) -> Path:
    """A healthy run of two attempts, with every kind of file a recording has."""
    random = Random(1)
    config = {"max_completion_length": 64, "learning_rate": 1e-6, "beta": 0.04}
    for first in (0, 60):
        with Recorder(directory, algorithm="GRPO", config=config, signals=False) as recorder:
            for step in range(first, first + 80):
                loss = 1 / (1 + step / 50) + random.gauss(0, 0.01)
                recorder.step(step, loss=loss, reward_mean=0.5 + random.gauss(0, 0.05))
                recorder.rank(step, grad_norm=1 + random.gauss(0, 0.1))
                if step % 40 == 20:
                    recorder.samples(
                        step, prompts=["p"], completions=["a", "b"], rewards=[0, 1], group_size=2
                    )
                    recorder.checkpoint(step, f"/checkpoints/{step}")
                    recorder.flush()
    return directory


def content(recording: Recording) -> Any:
    """Everything that a recording tells, to be compared."""
    info = recording.info
    steps = recording.sample_steps()
    rollouts = [repr(one) for step in steps for one in recording.rollouts(step)]
    return (
        _columns(recording.steps),
        _columns(recording.ranks),
        [repr(event) for event in recording.events],
        rollouts,
        [repr(astuple(attempt)) for attempt in info.attempts],
        (info.id, info.source, info.framework, info.algorithm, info.world_size, info.health),
        json.dumps(dict(info.settings), sort_keys=True),
        (info.notes, info.unread, info.records_end),
    )


def _columns(frame: Frame) -> Any:
    keys = [column.tobytes() for column in (frame.step, frame.attempt, frame.rank, frame.time)]
    loaded = {name: frame.load(name) for name in frame.names}
    return keys, {
        name: (np.where(valid, values, 0).tobytes(), valid.tobytes())
        for name, (values, valid) in loaded.items()
    }


def outcome(directory: Path, known: Any, *, scanned: bool = True) -> str:
    """What became of a recording, against what it told before."""
    try:
        recording = Recording(directory)
        same = content(recording) == known
        named = any(problem.table for problem in recording.problems)
        if scanned and not _judged(directory, named=named):
            return UNSCANNABLE
    except Exception:
        return UNSCANNABLE
    if named:
        return NAMED
    return HARMLESS if same else SILENT


def _judged(directory: Path, *, named: bool) -> bool:
    """Whether a scan goes through, and passes nothing of which a part is missing."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = rlprobe(["scan", str(directory), "--format", "json"])
    report = json.loads(said.getvalue())
    failed = any(entry["state"] == "failed" for entry in report["coverage"])
    return not failed and not (named and (report["verdict"] == "pass" or code < COULD_NOT_JUDGE))


def campaign(count: int, first: int = 0, scan_every: int = 1) -> Counter[str]:
    """Flip a bit for each seed, and count what became of it; every so many are scanned as well."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        whole, directory = Path(scratch) / "whole", Path(scratch) / "copy" / "run"
        recorded(whole / "run")
        shutil.copytree(whole / "run", directory)
        known = content(Recording(directory))
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        for seed in range(first, first + count):
            random = Random(seed)
            path = random.choice(files)
            before = path.read_bytes()
            damaged = bytearray(before)
            damaged[random.randrange(len(before))] ^= 1 << random.randrange(8)
            path.write_bytes(damaged)
            counts[outcome(directory, known, scanned=seed % scan_every == 0)] += 1
            path.write_bytes(before)
    return counts
