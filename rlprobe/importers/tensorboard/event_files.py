"""TensorBoard event files, and directories of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlprobe.errors import EmptyRunError
from rlprobe.importers.byte_stream import ByteStream
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.points import Points, rows_of
from rlprobe.importers.source import Source
from rlprobe.importers.tensorboard.events import EventReader
from rlprobe.importers.tensorboard.tfrecord import Damage, blocks
from rlprobe.values import FloatArray, IntArray, Problem

_MARK = "tfevents"
_DEEPEST = 4
_MOST_PROBLEMS = 20
_OTHER_AXIS = re.compile(r".+ vs (samples|tokens|gigaflos)")


class TensorBoard(Importer):
    """TensorBoard event files: all scalars, at full precision, without TensorFlow.

    Every point is read: nothing is sampled, and nothing is dropped after a restart. All files of a
    directory are one run, in order of time; where a metric's step goes back, a new attempt begins.
    Sub-directories, as `add_scalars` makes them, add metrics to it. Scalars that are stored as
    tensors count like plain ones; text, histograms and images are passed over.

    Values have the precision of 32 bits that most writers store. A damaged record is left out and
    told; so is a last record that was cut off. Tags such as Megatron's `lm loss vs samples`, which
    repeat a metric over another axis, are left out.

    Source: TensorFlow `event.proto`, `summary.proto`, `record_writer.h`; the file name is that of
    `EventFileWriter` in TensorBoard, torch and tensorboardX.
    """

    name = "tensorboard"
    description = "TensorBoard event files (events.out.tfevents.*), or a directory of them"
    priority = 10
    folder = True

    def recognises(self, source: Source) -> bool:
        """The name of an event file, or a first record that names the version of events."""
        return _MARK in source.name or b"brain.Event:" in source.head[:64]

    def read(self, source: Source) -> list[Reading]:
        """The run in one file."""
        return [_reading(source.path, [_read_file(source, "")])]

    def claims(self, directory: Path) -> list[Path]:
        """The event files of a directory, and of those below it if it has any itself."""
        own = _event_files(directory)
        below = _folders(directory) if own else []
        return [*own, *(path for child in below for path in _event_files(child))]

    def read_folder(self, directory: Path) -> list[Reading]:
        """The run in a directory: its event files, and those below it."""
        files = []
        for path in self.claims(directory):
            writer = path.parent.relative_to(directory).as_posix()
            files.append(_read_file(Source(path), "" if writer == "." else writer))
        return [_reading(directory, files)]


def _event_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if _MARK in path.name and path.is_file())


def _folders(directory: Path, depth: int = 0) -> list[Path]:
    """Every directory below this one, down to where `add_scalars` may have put a writer."""
    own = sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())
    deeper = own if depth < _DEEPEST else []
    return [*own, *(path for child in deeper for path in _folders(child, depth + 1))]


@dataclass
class _File:
    """The points of one file, under the names that they have in the run."""

    path: Path
    names: list[str]
    points: Points
    damage: Damage


def _read_file(source: Source, writer: str) -> _File:
    damage = Damage()
    reader = EventReader(damage)
    with ByteStream(source) as file:
        for block in blocks(file, damage):
            reader.add(block)
    names = [_name(tag.decode("utf-8", "replace"), writer) for tag in reader.tags]
    return _File(source.path, names, reader.points(), damage)


def _name(tag: str, writer: str) -> str:
    """A tag within the run.

    `add_scalars("loss", {"train": …})` writes the tag `loss` in the directory `loss_train` (torch)
    or `loss/train` (tensorboardX); both are `loss/train`.
    """
    for stem in (f"{tag}/", f"{tag.replace('/', '_')}_"):
        if writer.startswith(stem):
            return f"{tag}/{writer.removeprefix(stem)}"
    return f"{writer}/{tag}" if writer else tag


def _reading(path: Path, files: Sequence[_File]) -> Reading:
    names = list(dict.fromkeys(name for file in files for name in file.names))
    own_axis = [_OTHER_AXIS.fullmatch(name) is None for name in names]
    points = _merged(files, {name: number for number, name in enumerate(names)})
    points = points.take(np.array(own_axis, dtype=np.bool_)[points.key])
    problems = [problem for file in files for problem in _problems(file)]
    if not len(points):
        said = f" ({problems[0].message})" if problems else ""
        raise EmptyRunError(f"Couldn't find metrics in '{path}': no scalars{said}")
    left_out = own_axis.count(False)
    return Reading(
        rows=rows_of(names, points),
        notes=[f"{left_out} tags that repeat a metric over another axis: left out"]
        if left_out
        else [],
        problems=problems,
    )


def _merged(files: Sequence[_File], numbers: dict[str, int]) -> Points:
    """The points of all files in order of time; those of one file stay in its order."""
    parts: list[Points] = []
    for file in sorted(files, key=_begin):
        own: IntArray = np.array([numbers[name] for name in file.names], dtype=np.int64)
        key = own[file.points.key] if len(own) else file.points.key
        number = np.full(len(key), len(parts), dtype=np.int64)
        parts.append(replace(file.points, key=key, file=number))
    points = Points.joined(parts)
    if len(files) == 1:
        return points
    clock: list[FloatArray] = [np.maximum.accumulate(np.nan_to_num(part.time)) for part in parts]
    return points.take(np.argsort(np.concatenate(clock), kind="stable"))


def _begin(file: _File) -> tuple[float, str]:
    return (float(file.points.time[0]) if len(file.points) else 0.0, file.path.name)


def _problems(file: _File) -> list[Problem]:
    messages = file.damage.places[:_MOST_PROBLEMS]
    rest = len(file.damage.places) - len(messages)
    if file.damage.too_much:
        messages.append("too much damage: the rest is left out")
    elif rest:
        messages.append(f"{rest:,} more damaged places")
    if file.damage.records:
        messages.append(f"{file.damage.records:,} damaged records left out")
    return [Problem(str(file.path), message) for message in messages]
