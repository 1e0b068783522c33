"""Whether one row says again what another said."""

from __future__ import annotations

import math
import re

Row = dict[str, float]

_PACE = re.compile(r"time|second|/s|tps|flops|mfu|memory|throughput|eta", re.IGNORECASE)


def repeats(last: Row, row: Row) -> bool:
    """Whether a row says again what the last one said; ranks differ in nothing but their pace."""
    if last.keys() != row.keys():
        return False
    return all(is_same(last[key], value) for key, value in row.items() if not _PACE.search(key))


def says_more(first: Row, row: Row) -> bool:
    """Whether a row tells the one before it again, with more digits or keys (LLaMA-Factory)."""
    shared = [key for key in first if key in row]
    if len(shared) < 2 or not row.keys() - first.keys():
        return False
    if len(shared) < len(first) and "epoch" not in shared:
        return False
    return all(_close(first[key], row[key]) for key in shared)


def is_same(a: float, b: float) -> bool:
    """Whether two numbers are one; NaN is NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def _close(a: float, b: float) -> bool:
    return is_same(a, b) or abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + 5e-5
