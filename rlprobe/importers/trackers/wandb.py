"""Weights & Biases run files."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

from rlprobe import schema
from rlprobe.errors import EmptyRunError
from rlprobe.importers import wire
from rlprobe.importers.byte_stream import ByteStream
from rlprobe.importers.importer import Importer, Reading
from rlprobe.importers.source import Source
from rlprobe.importers.step_axis import StepAxis
from rlprobe.importers.steps import step_number
from rlprobe.importers.trackers.wandb_log import MARK, records
from rlprobe.values import Event, Problem

_HISTORY, _CONFIG, _METRIC, _OUTPUT, _RUN, _EXIT = 2, 5, 12, 13, 17, 18
_DOUBLE = Struct("<d")
_KEYS = b"\x0a\x12"  # a key or a nested key, as bytes
_VALUE_JSON = b"\x82\x01"  # field 16, as bytes
_LAST_LINES = 50
_MOST_PROBLEMS = 20


class WandbFile(Importer):
    """W&B run files (`run-<id>.wandb`), which offline and online runs leave in `wandb/`.

    Read without wandb, whose own reader is private and has moved. History rows are numbered by the
    trainer's step (the metric that `define_metric` named, `train/global_step` and the like) where
    they have it: `_step` counts calls of `log`. A run that was killed leaves a torn file; all that
    is whole in it is read. The exit code becomes an event, with the last lines of output.

    Runs that live only in the cloud: export the history as Parquet or CSV.

    Source: W&B `core/pkg/leveldb` and `wandb_internal.proto`.
    """

    name = "wandb"
    description = "W&B run files (run-*.wandb), or a run directory in wandb/"
    priority = 15

    def recognises(self, source: Source) -> bool:
        """The mark at the start."""
        return source.head.startswith(MARK)

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        run, problems = _Run(), list[str]()
        with ByteStream(source) as file:
            for record in records(file, problems):
                try:
                    run.add(memoryview(record))
                except ValueError as error:
                    problems.append(f"a record left out: {error}")
        if not len(run.axis.table()):
            said = f" ({problems[0]})" if problems else ""
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no history{said}")
        return [run.reading(source.path, problems)]

    def claims(self, directory: Path) -> list[Path]:
        """The files of a directory that is that of one run, its log first."""
        logs = sorted(directory.glob("run-*.wandb"))
        if len(logs) != 1:
            return []
        return [*logs, *sorted(path for path in directory.rglob("*") if path.is_file())]

    def read_folder(self, directory: Path) -> list[Reading]:
        """The run in a run directory."""
        (path,) = directory.glob("run-*.wandb")
        return self.read(Source(path))


@dataclass
class _Run:
    axis: StepAxis = field(default_factory=lambda: StepAxis("_step"))
    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    exit_code: int | None = None
    count: int = 0

    def add(self, record: memoryview) -> None:
        """Take one record; kinds that tell nothing of a run are passed over."""
        for number, content in wire.fields(record):
            if isinstance(content, int):
                continue
            if number == _HISTORY:
                self._history(content)
            elif number == _CONFIG:
                self.settings.update(_config(content))
            elif number == _RUN:
                self._begin(content)
            elif number == _METRIC:
                self._metric(content)
            elif number == _OUTPUT:
                self._output(content)
            elif number == _EXIT:
                self.exit_code = _exit_code(content)

    def _begin(self, run: memoryview) -> None:
        config = wire.first(run, 4)
        if isinstance(config, memoryview):
            self.settings.update(_config(config))

    def _history(self, history: memoryview) -> None:
        row: dict[str, Any] = {}
        counted = self.count
        self.count += 1
        for number, content in wire.fields(history):
            if number == 1 and not isinstance(content, int):
                key, value = _item(content)
                row[key] = value
            elif number == 2 and not isinstance(content, int):
                step = wire.first(content, 1)
                counted = wire.signed(step) if isinstance(step, int) else 0
        own = step_number(row.get("_step"))
        self.axis.add(row, counted if own is None else own)

    def _metric(self, metric: memoryview) -> None:
        axis = wire.first(metric, 4)
        names = [wire.first(metric, field) for field in (1, 2)]  # a name, or a pattern
        if isinstance(axis, memoryview):
            name = next((wire.text(one) for one in names if isinstance(one, memoryview)), "")
            self.axis.declare(wire.text(axis), name)

    def _output(self, output: memoryview) -> None:
        line = wire.first(output, 3)
        if isinstance(line, memoryview):
            self.lines = [*self.lines, *wire.text(line).splitlines()][-_LAST_LINES:]

    def reading(self, path: Path, problems: list[str]) -> Reading:
        """All of it."""
        rest = len(problems) - _MOST_PROBLEMS
        messages = problems[:_MOST_PROBLEMS] + ([f"{rest:,} more problems"] if rest > 0 else [])
        return Reading(
            rows=self.axis.table(),
            settings={key: value for key, value in self.settings.items() if key != "_wandb"},
            events=self._events(),
            notes=self.axis.notes(),
            problems=[Problem(str(path), message) for message in messages],
        )

    def _events(self) -> list[Event]:
        if not self.exit_code:
            return []
        failure = schema.classify_failure(self.lines)
        data: dict[str, Any] = {"exit_code": self.exit_code, "tail": self.lines}
        if failure is not None:
            data["kind"] = failure[0].kind
        message = failure[1] if failure else f"exit code {self.exit_code}"
        return [Event("crash", None, message=message, data=data)]


def _exit_code(content: memoryview) -> int:
    code = wire.first(content, 1)
    return wire.signed(code) if isinstance(code, int) else 0


def _item(item: memoryview) -> tuple[str, Any]:
    """Key and value; a nested key is joined with slashes, as nested values are elsewhere."""
    usual = _usual_item(item.tobytes())
    if usual is not None:
        return usual
    key, nested, value = "", list[str](), None
    for number, content in wire.fields(item):
        if number == 1:
            key = wire.text(content)
        elif number == 2:
            nested.append(wire.text(content))
        elif number in _TYPED:
            value = _TYPED[number](content)
    return key or "/".join(nested), value


def _usual_item(item: bytes) -> tuple[str, float] | None:
    """One key and one short number, as most items are; None for any other."""
    if len(item) < 6 or item[0] not in _KEYS or item[1] > 0x7F:
        return None
    end = 2 + item[1]
    rest = len(item) - end - 3
    if item[end : end + 2] != _VALUE_JSON or not 0 < rest == item[end + 2] < 0x80:
        return None
    try:
        return _key_text(item[2:end]), float(item[end + 3 :])
    except ValueError:
        return None


@functools.lru_cache(maxsize=65_536)
def _key_text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _json(content: int | memoryview) -> Any:
    try:
        return json.loads(wire.text(content))
    except (ValueError, RecursionError):
        return None


def _double(content: int | memoryview) -> float | None:
    if isinstance(content, int) or len(content) != 8:
        return None
    found: float = _DOUBLE.unpack(content)[0]
    return found


def _whole(content: int | memoryview) -> int | None:
    return wire.signed(content) if isinstance(content, int) else None


# value_json, and the typed values that the schema also knows: boolean, integer, number
_TYPED = {16: _json, 4: _whole, 5: _whole, 6: _double}


def _config(config: memoryview) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for number, content in wire.fields(config):
        if number == 1 and not isinstance(content, int):
            key, value = _item(content)
            settings[key] = _plain(value)
    return settings


def _plain(value: Any) -> Any:
    """`{"value": x, "desc": …}`, as older clients wrap a setting, is x."""
    wrapped = isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}
    return value["value"] if wrapped else value
