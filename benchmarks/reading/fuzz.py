"""Tables of numbers in every shape of console output: read back, refused, or read wrong.

`python -m benchmarks.reading.fuzz 50000 [--shape NAME] [--from SEED] [--jobs N] [--keep FOLDER]`
prints a row per shape, and keeps the shortest logs that were not read exactly, with what they hold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.scratch import in_memory
from tests.importers.judge import (
    EXACT,
    LOST,
    MUTE,
    OVERSAID,
    REFUSED,
    SAID,
    WRONG,
    Judgement,
    judge,
)
from tests.importers.shapes import SHAPES, Log, log

_OUTCOMES = (EXACT, OVERSAID, SAID, REFUSED, MUTE, LOST, WRONG)
_BATCH = 200
_KEPT = 3  # of each shape, outcome and set of decorations


@dataclass(frozen=True)
class Trial:
    """One log, and what became of it."""

    seed: int
    shape: str
    outcome: str
    decorations: tuple[str, ...]
    faults: tuple[str, ...]
    size: int


def trial(seed: int, shape: str | None, folder: Path) -> Trial:
    """Make the log of a seed and read it."""
    made = make(seed, shape)
    path = folder / "train.log"
    path.write_bytes(made.text.encode())
    try:
        result = judge(path, made.table)
    except Exception as error:
        result = Judgement(WRONG, faults=[f"{type(error).__name__}: {error}"])
    faults = tuple(result.faults[:4])
    return Trial(seed, made.shape, result.outcome, made.decorations, faults, len(made.text))


def make(seed: int, shape: str | None = None) -> Log:
    """The log of a seed."""
    return log(Random(seed), shape)


def _batch(task: tuple[int, int, str | None]) -> list[Trial]:
    first, count, shape = task
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        return [trial(seed, shape, Path(name)) for seed in range(first, first + count)]


def trials(first: int, count: int, shape: str | None, jobs: int) -> Iterator[Trial]:
    """Every seed from `first` on."""
    tasks = [
        (seed, min(_BATCH, first + count - seed), shape)
        for seed in range(first, first + count, _BATCH)
    ]
    if jobs == 1:
        for task in tasks:
            yield from _batch(task)
        return
    with multiprocessing.Pool(jobs) as pool:
        for done in pool.imap(_batch, tasks):
            yield from done


def table(done: Iterable[Trial], by: str = "shape") -> str:
    """Outcomes by shape, or by what was done to the logs."""
    counts: dict[str, Counter[str]] = {}
    for each in done:
        names = [each.shape] if by == "shape" else each.decorations or ("plain",)
        for name in (*names, "all"):
            counts.setdefault(name, Counter())[each.outcome] += 1
    head = (
        f"| {by} | n | " + " | ".join(_OUTCOMES) + " | exact |\n|" + "---|" * (len(_OUTCOMES) + 3)
    )
    lines = [head]
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        of = counts[name]
        total = sum(of.values())
        shown = " | ".join(f"{of[outcome]:,}" for outcome in _OUTCOMES)
        lines.append(f"| {name} | {total:,} | {shown} | {of[EXACT] / total:.1%} |")
    return "\n".join(lines)


def kept(done: Iterable[Trial], folder: Path, shape: str | None) -> int:
    """The shortest logs of every kind that failed, with what is in them, one file each."""
    kinds: dict[tuple[str, str, tuple[str, ...]], list[Trial]] = {}
    for each in done:
        if each.outcome != EXACT:
            kinds.setdefault((each.outcome, each.shape, each.decorations), []).append(each)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.log"):
        old.unlink()
    count = 0
    for (outcome, name, decorations), some in kinds.items():
        for each in sorted(some, key=lambda trial: trial.size)[:_KEPT]:
            made = make(each.seed, shape)
            stem = "-".join([outcome, name, *decorations, str(each.seed)])
            (folder / f"{stem}.log").write_bytes(made.text.encode())
            (folder / f"{stem}.json").write_text(json.dumps(_truth(each, made), indent=1))
            count += 1
    return count


def _truth(each: Trial, made: Log) -> dict[str, object]:
    rows = [{key: cell.value for key, cell in row.items()} for row in made.table.rows]
    return {"faults": each.faults, "steps": made.table.steps, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=2_000)
    parser.add_argument("--shape", choices=sorted(SHAPES))
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    done = list(trials(asked.first, asked.count, asked.shape, asked.jobs))
    print(table(done))
    print()
    print(table(done, by="decoration"))
    if asked.keep:
        print(f"\n{kept(done, asked.keep, asked.shape)} logs kept in {asked.keep}")


if __name__ == "__main__":
    main()
