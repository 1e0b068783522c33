"""A run as lines of JSON in the launcher's status folder, where this Python has no recorder.

The first line says who writes; each other line is a row. `rlprobe record` records what is there,
while the command runs and at its end. A thread writes, five times a second: a call appends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Mapping, Optional

from . import place, variables
from .slots import directory, slot_of
from .streams import Run, Stream

_SECONDS = 0.2
_MOST_WAITING = 100_000  # rows
_MOST_BYTES = 1 << 30  # of a spool
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
_RANK_STARTS = ("OMPI_", "PMI", "MV2_", "JSM_", "PALS_", "FLUX_", "SLURM_", "MASTER_", "HYDRA_")


def open_run(number: int, stream: Stream) -> Optional[Run]:
    """The n-th run of this process; None where no launcher reads it."""
    status, run_dir = os.environ.get(variables.STATUS), os.environ.get(variables.RUN)
    if not status or not run_dir or not os.path.isdir(status):
        return None
    return SpooledRun(status, run_dir, number)


class SpooledRun:
    """One run of this process.

    Attributes:
        last_step: the highest step so far.
    """

    def __init__(self, status: str, run_dir: str, number: int) -> None:
        group = place.distributed()
        ranked = group is not None or bool(os.environ.get("RANK"))
        name = "spool.%s.%d" % (" ".join(sys.argv[:1]), number)
        slot = slot_of(name, alone=not ranked)
        self._run_dir = directory(run_dir, slot)
        self._waiting: Deque[Dict[str, Any]] = deque()
        self._lost = 0
        self._size = 0
        self._lock = threading.Lock()
        self.last_step = -1
        path = os.path.join(status, "spool-%d-%d.jsonl" % (os.getpid(), number))
        self._file = open(path, "ab", buffering=0)
        self._pid = os.getpid()
        self._write_line(
            {
                "run_dir": self._run_dir,
                "pid": os.getpid(),
                "role": place.role(),
                "group": None if group is None else list(group),
                "environment": _ranks(),
                "python": sys.version.split()[0],
            }
        )
        place.tell("attached", self._run_dir)
        _at_exit(self.close)
        threading.Thread(target=self._run, name="rlprobe-spool", daemon=True).start()

    def row(
        self, source: str, stream: Stream, values: Mapping[str, Any], step: int, *, axes: bool
    ) -> None:
        """Write a row of numbers, soon."""
        if type(step) is int and step > self.last_step:
            self.last_step = step
        if len(self._waiting) >= _MOST_WAITING or self._size > _MOST_BYTES:
            self._lost += 1
            return
        row = {"source": source, "step": step, "time": time.time(), "axes": axes}
        row["values"] = {name: _number(value) for name, value in values.items()}
        self._waiting.append(row)

    def axis(self, name: str) -> None:
        """This number is the step, where a row has it."""
        self._waiting.append({"axis": name})

    def settings(self, config: Mapping[str, Any]) -> None:
        """Settings of the run."""
        self._waiting.append({"settings": {str(key): str(config[key])[:500] for key in config}})

    def summary(self, source: str, values: Mapping[str, Any]) -> None:
        """Numbers that stand for the run as a whole."""
        numbers = {name: _number(value) for name, value in values.items()}
        self._waiting.append({"source": source, "summary": numbers})

    def text(self, source: str, name: str, text: str, step: Optional[int]) -> None:
        """Texts are not spooled."""

    def finish(self) -> None:
        """The run is over; the process goes on."""
        self._flush()

    def crash(self, error: BaseException) -> None:
        """What was told is written; how the process ended, the launcher sees."""
        self._flush()

    def give_way(self) -> bool:
        """Where this is needed there are no trainers that record themselves."""
        return False

    def close(self) -> None:
        """The process ends. What a forked child has of its parent's is not its own."""
        if os.getpid() != self._pid:
            return
        self._waiting.append({"lost": self._lost, "end": True})
        self._flush()

    def _run(self) -> None:
        while True:
            time.sleep(_SECONDS)
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            while self._waiting:
                try:
                    self._write_line(self._waiting.popleft())
                except (OSError, ValueError, TypeError):
                    self._lost += 1

    def _write_line(self, content: Dict[str, Any]) -> None:
        line = (json.dumps(content) + "\n").encode("ascii")
        self._size += len(line)
        self._file.write(line)


def _at_exit(close: Callable[[], None]) -> None:
    """Have it called as the process ends: children of multiprocessing leave without `atexit`."""
    atexit.register(close)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, close, exitpriority=0)


def _number(value: Any) -> Any:
    if type(value) in (int, float):
        return value
    try:
        return float(value)
    except Exception:  # of somebody's class
        return None


def _ranks() -> Dict[str, str]:
    """What the environment says of this process's rank."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _RANKS or name.startswith(_RANK_STARTS)
    }
