"""What is said of a run that has not ended, as far as is known."""

from __future__ import annotations

import math

from rlprobe import numbers
from rlprobe.findings import Pulse

_LONG = 10  # times what it used to take from row to row: then that is told
_SHORT = 0.01  # seconds: rows that came faster were not those of a training
_NOTICED = 60.0  # seconds: no shorter silence is worth a word


def alive(pulse: Pulse, now: float) -> str:
    """`running, last row 2 h ago, one every 30 s before`."""
    words = "running" if pulse.state == "running" else "no end recorded"
    if pulse.last_row is None:
        since = now - pulse.started
        words += f" for {numbers.age(since)}" if pulse.state == "running" and _known(since) else ""
        return f"{words}, no rows yet"
    silent = now - pulse.last_row
    words = f"{words}, last row {numbers.age(silent)} ago"
    if (
        pulse.pace is not None
        and pulse.pace >= _SHORT
        and silent > max(_LONG * pulse.pace, _NOTICED)
    ):
        words += f", one every {_pace(pulse.pace)} before"
    return words


def _known(seconds: float) -> bool:
    return math.isfinite(seconds)


def _pace(seconds: float) -> str:
    return numbers.age(seconds) if seconds >= 1 else f"{numbers.number(seconds)} s"
