"""Logs of one directory that tell the same run -> one of them, or one after another.

The Hugging Face Trainer leaves its history in every checkpoint (`trainer_state.json`), and the same
numbers once more in TensorBoard files, one directory for each launch:

    out/checkpoint-500/trainer_state.json      up to its checkpoint
    out/runs/Nov30_12-00-00_host/events.out…   up to the end of that launch
    out/train.log                              whatever the terminal showed

The state is the most precise, but ends at a checkpoint: what another log tells beyond is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlprobe import naming
from rlprobe.importers.gathered import Gathered, Part, events_in, taken
from rlprobe.importers.importer import Reading
from rlprobe.importers.looked_at import SAID_TWICE
from rlprobe.importers.points import ColumnTable
from rlprobe.importers.rows import Columns
from rlprobe.importers.tensorboard.event_files import TensorBoard
from rlprobe.importers.trainers.trainer_state import checkpoints_in
from rlprobe.numbers import steps
from rlprobe.values import BoolArray, FloatArray, IntArray

_LAUNCHES = frozenset({"runs", "logs", "log", "tensorboard", "tb", "tb_logs"})
_PRINTED = 2e-3  # of a value that was printed with four digits, and to spare
_AGREE = 0.9  # of the values of two logs that tell the same run
_DISTINCT = 5  # values of a column that say something of whose it is
_MOST_LOGGERS = 8


def told_once(root: Path, groups: Sequence[Gathered], remarks: list[str]) -> list[Gathered]:
    """The same, each run once; what is left out, or put together, is remarks."""
    remaining = list(groups)
    for whole in [group for group in groups if group.importer.whole_run == Path(group.key).name]:
        if not whole.importer.whole_run:
            continue
        output = _output(whole.key)
        others = [group for group in remaining if group is not whole and group.holds_rows]
        launches = [group for group in others if _is_launch(group, output)]
        logs = [group for group in others if group not in launches and _is_beside(group, output)]
        put = _put_together(root / output, whole, launches, logs, remarks)
        remaining = [
            put if group is whole else group
            for group in remaining
            if group not in launches and group not in logs
        ]
    return _by_one_logger(_resumed(root, remaining), remarks)


def _output(key: str) -> Path:
    """The output directory of a Trainer, by where its state lies."""
    place = Path(key).parent
    return place.parent if place.name.startswith("checkpoint-") else place


def _is_launch(group: Gathered, output: Path) -> bool:
    place = Path(group.key)
    near = place.parent == output / place.parent.name and place.parent.name in _LAUNCHES
    return isinstance(group.importer, TensorBoard) and (
        near or place == output or (place.parent == output and place.name in _LAUNCHES)
    )


def _is_beside(group: Gathered, output: Path) -> bool:
    place = Path(group.key).parent
    inside = place.parent == output and place.name.startswith("checkpoint-")
    return not group.importer.whole_run and (place == output or inside)


def _put_together(
    output: Path,
    whole: Gathered,
    launches: Sequence[Gathered],
    logs: Sequence[Gathered],
    remarks: list[str],
) -> Gathered:
    (state,) = whole.readings
    last = _last(state)
    if launches and (len(launches) > 1 or max(map(_last_of, launches)) > last):
        whole = _by_launch(output, state, launches)
        last = max(_last(reading) for reading in whole.readings)
    else:
        remarks += [SAID_TWICE.format(group.key, whole.key) for group in launches]
    for group in logs:
        beyond = _beyond(group, state, last) if len(logs) == 1 else None
        if beyond is None:
            remarks.append(SAID_TWICE.format(group.key, whole.key))
            continue
        whole = replace(whole, parts=[*whole.parts, Part(group.parts[0].path, [beyond])])
    return whole


def _by_launch(output: Path, state: Reading, launches: Sequence[Gathered]) -> Gathered:
    """The launches of a run one after another, with what only the state knows."""
    ordered = sorted(launches, key=_began)
    readings = [reading for group in ordered for reading in group.readings]
    at, columns = taken(state)
    first = min(int(reading.rows.steps().min()) for reading in readings if len(reading.rows))
    state.rows = ColumnTable(*_where(at, columns, at < first))
    state.notes = [*state.notes, f"rows from {ordered[0].key}, which goes on beyond the state"]
    if len(ordered) > 1:
        state.notes[-1] = f"rows from the {len(ordered)} launches in {Path(ordered[0].key).parent}"
    parts = [Part(output, [state]), *(part for group in ordered for part in group.parts)]
    return _one_run(output, ordered[0], parts)


def _one_run(output: Path, group: Gathered, parts: list[Part]) -> Gathered:
    every = [reading for part in parts for reading in part.readings]
    return Gathered(str(Path(group.key).parent), group.importer, [Part(output, every)])


def _resumed(root: Path, groups: Sequence[Gathered]) -> list[Gathered]:
    """Several launches beside the checkpoints of one Trainer are attempts of one run."""
    by_output: dict[Path, list[Gathered]] = {}
    for group in groups:
        place = Path(group.key)
        if isinstance(group.importer, TensorBoard) and place.parent.name == "runs":
            by_output.setdefault(place.parent.parent, []).append(group)
    remaining = list(groups)
    for output, launches in by_output.items():
        checkpoints = list(checkpoints_in(root / output))
        if len(launches) < 2 or not checkpoints:
            continue
        ordered = sorted(launches, key=_began)
        beside = Reading(events=checkpoints)
        parts = [part for group in ordered for part in group.parts]
        put = _one_run(root / output, ordered[0], [*parts, Part(root / output, [beside])])
        remaining = [put if group is launches[0] else group for group in remaining]
        remaining = [group for group in remaining if group not in launches]
    return remaining


def _began(group: Gathered) -> tuple[float, str]:
    """When the first row of a launch was logged."""
    tables = [reading.rows for reading in group.readings]
    times = [table.times() for table in tables if isinstance(table, ColumnTable)]
    known = [
        float(part[np.isfinite(part)].min(initial=np.inf)) for part in times if part is not None
    ]
    return min(known, default=0.0), group.key


def _last_of(group: Gathered) -> int:
    return max(map(_last, group.readings))


def _last(reading: Reading) -> int:
    at = reading.rows.steps()
    return int(at.max()) if len(at) else -1


def _beyond(group: Gathered, state: Reading, last: int) -> Reading | None:
    """What a log tells that agrees with the state, after the state's last step."""
    readings = [reading for reading in group.readings if len(reading.rows)]
    if len(readings) != 1 or readings[0].rank is not None or _last(readings[0]) < last:
        return None
    (reading,) = readings
    at, columns = taken(reading)
    if not _agree((at, columns), taken(state)):
        return None
    note = f"{group.key} agrees with it, and ends the run"
    if (at > last).any():
        note = f"{steps(last + 1, int(at.max()))} from {group.key}, which agrees with the rest"
    rows = ColumnTable(*_where(at, columns, at > last))
    events = events_in(reading)
    return replace(
        reading, rows=rows, notes=[note], framework=None, events=events, told=(), launches=()
    )


def _where(at: IntArray, columns: Columns, chosen: np.ndarray) -> tuple[IntArray, Columns]:
    return at[chosen], {
        k: (values[chosen], valid[chosen]) for k, (values, valid) in columns.items()
    }


def _agree(one: tuple[IntArray, Columns], two: tuple[IntArray, Columns]) -> bool:
    """Whether two logs say the same of the same steps."""
    pairs = list(_pairs(one, two))
    same = sum(abs(a - b) <= _PRINTED * max(abs(a), abs(b)) + 1e-4 for a, b in pairs)
    return bool(pairs) and same >= _AGREE * len(pairs)


def _pairs(
    one: tuple[IntArray, Columns], two: tuple[IntArray, Columns]
) -> Iterator[tuple[float, float]]:
    bare = naming.every()["trl"].bare
    known = {bare(key): dict(_values(two[0], column)) for key, column in two[1].items()}
    for key, column in one[1].items():
        other = known.get(bare(key), {})
        if bare(key) in ("epoch", "learning_rate"):
            continue  # the same in every run
        for step, value in _values(one[0], column):
            if step in other and np.isfinite(value) and np.isfinite(other[step]):
                yield value, other[step]


def _values(at: IntArray, column: tuple[FloatArray, BoolArray]) -> Iterator[tuple[int, float]]:
    values, valid = column
    yield from zip(at[valid].tolist(), values[valid].tolist(), strict=True)


# --- one run, several loggers -----------------------------------------------------------------


def _by_one_logger(groups: Sequence[Gathered], remarks: list[str]) -> list[Gathered]:
    """Without the logs of other formats that say the same as one beside them.

    RLlib, Stable-Baselines3 and Lightning write the rows of a run as a table, as JSON and as
    TensorBoard events into one directory. The one that holds the most is kept.
    """
    places: dict[Path, list[Gathered]] = {}
    for group in groups:
        if len(group.readings) == 1 and group.holds_rows and group.readings[0].rank is None:
            key = Path(group.key)
            places.setdefault(key if group.importer.folder else key.parent, []).append(group)
    twins: list[Gathered] = []
    for beside in places.values():
        formats = {type(group.importer) for group in beside}
        if len(beside) == len(formats) > 1 and len(beside) <= _MOST_LOGGERS:
            twins += _twins(beside, remarks)
    return [group for group in groups if group not in twins]


def _twins(beside: Sequence[Gathered], remarks: list[str]) -> list[Gathered]:
    """Those that say nothing that another one of them does not say."""
    content = {id(group): taken(group.readings[0])[1] for group in beside}
    ordered = sorted(beside, key=lambda group: _cells(content[id(group)]), reverse=True)
    twins: list[Gathered] = []
    for place, group in enumerate(ordered):
        if group in twins:
            continue
        for other in ordered[place + 1 :]:
            if other not in twins and _alike(content[id(group)], content[id(other)]):
                twins.append(other)
                remarks.append(SAID_TWICE.format(other.key, group.key))
                events = events_in(other.readings[0])
                group.readings[0].events = [*group.readings[0].events, *events]
    return twins


def _cells(columns: Columns) -> int:
    return sum(int(valid.sum()) for _, valid in columns.values())


def _alike(one: Columns, two: Columns) -> bool:
    """Whether columns of the same name hold the same values in the same order.

    Steps are not compared: one logger counts updates, the other samples.
    """
    known = {key.rpartition("/")[2]: values[valid] for key, (values, valid) in one.items()}
    same, shared = 0, 0
    for key, (values, valid) in two.items():
        mine, other = values[valid], known.get(key.rpartition("/")[2])
        if other is None or len(np.unique(mine)) < _DISTINCT:
            continue
        shared += 1
        size = min(len(mine), len(other))
        near = np.isclose(mine[:size], other[:size], rtol=_PRINTED, atol=1e-6, equal_nan=True)
        same += len(mine) - size <= 1 and len(other) - size <= 1 and bool(near.all())
    return same > 0 and same >= _AGREE * shared
