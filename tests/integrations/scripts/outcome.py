"""What a script leaves behind: what its tracker stored, and a digest of what training changes."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

Stored = dict[str, dict[float, float]]


_seeded: list[str] = []


def seed(number: int) -> None:
    """Seed every random number generator that the script has imported."""
    random.seed(number)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(number)
        _seeded.append("numpy")
    if torch is not None:
        torch.manual_seed(number)
        torch.set_num_threads(1)
        _seeded.append("torch")


def digest(weights: dict[str, Any] | None = None) -> str:
    """Of these arrays and of the state of every random number generator that was seeded."""
    whole = hashlib.sha256(repr(random.getstate()).encode())
    for name, value in sorted((weights or {}).items()):
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        whole.update(name.encode() + array.tobytes())
    if "numpy" in _seeded:
        whole.update(repr(sys.modules["numpy"].random.get_state()).encode())
    if "torch" in _seeded:
        whole.update(sys.modules["torch"].get_rng_state().numpy().tobytes())
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


def write(path: str, stored: Stored | list[Stored], state: str) -> None:
    """Leave what was stored, of one run or of several, behind as JSON.

    With it go the names of what was imported.
    """
    runs = stored if isinstance(stored, list) else [stored]
    content = {
        "stored": [{name: sorted(series.items()) for name, series in run.items()} for run in runs],
        "state": state,
        "imported": sorted({name.partition(".")[0] for name in sys.modules}),
    }
    Path(path).write_text(json.dumps(content), encoding="utf-8")
