"""One JSON object per line: flat rows with a step key.

A torn last line or a bad row costs that row, and is reported with its line number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlprobe.errors import EmptyRunError
from rlprobe.importers.rows import STEP_KEYS, RowTable, number
from rlprobe.store.table import TableRun
from rlprobe.values import Problem

_MOST_PROBLEMS = 20


class JSONLines:
    """Importer of JSON Lines."""

    name = "jsonl"
    description = "JSON Lines: one object per logged step"

    def recognises(self, path: Path, head: bytes) -> bool:
        """The first line is a whole JSON object."""
        first = head.lstrip().split(b"\n", 1)[0]
        if not first.startswith(b"{"):
            return False
        try:
            return isinstance(json.loads(first), dict)
        except (ValueError, RecursionError):
            return path.suffix in {".jsonl", ".ndjson"}

    def read(self, path: Path) -> TableRun:
        """The run in the file."""
        table, problems = RowTable(), []
        without_step = 0
        with path.open("rb") as lines:
            for line_number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                row, problem = _row(line)
                if problem:
                    problems.append(Problem(str(path), f"line {line_number} left out: {problem}"))
                    continue
                step = _step(row)
                if step is None:
                    without_step += 1
                    step = without_step
                table.add(step, _values(row))
        if not table.steps:
            raise EmptyRunError(f"Couldn't find metrics in '{path}': no line holds a row")
        notes = ["steps not logged: numbered by row"] if without_step else []
        return table.run(path, self.name, notes=notes, problems=_bounded(problems, path))


def _row(line: bytes) -> tuple[dict[str, Any], str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"not JSON ({error})"
    if not isinstance(row, dict):
        return {}, "not an object"
    return row, ""


def _step(row: dict[str, Any]) -> int | None:
    for key in STEP_KEYS:
        value = number(row.get(key))
        if value is not None and float(value).is_integer():
            return int(value)
    return None


def _values(row: dict[str, Any]) -> dict[str, float]:
    values = {}
    for key, raw in row.items():
        value = number(raw)
        if key not in STEP_KEYS and value is not None:
            values[key] = value
    return values


def _bounded(problems: list[Problem], path: Path) -> list[Problem]:
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    rest = len(problems) - _MOST_PROBLEMS
    return [*problems[:_MOST_PROBLEMS], Problem(str(path), f"{rest:,} more lines left out")]
