"""Rows that take the place of all that a recorder has written in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlprobe.recorder.recorder import Recorder
from rlprobe.store import manifest
from rlprobe.values import Attempt

if TYPE_CHECKING:
    import pyarrow as pa


def replace(recorder: Recorder, tables: Mapping[str, pa.Table]) -> bool:
    """Let these rows take the place of what this process has recorded in this attempt.

    Whoever reads meanwhile, and after a kill at any moment, finds the old rows or the new ones.

    Args:
        recorder: of this process.
        tables: rows as they are stored, by the name of the table.

    Returns:
        Whether they are on disk.
    """
    process = recorder._process  # of this room: no call of training
    sink, writer = process.files.sink, process.writer

    def task() -> bool:
        if not writer.write_out():
            return False
        for table, rows in tables.items():
            sink.replace(table, sink.encode(table, rows), rows.num_rows)
            if table == "steps" and rows.num_rows:
                writer.settled_step = max(rows.column("step").to_pylist())
        return True

    return writer.wait(writer.request(task=task))


def move(recorder: Recorder, attempt: Attempt, ended: str) -> bool:
    """Go on under a new attempt: what comes is of another launch.

    Args:
        recorder: the launcher's.
        attempt: its number, the next one, and when it began.
        ended: how the one before ended.

    Returns:
        Whether that is on disk.
    """
    process = recorder._process
    files = process.files

    def task() -> bool:
        files.tell_end(ended)
        manifest.add_attempt(process.run_dir, attempt, "")
        files.move(attempt.number)
        process.writer.move(attempt.number)
        return files.tell(None)

    return process.writer.wait(process.writer.request(task=task))
