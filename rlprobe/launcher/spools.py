"""What processes without a recorder spooled into the status folder, recorded.

See `rlprobe.taps.spool`: one file of JSON lines for each run of a process.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlprobe.recorder import launch
from rlprobe.recorder.recorder import Recorder
from rlprobe.taps.recording import RecordedRows

_LOOK_SECONDS = 1.0
_READ_BYTES = 8 * 1024 * 1024
_PATTERN = "spool-*.jsonl"


class Spools(threading.Thread):
    """Follows the spools of the status folder while the command runs.

    Args:
        environ: of the command, in which all find the launch.

    Attributes:
        failure: why a spool could not be recorded, if that was so.
        lost: rows that a process could not spool.
        sources: the calls whose rows were recorded, by run directory.
    """

    def __init__(self, status: Path, environ: Mapping[str, str]) -> None:
        super().__init__(name="rlprobe-spools", daemon=True)
        self.failure = ""
        self.lost = 0
        self.sources: dict[str, dict[str, None]] = {}
        self._status, self._environ = status, environ
        self._spools: dict[Path, _Spool] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Look once a second."""
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def finish(self) -> None:
        """The command has ended: record what is left."""
        self._over.set()
        self._look()
        for spool in self._spools.values():
            with contextlib.suppress(Exception):
                spool.close()

    def _look(self) -> None:
        with self._lock:
            for path in sorted(self._status.glob(_PATTERN)):
                if path not in self._spools:
                    self._spools[path] = _Spool(path, self._environ)
                spool = self._spools[path]
                try:
                    spool.read()
                except Exception as error:  # one spool costs no other, nor the command
                    self.failure = self.failure or f"{type(error).__name__}: {error}"
                    continue
                self.lost += spool.take_lost()
                self.sources.setdefault(spool.run_dir, {}).update(spool.sources)


class _Spool:
    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.run_dir = ""
        self.sources: dict[str, None] = {}
        self._path, self._environ = path, environ
        self._offset = 0
        self._rest = b""
        self._lost = 0
        self._rows: RecordedRows | None = None
        self._recorder: Recorder | None = None

    def read(self) -> None:
        """Record the whole lines that have come since."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while data := file.read(_READ_BYTES):
                self._offset += len(data)
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._take(line)

    def take_lost(self) -> int:
        """Rows that were lost since this was asked last."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Nothing comes any more."""
        if self._recorder is not None:
            self._recorder.close()

    def _take(self, line: bytes) -> None:
        try:
            content = json.loads(line)
        except ValueError:  # torn by a kill
            self._lost += 1
            return
        if self._rows is None:
            self._open(content)
        elif "values" in content:
            values = {k: v for k, v in content["values"].items() if v is not None}
            self.sources[content["source"]] = None
            self._rows.row(values, content["step"], axes=content["axes"])
        elif "axis" in content:
            self._rows.axis(content["axis"])
        elif "settings" in content:
            self._rows.recorder.describe(config=content["settings"])
        elif "summary" in content:
            self._rows.recorder.event("summary", content["source"], **content["summary"])
        else:
            self._lost += int(content.get("lost", 0))

    def _open(self, head: Mapping[str, Any]) -> None:
        environ = {**self._environ, **head["environment"]}
        where = launch.place(environ)
        rank, size = head["group"] or (where.rank, where.world_size)
        self.run_dir = str(head["run_dir"])
        self._recorder = Recorder(
            self.run_dir,
            framework="auto",
            rank=rank,
            world_size=size,
            launch=where.launch,
            role=head["role"],
            signals=False,
        )
        self._rows = RecordedRows(self._recorder, is_rank=size > 1)
