"""What rlprobe promises, how often somebody tried to break it, and how often that worked.

The counts are in `figures.json`; `docs/promises.md` is written from them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")
PAGE = Path(__file__).parents[2] / "docs" / "promises.md"
Counts = dict[str, dict[str, int]]  # of each campaign: how often which outcome


@dataclass(frozen=True)
class Campaign:
    """Attempts of one kind to break one promise.

    Attributes:
        name: how the command line calls it.
        part: the heading that it stands under.
        promise: in a sentence.
        attempt: what one attempt is.
        good: the outcomes that keep the promise.
        usual: how many attempts a whole campaign has.
        run: so many attempts from a seed on -> how often which outcome.
    """

    name: str
    part: str
    promise: str
    attempt: str
    good: frozenset[str]
    usual: int
    run: Callable[[int, int], Counter[str]]


def load() -> Counts:
    """The counts so far; {} before the first campaign."""
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def save(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Write the counts."""
    FIGURES.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


_HEAD = """# Promises, and what breaking them took

<!-- Written by `python -m benchmarks.reliability`; edit the campaigns, not this page. -->

What is promised, and how often it was tried to break it. Every attempt goes by a seed, so that one
that works can be repeated: `python -m benchmarks.reliability NAME --count N --from SEED`.
"""
_TAIL = """
## What is not promised

- A kill costs what was not flushed: at most `flush_seconds` of rows and rollouts. Events that are
  not critical wait with them.
- A disk that cannot be written for long costs the oldest rollouts, then the oldest rows, once
  `backlog_bytes` are waiting. How many is in the recording as soon as it can be written.
- An input that is harmed is read as far as it makes sense. What was left out is said; a number that
  was changed to another number in a log without checksums cannot be told from the right one.
"""


def page(campaigns: tuple[Campaign, ...], counts: Mapping[str, Mapping[str, int]]) -> str:
    """The page of promises."""
    lines = [_HEAD.rstrip()]
    part = ""
    for campaign in campaigns:
        outcomes = counts.get(campaign.name)
        if not outcomes:
            continue
        if campaign.part != part:
            part = campaign.part
            lines += ["", f"## {part}", ""]
            lines += ["| promise | attempts | broken | one attempt | campaign |"]
            lines += ["| --- | --- | --- | --- | --- |"]
        total = sum(outcomes.values())
        broken = sum(count for name, count in outcomes.items() if name not in campaign.good)
        lines.append(
            f"| {campaign.promise} | {total:,} | {broken:,} | {campaign.attempt} "
            f"| `{campaign.name}` |"
        )
    return "\n".join(lines) + "\n" + _TAIL
