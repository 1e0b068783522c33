"""What a script leaves behind: what its tracker stored, and a digest of all that training changes."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

Stored = dict[str, dict[float, float]]


def digest(weights: dict[str, Any] | None = None) -> str:
    """Of these arrays and of the state of every random number generator."""
    whole = hashlib.sha256(repr(random.getstate()).encode())
    for name, value in sorted((weights or {}).items()):
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        whole.update(name.encode() + array.tobytes())
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        whole.update(repr(numpy.random.get_state()).encode())
    if torch is not None:
        whole.update(torch.get_rng_state().numpy().tobytes())
    return whole.hexdigest()


def by_name(rows: list[dict[str, Any]], step: str) -> Stored:
    """Rows of numbers as one series a name, by the number under `step`."""
    series: Stored = {}
    for row in rows:
        for name, value in row.items():
            if name != step and isinstance(value, int | float):
                series.setdefault(name, {})[row[step]] = float(value)
    return series


def events(folder: Path) -> Stored:
    """The scalars of TensorBoard event files, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        name: {event.step: event.value for event in reader.Scalars(name)}
        for name in reader.Tags()["scalars"]
    }


def write(path: str, stored: Stored, state: str) -> None:
    """Leave everything behind as JSON, with the names of what was imported."""
    content = {
        "stored": {name: sorted(series.items()) for name, series in stored.items()},
        "state": state,
        "imported": sorted({name.partition(".")[0] for name in sys.modules}),
    }
    Path(path).write_text(json.dumps(content), encoding="utf-8")
