"""SwanLab run files."""

from __future__ import annotations

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
from rlprobe.importers.numbers import number
from rlprobe.importers.source import Source
from rlprobe.importers.step_axis import StepAxis
from rlprobe.importers.trackers.wandb_log import records
from rlprobe.values import Event, Problem

_MARK = b":SWL"
_START, _FINISH, _SCALAR, _LOG = 10, 11, 13, 16  # fields of a record
_KEY, _STEP, _VALUE = 1, 2, 5  # of a scalar
_ENDS = {2: "crash", 3: "halted"}
_DOUBLE = Struct("<d")
_LAST_LINES = 50
_MOST_PROBLEMS = 20


class SwanLab(Importer):
    """SwanLab run files: `run-<id>.swanlab`, or `backup.swanlab` of versions before 0.8, which
    every run leaves in `swanlog/run-<date>-<id>/`.

    The framing is that of W&B's files; records are protocol buffers, in older files JSON. What one
    call of `log` wrote under one step is a row. As with W&B, the trainer's step counts where a row
    carries it. A run that was killed leaves a torn file; all that is whole in it is read. A run
    that crashed says so, with the last lines of its output.

    Source: swanlab/sdk/internal/core_python/store, swanlab/proto/record/v1/record.proto (0.10);
    swanlab/data/porter/datastore.py, swanlab/proto/v0.py (0.6).
    """

    name = "swanlab"
    description = "SwanLab run files (*.swanlab), or a run directory in swanlog/"
    priority = 16

    def recognises(self, source: Source) -> bool:
        """The mark at the start."""
        return source.head.startswith(_MARK)

    def read(self, source: Source) -> list[Reading]:
        """The run in the file."""
        run, problems = _Run(), list[str]()
        with ByteStream(source) as file:
            for record in records(file, problems):
                try:
                    run.add(record)
                except ValueError as error:
                    problems.append(f"a record left out: {error}")
        run.close()
        if not len(run.axis.table()):
            said = f" ({problems[0]})" if problems else ""
            raise EmptyRunError(f"Couldn't find metrics in '{source.path}': no scalars{said}")
        return [run.reading(source.path, problems)]

    def claims(self, directory: Path) -> list[Path]:
        """The files of a directory that is that of one run, its log first."""
        logs = sorted(directory.glob("*.swanlab"))
        if len(logs) != 1:
            return []
        return [*logs, *sorted(path for path in directory.rglob("*") if path.is_file())]

    def read_folder(self, directory: Path) -> list[Reading]:
        """The run in a run directory."""
        (path,) = directory.glob("*.swanlab")
        return self.read(Source(path))


@dataclass
class _Run:
    axis: StepAxis = field(default_factory=lambda: StepAxis("SwanLab's own step"))
    name: str = ""
    ends: tuple[str, str] = ("", "")
    lines: list[str] = field(default_factory=list)
    _row: dict[str, float] = field(default_factory=dict)
    _step: int = 0

    def add(self, record: bytes) -> None:
        """Take one record; ValueError if it is none."""
        if record.startswith(b"{"):
            self._add_json(record)
            return
        for kind, content in wire.fields(memoryview(record)):
            if isinstance(content, int):
                continue
            if kind == _SCALAR:
                self._add_scalar(content)
            elif kind == _START:
                self.name = wire.text(wire.first(content, 4) or 0)
            elif kind == _LOG:
                self._say(wire.text(wire.first(content, 1) or 0))
            elif kind == _FINISH:
                state = wire.first(content, 1)
                kind_of_end = _ENDS.get(state, "") if isinstance(state, int) else ""
                self.ends = kind_of_end, wire.text(wire.first(content, 2) or 0)

    def _add_scalar(self, scalar: memoryview) -> None:
        key, step, value = "", 0, 0.0  # what is nought is not written
        for place, content in wire.fields(scalar):
            if place == _KEY:
                key = wire.text(content)
            elif place == _STEP and isinstance(content, int):
                step = wire.signed(content)
            elif place == _VALUE and isinstance(content, memoryview):
                held = wire.first(content, 1)
                if isinstance(held, memoryview) and len(held) == _DOUBLE.size:
                    (value,) = _DOUBLE.unpack(held)
        self._point(key, step, value)

    def _add_json(self, record: bytes) -> None:
        try:
            raw = json.loads(record)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        data, kind = raw.get("data"), raw.get("model_type")
        if not isinstance(data, Mapping):
            return
        if kind == "Scalar":
            metric = data.get("metric")
            value = number(metric.get("data")) if isinstance(metric, Mapping) else None
            step = number(data.get("step"))
            if value is None or step is None or not abs(step) < 2**62:
                raise ValueError("a scalar without a number or a step")
            self._point(str(data.get("key")), int(step), value)
        elif kind == "Experiment":
            self.name = str(data.get("name") or "")
        elif kind == "Log":
            self._say(str(data.get("message") or ""))
        elif kind == "Footer" and data.get("success") is False:
            self.ends = "crash", ""

    def _point(self, key: str, step: int, value: float) -> None:
        if step != self._step or key in self._row:
            self.close()
        self._step = step
        self._row[key] = value

    def close(self) -> None:
        """Finish the row."""
        if self._row:
            self.axis.add(self._row, self._step)
        self._row = {}

    def _say(self, text: str) -> None:
        self.lines = [*self.lines, *text.splitlines()][-_LAST_LINES:]

    def reading(self, path: Path, problems: list[str]) -> Reading:
        """All of it."""
        rest = len(problems) - _MOST_PROBLEMS
        messages = problems[:_MOST_PROBLEMS] + ([f"{rest:,} more problems"] if rest > 0 else [])
        return Reading(
            rows=self.axis.table(),
            run=self.name,
            events=self._events(),
            notes=self.axis.notes(),
            problems=[Problem(str(path), message) for message in messages],
        )

    def _events(self) -> list[Event]:
        kind, error = self.ends
        if not kind:
            return []
        lines = [*self.lines, *error.splitlines()][-_LAST_LINES:]
        failure = schema.classify_failure(lines)
        data: dict[str, Any] = {"tail": lines, "exception": (error.splitlines() or [""])[-1]}
        if failure is not None:
            data["kind"] = failure[0].kind
        message = failure[1] if failure else data["exception"] or "SwanLab: the run did not end"
        return [Event(kind, None, message=message, data=data)]
