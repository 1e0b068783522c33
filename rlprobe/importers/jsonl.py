"""One JSON object per line."""

from __future__ import annotations

import json
from typing import Any

from rlprobe.errors import EmptyRunError
from rlprobe.importers.importer import Reading
from rlprobe.importers.rows import step_of
from rlprobe.importers.source import Source
from rlprobe.values import Problem

_MOST_PROBLEMS = 20


class JSONLines:
    """JSON Lines: one object per logged step, with a step key.

    A torn last line or a bad row costs that row, and is reported with its line number. Rows
    without a step are numbered.
    """

    name = "jsonl"
    description = "JSON Lines: one object per logged step"

    def recognises(self, source: Source) -> bool:
        """The first line is a whole JSON object."""
        first = source.head.lstrip().split(b"\n", 1)[0]
        if not first.startswith(b"{"):
            return False
        try:
            return isinstance(json.loads(first), dict)
        except (ValueError, RecursionError):
            return source.suffix in {".jsonl", ".ndjson"}

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        reading, problems = Reading(), []
        without_step = 0
        for line_number, line in enumerate(source.lines(), start=1):
            if not line.strip():
                continue
            row, problem = _row(line)
            if problem:
                problems.append(
                    Problem(str(source.path), f"line {line_number} left out: {problem}")
                )
                continue
            step = step_of(row)
            if step is None:
                without_step += 1
                step = without_step
            reading.rows.add(step, row)
        if not len(reading.rows):
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no line holds a row")
        reading.notes = ["steps not logged: numbered by row"] if without_step else []
        reading.problems = _bounded(problems, source)
        return [reading]


def _row(line: bytes) -> tuple[dict[str, Any], str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON ({error})"
    if not isinstance(row, dict):
        return {}, "not an object"
    return row, ""


def _bounded(problems: list[Problem], source: Source) -> list[Problem]:
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    rest = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], Problem(str(source.path), f"{rest:,} more lines left out")]
