"""Whether a run still lives: when its last row was recorded, and how often one used to be."""

from __future__ import annotations

import numpy as np

from rlprobe import order_statistics
from rlprobe.findings import Pulse
from rlprobe.store.run import Run
from rlprobe.values import FloatArray

_RECENT = 200  # rows that tell how often one is recorded


def pulse(run: Run) -> Pulse | None:
    """Of the latest attempt of a recording that has not told its end; None where it has."""
    if run.info.source != "recording" or not run.info.attempts:
        return None
    latest = run.info.attempts[-1]
    if latest.ended not in {"running", "unknown"}:
        return None
    frames = (run.steps, run.ranks)
    parts = [frame.time[frame.attempt == latest.number] for frame in frames]
    times = max((_known(part) for part in parts), key=len)
    last = [float(part.max()) for part in map(_known, parts) if len(part)]
    return Pulse(latest.ended, latest.started, max(last, default=None), _pace(times))


def _known(times: FloatArray) -> FloatArray:
    known: FloatArray = times[np.isfinite(times)]
    return known


def _pace(times: FloatArray) -> float | None:
    moments = np.unique(times[-_RECENT:])
    return float(order_statistics.median(np.diff(moments))) if len(moments) > 2 else None
