"""Fuzzed inputs of every format and of recordings: read, refused with a reason, or a fault of ours.

`python -m benchmarks.reliability.inputs 20000 [--from SEED] [--jobs N] [--seconds S] [--keep DIR]`
reads the inputs of that many seeds, or stops after some seconds and says how far it came; `--only
FORMAT` those of one format. Every input is read to its last value; one of `EVERY` is scanned and
printed too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scratch import in_memory
from rlprobe.errors import RlprobeError
from rlprobe.importers.faults import FAULT
from tests.importers import hostile

EVERY = 20
LONGEST = 5.0  # seconds of CPU for one input
_BATCH = 250
READ, REFUSED, FAULTY, SLOW, RAW = "read", "refused", "FAULT", "SLOW", "RAW TEXT"
GOOD = frozenset({READ, REFUSED})


class TooSlow(BaseException):
    """An input took longer than it may."""


@dataclass(frozen=True)
class Attempt:
    """What became of one input."""

    seed: int
    kind: str
    outcome: str
    why: str = ""


def attempt(seed: int, folder: Path) -> Attempt:
    """Make the input of a seed and read it."""
    kind, tree = hostile.made(seed)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        path = hostile.write(tree, folder)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            texts = list(hostile.texts_of(path))
            if seed % EVERY == 0:
                texts += _scanned(path)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except TooSlow:
        return Attempt(seed, kind, SLOW, f"more than {LONGEST:g} s")
    except RlprobeError as error:
        outcome = FAULTY if FAULT in str(error) else REFUSED
        return Attempt(seed, kind, outcome, _where(error) if outcome is FAULTY else "")
    except Exception as error:
        return Attempt(seed, kind, FAULTY, _where(error))
    faults = [text for text in texts if FAULT in text]
    return Attempt(seed, kind, FAULTY if faults else READ, "".join(faults[:1])[:300])


def _where(error: BaseException) -> str:
    cause = error.__cause__ or error
    ours = [
        item for item in traceback.extract_tb(cause.__traceback__) if "rlprobe" in item.filename
    ]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{place}: {type(cause).__name__}: {str(cause)[:160]}"


def _scanned(path: Path) -> list[str]:
    """What a scan prints: no control characters may be in it."""
    from rlprobe.config import Config
    from rlprobe.importers import open_runs
    from rlprobe.report.reporter import Layout, reporter
    from rlprobe.scan.engine import scan

    reports = [scan(run, Config()) for run in open_runs(path)]
    text = reporter("text", Layout(width=90)).render(reports)
    raw = sorted({c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160})
    if raw:
        raise AssertionError(f"{RAW}: {raw}")
    failed = [item for report in reports for item in report.coverage if item.state == "failed"]
    if failed:
        raise AssertionError(f"a detector failed: {failed[0].detector}: {failed[0].reason}")
    return [text]


def _expire(*_: object) -> None:
    raise TooSlow


def _batch(task: tuple[int, int, str]) -> list[Attempt]:
    first, count, only = task
    signal.signal(signal.SIGPROF, _expire)
    with tempfile.TemporaryDirectory(dir=in_memory()) as name:
        folder = Path(name) / str(os.getpid())
        seeds = (seed for seed in range(first, first + count) if hostile.kind_of(seed, only))
        return [attempt(seed, folder) for seed in seeds]


def attempts(
    first: int, count: int, jobs: int = 1, seconds: float = float("inf"), only: str = ""
) -> Iterator[Attempt]:
    """Those of every seed from `first` on, until the time is over."""
    end, last = time.monotonic() + seconds, first + count
    tasks = ((at, min(_BATCH, last - at), only) for at in range(first, last, _BATCH))
    if jobs == 1:
        for task in tasks:
            yield from _batch(task)
            if time.monotonic() > end:
                return
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=40) as pool:
        for batch in pool.imap(_batch, tasks):
            yield from batch
            if time.monotonic() > end:
                pool.terminate()
                return


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.reliability.inputs")
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args(words)
    by_kind: dict[str, Counter[str]] = {}
    bad: list[Attempt] = []
    begin = time.monotonic()
    for item in attempts(given.first, given.count, given.jobs, given.seconds, given.only):
        by_kind.setdefault(item.kind, Counter())[item.outcome] += 1
        if item.outcome not in GOOD:
            bad.append(item)
            print(f"seed {item.seed} {item.kind}: {item.outcome}: {item.why}", flush=True)
            if given.keep:
                hostile.write(hostile.made(item.seed)[1], given.keep / str(item.seed))
    total: Counter[str] = Counter()
    for kind, counts in sorted(by_kind.items()):
        print(f"{kind:18}", *(f"{name} {count:,}" for name, count in counts.most_common()))
        total += counts
    took = time.monotonic() - begin
    print(f"{total.total():,} inputs in {took:,.0f} s:", dict(total))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
