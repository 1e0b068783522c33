"""Recordings of the rlprobe 0.1.0 that is on the package index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlprobe import naming, schema
from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.documents.json_document import load
from rlprobe.importers.importer import Complaints, FolderImporter, Reading
from rlprobe.importers.numbers import number
from rlprobe.importers.rows import Columns
from rlprobe.importers.source import Source
from rlprobe.importers.steps import LARGEST
from rlprobe.numbers import plural
from rlprobe.store.text import stable_id
from rlprobe.values import BoolArray, Event, FloatArray, Problem, Rollout

_FRAMEWORK = "rlprobe_0_1"
_MANIFEST, _STEPS, _EVENTS = "manifest.json", "steps.parquet", "events.jsonl"
_OWN = frozenset({"step", "rank", "timestamp"})
_EXTRA, _COMPONENT, _BUCKETS = "extra.", "reward_component.", "kl_positional"
_MOST_BUCKETS = 256
_SAMPLE = ("step", "sample_id", "rank", "group_id", "prompt_id", "prompt_text", "completion_text")
_KINDS = {
    "train_begin": "run_started",
    "train_end": "run_ended",
    "lr_change": "lr_changed",
    "auto_halt": "halted",
    "recorder_drops": "recorder_dropped",
    "bad_record": "recorder_dropped",
}
_SIGNAL = re.compile(r"signal (\d{1,3})")
_ALWAYS = ("loss", "grad_norm")  # the trainer logs them wherever it logs a learning rate
_PARTLY = "rollouts are those that rlprobe 0.1.0 chose: groups need not be whole"


class FirstRlprobe(FolderImporter):
    """Recordings of rlprobe 0.1.0: a directory with `manifest.json`, `steps.parquet`,
    `events.jsonl` and `samples/`.

    The directory is one run under its `run_id`, with all its metrics, events and rollouts; metrics
    that users added (`extra.…`) have their own names again. Ranks that recorded by themselves
    (`rank-001/`) are ranks of it. Of a run that is still going on, or was killed, the parts under
    `steps/` are read.

    That recorder kept only some rollouts of a step, so that groups need not be whole. Its callback
    for the Hugging Face Trainer left out what was NaN: where a row has a learning rate and no loss
    or no gradient norm, though nearly all others have one, it was not finite.

    Source: rlprobe 0.1.0, storage.py, schemas/__init__.py, integrations/trl.py.
    """

    name = "rlprobe_0_1"
    description = "recordings of rlprobe 0.1.0 (manifest.json, steps.parquet)"
    priority = 18
    folder = True

    def claims(self, directory: Path) -> list[Path]:
        """All files of a recording."""
        if not _is_recording(directory):
            return []
        return [path for place in (directory, *_ranks(directory)) for path in _files(place)]

    def read_folder(self, directory: Path) -> list[Reading]:
        """The run in a directory."""
        manifest = _manifest(directory)
        readings = [_reading(directory, manifest)]
        for place in _ranks(directory):
            reading = _reading(place, {})
            reading.rank, reading.run = _number(place), readings[0].run
            readings.append(reading)
        if not any(len(reading.rows) or reading.rollouts for reading in readings):
            raise EmptyRunError(f"Couldn't find metrics in '{directory}': nothing was recorded")
        return readings


def _is_recording(directory: Path) -> bool:
    if not (directory / _MANIFEST).is_file():
        return False
    if not any((directory / name).exists() for name in (_STEPS, "steps", _EVENTS, "samples")):
        return False
    manifest = _manifest(directory)
    return {"schema_version", "run_id", "algorithm"} <= set(manifest)


def _manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest = load(Source(directory / _MANIFEST))
    except InputError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _ranks(directory: Path) -> list[Path]:
    found = directory.glob("rank-*")
    return sorted(path for path in found if _number(path) is not None and _is_recording(path))


def _number(rank: Path) -> int | None:
    digits = rank.name.removeprefix("rank-")
    return int(digits) if digits.isdecimal() and len(digits) < 8 else None


def _files(place: Path) -> list[Path]:
    names = [place / _MANIFEST, place / _EVENTS]
    return [path for path in (*names, *_tables(place), *_samples(place)) if path.is_file()]


def _tables(place: Path) -> list[Path]:
    whole = [path for path in [place / _STEPS] if path.is_file()]
    parts = sorted((place / "steps").glob("part-*.parquet"))
    return [*whole, *(path for path in parts if path.is_file())]


def _samples(place: Path) -> list[Path]:
    return sorted(path for path in (place / "samples").glob("*.parquet") if path.is_file())


def _reading(place: Path, manifest: Mapping[str, Any]) -> Reading:
    problems: list[Problem] = []
    events, by_trl = _events(place, problems)
    config = manifest.get("trainer_config")
    algorithm = str(manifest.get("algorithm") or "unknown")
    reading = Reading(
        framework=_FRAMEWORK,
        algorithm=None if algorithm == "unknown" else algorithm,
        settings={**(config if isinstance(config, dict) else {}), **_named(manifest)},
        run=str(manifest.get("run_id") or ""),
        events=events,
    )
    hidden = _add_rows(place, reading, problems, by_trl=by_trl)
    reading.rollouts = [
        rollout for path in _samples(place) for rollout in _rollouts(path, problems)
    ]
    partly = any(rollout.capture_reason != "all groups" for rollout in reading.rollouts)
    reading.notes = [*hidden, *([_PARTLY] if partly else [])]
    reading.problems = problems
    return reading


def _named(manifest: Mapping[str, Any]) -> dict[str, Any]:
    named = {key: manifest.get(key) for key in ("model_name", "world_size")}
    return {key: value for key, value in named.items() if value is not None}


@dataclass
class _Seen:
    """Rows that were read: a part may lie beside the table that took it up already."""

    rows: set[tuple[int, float]] = field(default_factory=set)

    def new(self, steps: Sequence[int], times: Sequence[float]) -> BoolArray:
        keys = list(zip(steps, times, strict=True))
        fresh = np.array([key not in self.rows for key in keys], dtype=np.bool_)
        self.rows.update(keys)
        return fresh


def _add_rows(place: Path, reading: Reading, problems: list[Problem], *, by_trl: bool) -> list[str]:
    """Add every row that was recorded; what was assumed."""
    seen, hidden = _Seen(), dict[str, int]()
    for path in _tables(place):
        try:
            columns = _columns(path, problems)
        except InputError as error:
            problems.append(Problem(str(path), str(error)))
            continue
        if "step" not in columns:
            problems.append(Problem(str(path), "left out: no numbers in its column 'step'"))
            continue
        steps, valid = columns.pop("step")
        whole = (np.abs(steps) < LARGEST) & (steps == np.floor(steps))
        if bad := int((valid & ~whole).sum()):
            problems.append(Problem(str(path), f"{plural(bad, 'row')} left out: 'step' is no step"))
        valid = valid & whole
        times, _ = columns.get("timestamp", (np.zeros(len(steps)), valid))
        chosen = valid & seen.new(steps.tolist(), np.nan_to_num(times).tolist())
        metrics = {
            _name(key, by_trl=by_trl): (values[chosen], logged[chosen])
            for key, (values, logged) in columns.items()
            if key not in _OWN and logged.any()
        }
        if by_trl:
            _restore(metrics, hidden)
        reading.rows.add_columns(steps[chosen].astype(np.int64), metrics)
    return [
        f"`{key}` is missing in {count:,} rows: it was not finite there"
        for key, count in hidden.items()
    ]


def _columns(path: Path, problems: list[Problem]) -> Columns:
    from rlprobe.store.foreign_parquet import ForeignParquet

    file = ForeignParquet(path)
    columns = file.columns(file.numbers)
    problems += file.problems
    if _BUCKETS in file.texts:  # a list: one number per stretch of the completion
        lists = [row for batch in file.batches([_BUCKETS]) for row in batch[_BUCKETS]]
        columns |= _buckets(lists)
    return columns


def _buckets(lists: Sequence[Any]) -> Columns:
    width = min(_MOST_BUCKETS, max((len(row) for row in lists if isinstance(row, list)), default=0))
    columns: Columns = {}
    for place in range(width):
        cells = [_cell(row, place) for row in lists]
        values: FloatArray = np.array([np.nan if cell is None else cell for cell in cells])
        columns[f"{_BUCKETS}/{place}"] = values, np.array([cell is not None for cell in cells])
    return columns


def _cell(row: Any, place: int) -> float | None:
    return number(row[place]) if isinstance(row, list) and place < len(row) else None


def _name(key: str, *, by_trl: bool) -> str:
    """A column under the name that its user gave it; of TRL's, whose slashes were lost, as ours."""
    if not key.startswith(_EXTRA):
        return key
    own = key.removeprefix(_EXTRA)
    if not by_trl:
        return own
    spelled = own.replace(".", "/")
    return naming.every()["trl"].canonical(spelled) or spelled


def _restore(columns: Columns, hidden: dict[str, int]) -> None:
    """NaN where the callback left a value out because it was NaN."""
    if "lr" not in columns:
        return
    there = columns["lr"][1]
    for key in _ALWAYS:
        values, logged = columns.get(key, (np.full(len(there), np.nan), np.zeros_like(there)))
        dropped = there & ~logged
        if dropped.any() and (there & logged).sum() * 2 > there.sum():
            columns[key] = np.where(dropped, np.nan, values), logged | dropped
            hidden[key] = hidden.get(key, 0) + int(dropped.sum())


def _events(place: Path, problems: list[Problem]) -> tuple[list[Event], bool]:
    """What happened, and whether the callback for the Hugging Face Trainer recorded it."""
    path = place / _EVENTS
    if not path.is_file() or not path.stat().st_size:
        return [], False
    source = Source(path)
    complaints = Complaints(source)
    events, by_trl = [], False
    for place_, line in enumerate(source.lines(), start=1):
        try:
            raw = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            complaints.add(place_, f"not JSON ({error})")
            continue
        if isinstance(raw, dict):
            by_trl |= raw.get("kind") == "train_begin"
            events.append(_event(raw))
    problems += complaints.all()
    return events, by_trl


def _event(raw: Mapping[str, Any]) -> Event:
    kind, message = str(raw.get("kind") or "custom"), str(raw.get("message") or "")
    data = dict(raw["data"]) if isinstance(raw.get("data"), dict) else {}
    kind = _KINDS.get(kind, kind)
    if kind == "crash":
        kind, data = _ending(message, data)
    step, time, rank = (number(raw.get(key)) for key in ("step", "timestamp", "rank"))
    return Event(
        kind,
        None if step is None or not abs(step) < 2**62 else int(step),
        time=float("nan") if time is None else time,
        rank=int(rank) if rank is not None and 0 <= rank < 2**31 else 0,
        message=message,
        data=data,
    )


def _ending(message: str, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """How it ended, by the exception or the signal that the message names."""
    import signal

    stopped = _SIGNAL.fullmatch(message)
    if stopped is not None:
        known = {int(item): item.name for item in signal.Signals}
        return "halted", {**data, "signal": known.get(int(stopped[1]), stopped[1])}
    if message.startswith("KeyboardInterrupt"):
        return "halted", {**data, "signal": "SIGINT"}
    data = {**data, "exception": message}
    failure = schema.classify_failure([message])
    if failure is not None:
        data |= {"kind": failure[0].kind, "meaning": failure[0].meaning}
        data["remedy"] = failure[0].remedy
    return "crash", data


def _rollouts(path: Path, problems: list[Problem]) -> Iterator[Rollout]:
    from rlprobe.store.foreign_parquet import ForeignParquet

    try:
        file = ForeignParquet(path)
        texts = [name for name in (*_SAMPLE, "capture_reason") if name in file.texts]
        for batch in file.batches([*file.numbers, *texts]):
            names = list(batch)
            for values in zip(*batch.values(), strict=True):
                row = dict(zip(names, values, strict=True))
                if isinstance(row.get("step"), int):
                    yield _rollout(row)
    except InputError as error:
        problems.append(Problem(str(path), str(error)))


def _text(cell: object) -> str | None:
    return cell if isinstance(cell, str) else None


def _rollout(row: Mapping[str, Any]) -> Rollout:
    prompt, reason = _text(row.get("prompt_text")), str(row.get("capture_reason") or "")
    rank = number(row.get("rank"))
    sample = str(row.get("sample_id") or "")
    length, truncated = number(row.get("completion_len")), row.get("truncated")
    return Rollout(
        step=int(row["step"]),
        group_id=str(row.get("group_id") or f"{row['step']}.{sample}"),
        sample_id=sample,
        rank=int(rank) if rank is not None and 0 <= rank < 2**31 else 0,
        prompt_id=str(row.get("prompt_id") or (stable_id(prompt) if prompt else "")),
        prompt=prompt,
        completion=_text(row.get("completion_text")),
        reward=number(row.get("reward_total")),
        reward_components={
            key.removeprefix(_COMPONENT): value
            for key, cell in row.items()
            if key.startswith(_COMPONENT) and (value := number(cell)) is not None
        },
        advantage=number(row.get("advantage")),
        completion_length=None if length is None or not 0 <= length < 2**31 else int(length),
        truncated=truncated if isinstance(truncated, bool) else None,
        logprob_mean=number(row.get("logprob_mean")),
        kl=number(row.get("kl_contribution")),
        capture_reason="all groups" if reason == "all" else reason,
    )
