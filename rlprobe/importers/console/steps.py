"""Steps for rows of a console log that tell none: from the progress bar, or by counting."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

BAR = re.compile(
    r"(?P<desc>[^\r\n|%]{0,40}?)\s*\d{1,3}%\|[^|]{0,200}\|\s*(?P<at>\d+)/(?P<of>\d+)\s*"
    r"\[[\d:]+<[\d:?]+,?\s*(?P<unit>[^\]]*)\]"
)
_TRAINING = re.compile(r"(?:train\w*|steps?|epoch.*|\W*)\s*:?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bar:
    """Where a progress bar stood."""

    at: int
    of: int


def bar_of(match: re.Match[str]) -> Bar | None:
    """The bar, if it may be that of the training and not of a download or an evaluation."""
    unit = match["unit"]
    desc = match["desc"].rpartition("]")[2]
    if not _TRAINING.fullmatch(desc) or "it" not in unit:
        return None
    return Bar(int(match["at"]), int(match["of"]))


def steps_from(bars: Sequence[Bar | None]) -> tuple[list[int], str]:
    """A step for each row, in order, and in words where it comes from."""
    total = _usual_total(bars)
    at = [bar.at if bar and bar.of == total else None for bar in bars]
    known = [step for step in at if step is not None]
    if len(known) * 2 >= len(bars) and _advances(known):
        return _filled(at), "steps not logged: taken from the progress bar"
    reached = max(known, default=0)
    if reached > len(bars) and reached % len(bars) == 0:
        every = reached // len(bars)
        return (
            [(index + 1) * every for index in range(len(bars))],
            f"steps not logged: one row every {every} steps of the progress bar",
        )
    return list(range(1, len(bars) + 1)), "steps not logged: numbered by row"


def _usual_total(bars: Sequence[Bar | None]) -> int:
    totals = Counter(bar.of for bar in bars if bar)
    return totals.most_common(1)[0][0] if totals else 0


def _advances(known: Sequence[int]) -> bool:
    """Whether nearly every row stands elsewhere than the one before: then the bar tells steps."""
    moved = sum(a != b for a, b in itertools.pairwise(known))
    return bool(known) and moved * 10 >= (len(known) - 1) * 9


def _filled(at: Sequence[int | None]) -> list[int]:
    known = [step for step in at if step is not None]
    gaps = sorted(b - a for a, b in itertools.pairwise(known) if b > a)
    every = gaps[len(gaps) // 2] if gaps else 1
    first = next(index for index, step in enumerate(at) if step is not None)
    steps: list[int] = []
    for index, step in enumerate(at):
        if step is not None:
            steps.append(step)
        elif index < first:
            steps.append(max(0, known[0] - every * (first - index)))
        else:
            steps.append(steps[-1] + every)
    return steps
