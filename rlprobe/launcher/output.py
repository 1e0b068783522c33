"""What the command's output tells: its last lines, and rows of metrics where nobody else records.

Called from the threads that pass the output through.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable

from rlprobe import schema
from rlprobe.importers.console import line as console_line

TAIL_LINES = 400
_LINE_CHARACTERS = 2_000  # kept of a line in the tail
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_BREAK = re.compile(rb"\r\n|\n|\r")
_BAR = re.compile(r"^\s*\d+%\|.*?\|\s*(\d+)/(\d+) \[")  # the Trainer's own bar has no caption

Row = Callable[[int, dict[str, float]], None]


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
            self._rest[stream] = text[position:][-console_line.MAX_CHARACTERS :]

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
    """Finds rows of metrics in lines, and the step of those that do not tell it.

    The Trainer's rows have no step. Its progress bar, drawn again right after a row, has; without a
    bar rows are counted.

    Args:
        wanted: asked before each row; False once somebody records from the inside.
    """

    def __init__(self, record: Row, wanted: Callable[[], bool]) -> None:
        self._record = record
        self._wanted = wanted
        self._held: dict[str, float] | None = None
        self._last = 0
        self._interval = 1
        self.framework: str | None = None

    def see(self, line: str) -> None:
        """Look at one line."""
        bar = _BAR.match(line[: console_line.MAX_CHARACTERS])
        if bar and self._held is not None:
            self._place(int(bar[1]))
        row = console_line.parse(line)
        if row is None or "train_runtime" in row:
            return
        self.finish()
        step = console_line.step_of(row)
        if step is not None:
            del row["step"]
            self._write(step, row)
        elif any(key.startswith("eval_") for key in row):
            self._write(self._last, row)
        else:
            self._held = row

    def finish(self) -> None:
        """Write the row that waits for its step."""
        if self._held is not None:
            self._place(self._last + self._interval)

    def _place(self, step: int) -> None:
        row, self._held = self._held, None
        if row is not None:
            self._interval = max(step - self._last, 1)
            self._write(max(step, self._last + 1), row)

    def _write(self, step: int, row: dict[str, float]) -> None:
        self._last = step
        if not self._wanted():
            return
        if self.framework is None:
            self.framework = schema.detect_framework(row) or "generic"
        names = schema.aliases()[self.framework]
        self._record(step, {names.canonical(key) or key: value for key, value in row.items()})
