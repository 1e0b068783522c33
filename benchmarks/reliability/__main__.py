"""Run the campaigns, add up what they count, and write `docs/promises.md`.

`python -m benchmarks.reliability [NAME ...] [--count N] [--from SEED] [--add]`: all of them, or
those named. `--add` adds to the counts of earlier slices, with seeds of its own; `--dry` writes
nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from benchmarks.reliability import promises
from benchmarks.reliability.campaigns import CAMPAIGNS


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.reliability")
    parser.add_argument("names", nargs="*", choices=[*(item.name for item in CAMPAIGNS), []])
    parser.add_argument("--count", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args(words)
    broken = 0
    for campaign in CAMPAIGNS:
        if given.names and campaign.name not in given.names:
            continue
        outcomes = campaign.run(given.count or campaign.usual, given.first)
        print(f"{campaign.name}: {outcomes.total():,} attempts", dict(outcomes), flush=True)
        broken += sum(count for name, count in outcomes.items() if name not in campaign.good)
        if given.dry:
            continue
        counts = promises.load()
        before = counts.get(campaign.name, {}) if given.add else {}
        counts[campaign.name] = dict(Counter(before) + outcomes)
        promises.save(counts)
        promises.PAGE.write_text(promises.page(CAMPAIGNS, counts), encoding="utf-8")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
