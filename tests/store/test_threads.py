"""Reading leaves no thread of Arrow's that holds Python objects as the process ends.

Such a thread asks for the interpreter's lock too late now and then, and the process aborts after
all its work: under `record`, with the exit code of a training that went well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlprobe import Recorder

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")

_COUNT = """
import os, sys
import numpy, pyarrow, pyarrow.parquet
from pathlib import Path
before = len(os.listdir("/proc/self/task"))
{read}
print(len(os.listdir("/proc/self/task")) - before)
"""
_RECORDING = """
from rlprobe.store.recording import Recording
run = Recording(Path(sys.argv[1]))
assert run.steps.series("loss") is not None
assert run.events
"""
_PARQUET = """
from rlprobe.store.foreign_parquet import ForeignParquet
file = ForeignParquet(Path(sys.argv[1]))
assert file.columns(["loss"])
assert list(file.batches(["loss"]))
"""


def started(read: str, path: Path) -> int:
    """How many threads it takes to read this."""
    command = [sys.executable, "-c", _COUNT.format(read=read), str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_recording_is_read_by_the_thread_that_asks(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run", signals=False) as recorder:
        for step in range(3):
            recorder.step(step, loss=1.0)
        recorder.event("nan_detected", step=2)
    assert started(_RECORDING, tmp_path / "run") == 0


def test_a_parquet_file_is_read_by_the_thread_that_asks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"loss": [1.0, 2.0]}), tmp_path / "log.parquet")
    assert started(_PARQUET, tmp_path / "log.parquet") == 0
