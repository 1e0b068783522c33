"""Whether files are read whole: what they hold, counted apart, beside what was read of them.

`python -m benchmarks.reading.whole FOLDER [-v]` prints a row per file, and under it what was not
read: in tables the columns and the numbers that are missing, in text the templates of lines whose
numbers are nowhere among those that were read; and what the run itself says that it leaves out.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reading.held import Held, held
from rlprobe.errors import InputError
from rlprobe.importers import open_runs
from rlprobe.store.run import Run

_SHOWN = 12
_SCALES = (1.0, 1e-3, 1e-2, -1.0, 1e-9)  # milliseconds, percentages, minus entropy, bytes in GB
# How a run says that it leaves something out, or puts several numbers together.
_SAYS = re.compile(r"left out|counted once|their mean|the largest|not read")
# What looks like metrics and is none, by its line or its name.
_REASONS = {
    "summary of the whole run": re.compile(
        r"train_runtime|train_loss$|train_(?:samples|steps)_per_second|total_flos|^init_kl_coef$"
    ),
    "configuration": re.compile(
        r"\.{5,}|(?:^|\s)--[a-z]|\bcmd = |pid=\d+\)\s+'|^\+ |max_new_tokens|=None|_step$|"
        r"^\W*[\"'][\w-]+[\"']\s*: *[\w.{-]+,?$"
    ),
    "warning, or a word to people": re.compile(
        r"Warning\b|WARNING|Unsloth:|<progress|generation_config|^\S* ?File \"|padded vocab"
    ),
    "an overflow, told as a step that was skipped": re.compile(r"OVERFLOW!|Overflow detected"),
    "text of the policy": re.compile(r"Generated answers:|<think>|<answer>"),
}


@dataclass
class Read:
    """What was read of a file."""

    runs: int = 0
    rows: int = 0
    columns: set[str] = field(default_factory=set)
    cells: int = 0
    steps: str = ""
    said: int = 0
    error: str = ""
    notes: list[str] = field(default_factory=list)
    values: set[str] = field(default_factory=set)


def read(path: Path) -> Read:
    """Read a file by the public way."""
    try:
        runs = open_runs(path)
    except InputError as error:
        return Read(error=str(error))
    found = Read(runs=len(runs))
    for run in runs:
        _add(found, run)
    return found


def _add(found: Read, run: Run) -> None:
    for frame in (run.steps, run.ranks):
        found.rows += len(frame)
        found.columns |= set(frame.names)
        if len(frame):
            found.steps += f" {frame.step.min()}..{frame.step.max()}"
            found.values |= {_key(float(step)) for step in frame.step}
        for name in frame.names:
            values, logged = frame.load(name)
            found.cells += int(logged.sum())
            found.values |= {_key(value) for value in values[logged].tolist()}
    for event in run.events:
        found.values |= {_key(v) for v in event.data.values() if isinstance(v, int | float)}
    found.notes += [note for note in run.info.notes if _SAYS.search(note)]
    found.said += sum(item.count for item in getattr(run.info, "unread", ()))


def _key(value: float) -> str:
    return "nan" if math.isnan(value) else f"{value:.9g}"


def report(path: Path) -> tuple[bool, list[str]]:
    """Whether a file was read whole, and what to print of it; what it says begins with `said`."""
    holds, has = held(path), read(path)
    head = (
        f"{path.name} [{holds.kind}]: holds {holds.rows:,} {'rows' if holds.columns else 'lines'}, "
        f"{holds.cells:,} numbers in {len(holds.columns)} columns; read {has.rows:,} rows, "
        f"{has.cells:,} numbers in {len(has.columns)} columns, {has.runs} runs, steps{has.steps}; "
        f"said unread {has.said:,}"
    )
    if has.error:
        return False, [head, f"    refused: {has.error[:300]}"]
    missing = _missing_in_table(holds, has) + _missing_in_text(holds, has)
    whole = not any(line.startswith("    !") for line in missing)
    return whole, [head, *(f"    said: {note}" for note in dict.fromkeys(has.notes)), *missing]


def _explained(text: str) -> str:
    """What a line or a column is that looks like metrics and is none; empty if it may be some."""
    return next((why for why, pattern in _REASONS.items() if pattern.search(text)), "")


def _missing_in_table(holds: Held, has: Read) -> list[str]:
    """Columns of which some numbers are nowhere among those that were read."""
    gone = {
        name: sum(not _is_read(value, has) for value in values)
        for name, values in holds.columns.items()
    }
    lines: list[str] = []
    for name, count in sorted(gone.items()):
        why = _explained(name)
        if count:
            of = len(holds.columns[name])
            lines.append(f"    {why or '!'}: {name}, {count:,} of {of:,} numbers not read")
    return lines


def _missing_in_text(holds: Held, has: Read) -> list[str]:
    """Templates of lines whose numbers were not read, the most frequent first."""
    gone: list[tuple[int, int, int, str]] = []
    for found in holds.lines.values():
        lost = [
            (number, line)
            for number, line, values in found
            if any(not _is_read(value, has) for value in values)
        ]
        if lost:
            gone.append((len(lost), len(found), *lost[0]))
    gone.sort(key=lambda each: -each[0])
    lines: list[str] = []
    reasons: Counter[str] = Counter()
    for count, of, number, line in gone:
        why = _explained(line)
        reasons[why or "!"] += count
        if not why and len(lines) < _SHOWN:
            lines.append(f"      {count:,} of {of:,} lines, e.g. {number}: {line[:220]}")
    told = [f"    {why}: {count:,} of {holds.rows:,} lines" for why, count in reasons.items()]
    return [*told, *lines]


def _is_read(value: float, has: Read) -> bool:
    return any(_key(value * scale) in has.values for scale in _SCALES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-v", action="store_true", help="the files that were read whole as well")
    asked = parser.parse_args()
    whole = saying = 0
    paths = sorted(path for path in asked.folder.rglob("*") if path.is_file())
    for path in paths:
        try:
            fine, lines = report(path)
        except Exception as error:
            fine, lines = False, [f"{path.name}: {type(error).__name__}: {error}"]
        whole += fine
        saying += not fine and any(line.startswith("    said: ") for line in lines)
        if asked.v or not fine:
            print("\n".join(lines), flush=True)
    print(f"\n{whole} of {len(paths)} files read whole; {saying} more say what is left out")


if __name__ == "__main__":
    main()
