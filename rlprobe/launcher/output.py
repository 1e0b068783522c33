"""What the command's output tells: its last lines, and rows of metrics where nobody else records.

Called from the threads that pass the output through.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable

from rlprobe import naming
from rlprobe.importers.console.line import MAX_CHARACTERS
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.steps import ConsoleRow, LiveSteps
from rlprobe.importers.steps import STEP_KEYS

TAIL_LINES = 400
_UNKNOWN = "generic"
_LINE_CHARACTERS = 2_000  # kept of a line in the tail
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_BREAK = re.compile(rb"\r\n|\n|\r")
_MOST_HELD = 10_000  # rows of a log in which no line is one by itself
_MOST_KEYS = 500  # looked at to tell the framework

Record = Callable[[int, dict[str, float]], None]


class Lines:
    """Splits output into lines and keeps the last ones."""

    def __init__(self, seen: Callable[[str], None]) -> None:
        self._seen = seen
        self._rest: dict[int, bytes] = {}
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._lock = threading.Lock()

    def feed(self, stream: int, data: bytes) -> None:
        """Take bytes of one stream."""
        with self._lock:
            text = self._rest.get(stream, b"") + data
            position = 0
            for match in _BREAK.finditer(text):
                if match.end() == len(text) and match[0] == b"\r":
                    break  # perhaps the first half of \r\n
                self._line(text[position : match.start()], redrawn=match[0] == b"\r")
                position = match.end()
            self._rest[stream] = text[position:][-MAX_CHARACTERS:]

    def finish(self) -> list[str]:
        """The last lines, with what had no line end."""
        with self._lock:
            for rest in self._rest.values():
                self._line(rest, redrawn=False)
            self._rest = {}
            return list(self._tail)

    def _line(self, raw: bytes, *, redrawn: bool) -> None:
        if not raw:
            return
        text = raw.decode("utf-8", "replace")
        self._seen(text)
        clean = _ANSI.sub("", text[: 2 * _LINE_CHARACTERS])[:_LINE_CHARACTERS].rstrip()
        if clean and not redrawn:  # a progress bar that redraws itself is no last word
            self._tail.append(clean)


class OutputRows:
    """Records the rows of metrics in lines of output, as they are printed.

    Args:
        record: called with the step and the metrics of each row, under canonical names.
        wanted: asked before each row; once it is False, nothing is read any more.

    Attributes:
        framework: the one whose keys the rows have had so far; `generic` until one is known.
        step: that of the last row that was recorded.
    """

    def __init__(self, record: Record, wanted: Callable[[], bool]) -> None:
        self._record = record
        self._wanted = wanted
        self._reading = True
        self._reader = Reader(most=_MOST_HELD)
        self._steps = LiveSteps()
        self._keys: set[str] = set()
        self.framework = _UNKNOWN
        self.step: int | None = None

    def see(self, line: str) -> None:
        """Look at one line."""
        if self._reading:
            self._write(self._reader.feed(line))

    def finish(self) -> None:
        """Record what waits for a line that does not come any more."""
        if self._reading:
            self._write(self._reader.finish())

    def _write(self, rows: Iterable[ConsoleRow]) -> None:
        for row in rows:
            step = self._steps.place(row)
            logged = {key: (v, True) for key, v in row.metrics.items() if key not in STEP_KEYS}
            self._reading = self._reading and self._wanted()
            if not self._reading:
                return
            named = self._aliases(logged).apply(logged)
            metrics = {name: float(value) for name, (value, there) in named.items() if there}
            if metrics:
                self._record(step, metrics)
                self.step = step

    def _aliases(self, keys: Iterable[str]) -> naming.Aliases:
        """Those of the framework that all keys so far give away."""
        undecided = self.framework == _UNKNOWN and len(self._keys) < _MOST_KEYS
        if undecided and not self._keys.issuperset(keys):
            self._keys.update(keys)
            self.framework = naming.detect_framework(self._keys) or _UNKNOWN
        return naming.every()[self.framework]
