"""False alarms: python -m benchmarks.accuracy.healthy FOLDER... [--prefixes 2000].

Every healthy log of the folders is scanned, and random beginnings of each: what a run looks like
while it goes on. Nothing may be said at warning or above. A folder is

- one of labelled cases (`cases.json`): those that are healthy beyond doubt;
- one of the lab's runs (`--out` of `python -m benchmarks.accuracy`): the healthy ones, and those
  that change on purpose; recording and trainer log;
- one of runs whose names begin with `healthy`, such as those of `suites`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.faults import HEALTHY
from benchmarks.accuracy.labels import loud
from rlprobe.config import Config
from rlprobe.errors import RlprobeError
from rlprobe.findings import Finding
from rlprobe.importers import open_runs
from rlprobe.scan.engine import scan
from rlprobe.store.frame import Column, Frame
from rlprobe.store.run import Run, RunInfo
from rlprobe.values import BoolArray, Event, Problem, Rollout

SHORTEST = 3  # rows of a beginning


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.healthy")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--prefixes", type=int, default=2000, help="beginnings in all")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    paths = [path for folder in given.folders for path in logs(folder)]
    print(report(paths, given.prefixes, given.seed))


def logs(folder: Path) -> Iterator[Path]:
    """The healthy logs of a folder."""
    if (folder / "cases.json").exists():
        for entry in json.loads((folder / "cases.json").read_text()):
            if entry["healthy"] and entry.get("scored", True) and entry["ambiguity"] == "clear":
                yield folder / (entry.get("norm") or entry["raw"])
        return
    names = {fault.name for fault in HEALTHY}
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".jsonl")
        if name.rpartition("-")[0] in names and (path / "recording").is_dir():
            yield path / "recording"
            yield path / "trainer_state.json"
        elif name.startswith("healthy") and path.is_file():
            yield path
        elif name.startswith("healthy") and (path / "steps.parquet").exists():
            yield path / "steps.parquet"


# --- the beginning of a run -----------------------------------------------------------------------


@dataclass(frozen=True)
class Beginning:
    """The first rows of a run, as a run."""

    whole: Run
    rows: int

    @property
    def last(self) -> int:
        return int(self.whole.steps.step[self.rows - 1])

    @property
    def info(self) -> RunInfo:
        """Its launches go on: nobody knows yet how they will end."""
        begun = [it for it in self.whole.info.attempts if (it.first_step or 0) <= self.last]
        attempts = [
            dataclasses.replace(it, last_step=min(it.last_step or self.last, self.last))
            for it in begun
        ]
        attempts[-1:] = [dataclasses.replace(it, ended="unknown") for it in attempts[-1:]]
        return dataclasses.replace(self.whole.info, attempts=tuple(attempts))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return ()

    @property
    def steps(self) -> Frame:
        return _cut(self.whole.steps, np.arange(len(self.whole.steps)) < self.rows)

    @property
    def ranks(self) -> Frame:
        return _cut(self.whole.ranks, self.whole.ranks.step <= self.last)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(
            event
            for event in self.whole.events
            if event.step is not None and event.step <= self.last and event.kind != "ended"
        )

    def sample_steps(self) -> tuple[int, ...]:
        return tuple(step for step in self.whole.sample_steps() if step <= self.last)

    def rollouts(self, step: int) -> tuple[Rollout, ...]:
        return self.whole.rollouts(step)


def _cut(frame: Frame, rows: BoolArray) -> Frame:
    def column(name: str) -> Column:
        values, valid = frame.load(name)
        return values[rows], valid[rows]

    logged = tuple(name for name in frame.names if column(name)[1].any())
    return Frame(
        frame.step[rows], frame.attempt[rows], frame.rank[rows], frame.time[rows], logged, column
    )


# --- the report -----------------------------------------------------------------------------------


def report(paths: Sequence[Path], prefixes: int, seed: int) -> str:
    """What is said of each log and of its beginnings, then how often."""
    chance = np.random.default_rng(seed)
    runs = [(path, run) for path in paths for run in _runs(path)]
    lengths = _lengths([len(run.steps) for _, run in runs], prefixes, chance)
    alarmed, cut, cut_alarmed = 0, 0, 0
    lines = []
    for (path, run), rows_of in zip(runs, lengths, strict=True):
        said = _said(run)
        alarmed += bool(said)
        lines += [f"- {_named(path)}: {_listed(said)}"] if said else []
        seen: Counter[str] = Counter()
        for rows in rows_of:
            findings = _said(Beginning(run, rows))
            cut, cut_alarmed = cut + 1, cut_alarmed + bool(findings)
            seen.update({f"{item.detector}:{item.variant}" for item in findings})
        lines += [
            f"- {times} of {len(rows_of)} beginnings of {_named(path)}: {name}"
            for name, times in seen.items()
        ]
    share = cut_alarmed / cut if cut else 0.0
    totals = [
        f"{len(runs)} healthy logs, {alarmed} alarmed",
        f"{cut} beginnings, {cut_alarmed} alarmed ({share:.2%})",
    ]
    return "\n".join([*lines, "", *totals])


def _runs(path: Path) -> list[Run]:
    try:
        return [run for run in open_runs(path) if len(run.steps)]
    except RlprobeError as error:
        print(f"{_named(path)} cannot be read: {error}")
        return []


def _lengths(rows: Sequence[int], prefixes: int, chance: np.random.Generator) -> list[list[int]]:
    """How many rows the beginnings of each run have: so many in all, as evenly as they allow."""
    chosen: list[list[int]] = [[] for _ in rows]
    for done, index in enumerate(sorted(range(len(rows)), key=rows.__getitem__)):
        possible = np.arange(SHORTEST, rows[index])
        share = -(-prefixes // (len(rows) - done))
        size = min(len(possible), share)
        chosen[index] = sorted(chance.choice(possible, size, replace=False).tolist())
        prefixes -= size
    return chosen


def _said(run: Run) -> list[Finding]:
    try:
        return loud(scan(run, Config()).findings)
    except RlprobeError:
        return []


def _named(path: Path) -> str:
    return "/".join(path.parts[-2:])


def _listed(findings: Sequence[Finding]) -> str:
    return ", ".join(f"{it.detector}:{it.variant}@{it.first_bad_step}" for it in findings)


if __name__ == "__main__":
    main()
