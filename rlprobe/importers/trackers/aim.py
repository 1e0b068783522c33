"""Aim repositories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.importer import FolderImporter, Reading
from rlprobe.importers.points import Points, rows_of
from rlprobe.importers.trackers import rocksdb
from rlprobe.importers.trackers.sqlite_file import opened
from rlprobe.values import Problem

_HIDDEN = ".aim"
_DESCRIBED = "run_metadata.sqlite"
_END = 0xFE  # behind each part of a key; before it, if the part is a number
_BOOL, _INT, _FLOAT, _TEXT = 1, 2, 3, 4
_I64, _F64 = Struct("<q"), Struct("<d")
_SYSTEM = "__system__"  # Aim's own machine metrics: their step counts samples of the machine
# What a subset puts before the names of its metrics, where that is not its own name.
_SUBSETS = {"train": "", "training": "", "val": "eval", "validation": "eval", "valid": "eval"}
_MOST_RUNS = 10_000
_MOST_PROBLEMS = 20

Part = str | int


class Aim(FolderImporter):
    """Aim repositories: the hidden directory `.aim`, or the directory that holds it.

    A repository holds many runs, each in a RocksDB of its own, which is read without RocksDB and
    without touching it, also while the run goes on or after it was killed. A metric in the context
    `{"subset": "train"}` has its plain name, in `{"subset": "val"}` it is `eval/<metric>`, and in
    others the words of the context stand before it. Archived runs are left out, and so are machine
    metrics, whose steps are not the trainer's.

    Source: aim/storage/{encoding,rockscontainer}, aim/sdk/tracker.py, aim/sdk/sequence.py.
    """

    name = "aim"
    description = "Aim repositories (a directory with .aim in it)"
    priority = 26

    def claims(self, directory: Path) -> list[Path]:
        """The files of a repository that hold metrics."""
        repository = _repository(directory)
        if repository is None:
            return []
        described = repository / _DESCRIBED
        files = [path for place in _chunks(repository) for path in rocksdb.files_of(place)]
        return [described, *files] if described.is_file() else files

    def read_folder(self, directory: Path) -> list[Reading]:
        """Every run in a repository."""
        repository = _repository(directory) or directory
        names, archived = _names(repository)
        chunks = [place for place in _chunks(repository) if place.name not in archived]
        readings = [_reading(repository, place, names.get(place.name, "")) for place in chunks]
        known = [reading for reading in readings if len(reading.rows)]
        if not known:
            raise EmptyRunError(f"Couldn't find metrics in '{directory}': no run has any")
        taken = [reading.run for reading in known]
        for reading, place in zip(readings, chunks, strict=True):
            if taken.count(reading.run) > 1:
                reading.run = f"{reading.run} ({place.name[:8]})"
        return known


def _repository(directory: Path) -> Path | None:
    for place in (directory / _HIDDEN, directory):
        if (place / "seqs" / "chunks").is_dir() and (place / "VERSION").is_file():
            return place
    return None


def _chunks(repository: Path) -> list[Path]:
    places = (repository / "seqs" / "chunks").iterdir()
    return sorted(path for path in places if path.is_dir() and not path.is_symlink())[:_MOST_RUNS]


def _names(repository: Path) -> tuple[dict[str, str], set[str]]:
    """Names of runs by their hash, and those that are archived."""
    path = repository / _DESCRIBED
    if not path.is_file():
        return {}, set()
    try:
        with opened(path) as database:
            if not database.columns("run") >= {"hash", "name", "is_archived"}:
                return {}, set()
            rows = list(database.rows("SELECT hash, name, is_archived FROM run"))
    except InputError:
        return {}, set()
    named = {str(key): str(name) for key, name, _ in rows if name and name != f"Run: {key}"}
    return named, {str(key) for key, _, archived in rows if archived}


@dataclass
class _Sequence:
    """One metric: by the number that Aim gives to a point, its value, step and time."""

    values: dict[int, float] = field(default_factory=dict)
    steps: dict[int, float] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)

    def points(self, key: int) -> Iterator[tuple[int, int, float, float]]:
        """Number of the metric, step, time and value of each point."""
        for point, value in self.values.items():
            step = self.steps.get(point, point)  # in older versions its number is the step
            if float(step).is_integer() and abs(step) < 2**62:
                yield key, int(step), self.times.get(point, 0.0), value


def _reading(repository: Path, chunk: Path, name: str) -> Reading:
    problems: list[str] = []
    described = repository / "meta" / "chunks" / chunk.name
    contexts, settings = _meta(described, problems)
    sequences = _sequences(rocksdb.read(chunk, problems), contexts)
    rows = [
        row
        for number, sequence in enumerate(sequences.values())
        for row in sorted(sequence.points(number), key=_by_time)
    ]
    points = Points.of(*zip(*rows, strict=True)) if rows else Points.of((), (), (), ())
    points = points.take(np.argsort(points.time, kind="stable"))
    rest = len(problems) - _MOST_PROBLEMS
    messages = problems[:_MOST_PROBLEMS] + ([f"{rest:,} more problems"] if rest > 0 else [])
    return Reading(
        rows=rows_of(list(sequences), points),
        run=name or chunk.name,
        settings=settings,
        problems=[Problem(str(chunk), message) for message in messages],
    )


def _by_time(point: tuple[int, int, float, float]) -> tuple[float, int]:
    return point[2], point[1]


def _meta(place: Path, problems: list[str]) -> tuple[dict[int, dict[str, str]], dict[str, Any]]:
    """Contexts by their number, and what the run was set to."""
    contexts: dict[int, dict[str, str]] = {}
    settings: dict[str, Any] = {}
    if not place.is_dir():
        return contexts, settings
    for key, raw in rocksdb.read(place, problems).items():
        path, value = _path(key), _value(raw)
        match path:
            case ["meta", "chunks", str(), "contexts", int() as number, str() as name]:
                contexts.setdefault(number, {})[name] = str(value)
            case ["meta", "chunks", str(), "attrs", str() as group, *rest] if (
                rest and value is not None and not group.startswith("__")
            ):
                settings["/".join(map(str, rest))] = value
    return contexts, settings


def _sequences(
    content: Mapping[bytes, bytes], contexts: Mapping[int, Mapping[str, str]]
) -> dict[str, _Sequence]:
    """The metrics of a run, under the names that they have in it."""
    sequences: dict[tuple[int, str], _Sequence] = {}
    for key, raw in content.items():
        match _path(key):
            case ["seqs", *_, int() as context, str() as name, str() as kind, int() as point]:
                value = _value(raw)
                if name.startswith(_SYSTEM) or not isinstance(value, int | float):
                    continue
                sequence = sequences.setdefault((context, name), _Sequence())
                kinds = {"val": sequence.values, "step": sequence.steps, "time": sequence.times}
                if kind in kinds:
                    kinds[kind][point] = float(value)
    named: dict[str, _Sequence] = {}
    words_of = {context: list(contexts.get(context, {}).values()) for context, _ in sequences}
    # Of two that would have one name, that of a subset has it.
    for (context, name), sequence in sorted(sequences.items(), key=lambda x: not words_of[x[0][0]]):
        words = words_of[context]
        known = [_SUBSETS.get(word, word) for word in words]
        short = "/".join([*(word for word in known if word), name])
        named["/".join([*(words or ["other"]), name]) if short in named else short] = sequence
    return {name: sequence for name, sequence in named.items() if sequence.values}


def _path(key: bytes) -> list[Part]:
    """The parts of a key: texts, and numbers of eight bytes."""
    parts: list[Part] = []
    at = 0
    while at < len(key):
        if key[at] == _END:
            parts.append(int.from_bytes(key[at + 1 : at + 9], "big", signed=True))
            at += 10
            continue
        end = key.find(_END, at)
        end = len(key) if end < 0 else end
        parts.append(key[at:end].decode("utf-8", "replace"))
        at = end + 1
    return parts


def _value(raw: bytes) -> bool | int | float | str | None:
    """A plain value; None for anything else."""
    kind, content = raw[:1], raw[1:]
    if kind == bytes([_TEXT]):
        return content.decode("utf-8", "replace")
    if kind == bytes([_BOOL]):
        return content != b"\0"
    if len(content) != _F64.size or kind not in (bytes([_INT]), bytes([_FLOAT])):
        return None
    number: int | float = (_INT_OR_FLOAT[kind[0]]).unpack(content)[0]
    return number


_INT_OR_FLOAT = {_INT: _I64, _FLOAT: _F64}
