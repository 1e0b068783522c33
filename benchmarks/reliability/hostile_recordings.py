"""Recordings made to do harm, by the hundred: every verb answers, refuses with a reason, or fails.

`python -m benchmarks.reliability.hostile_recordings [COUNT] [--from SEED] [--verbs N] [--bombs]`
takes that many of them (all, if no count is given), and gives each to N of the verbs in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.store import hostile
from tests.store.hostile_verbs import ANSWERED, VERBS, judged

GOOD = frozenset({ANSWERED})
_VERBS = 3


def campaign(count: int, first: int = 0) -> Counter[str]:
    """Give so many recordings to the verbs; a case that comes again meets other verbs."""
    return _counted(_chosen(count, first), _VERBS, first, loud=False)


def _chosen(count: int, first: int) -> list[hostile.Case]:
    every = [*hostile.cases()]
    Random(0).shuffle(every)
    return [every[number % len(every)] for number in range(first, first + count)]


def _counted(cases: Sequence[hostile.Case], verbs: int, first: int, *, loud: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        whole = hostile.good(Path(scratch) / "whole")
        for number, case in enumerate(cases, start=first):
            turn = [VERBS[(number + place) % len(VERBS)] for place in range(verbs)]
            wrong = judged(case, whole, Path(scratch) / "run", turn)
            counts[wrong[0][0] if wrong else ANSWERED] += 1
            for _, said in wrong if loud else ():
                print(said, flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.reliability.hostile_recordings")
    parser.add_argument("count", type=int, nargs="?", default=0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--verbs", type=int, default=_VERBS)
    parser.add_argument("--bombs", action="store_true")
    given = parser.parse_args()
    count = given.count or len(hostile.cases())
    chosen = [*hostile.bombs()] if given.bombs else _chosen(count, given.first)
    counts = _counted(chosen, given.verbs, given.first, loud=True)
    print(f"{counts.total():,} recordings, {given.verbs} verbs each:", dict(counts))


if __name__ == "__main__":
    main()
