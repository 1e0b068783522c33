"""What the command's output tells: its last lines, and rows and messages as a scan reads them.

Whole lines are gathered and read many at once, by the reader that reads logs. Called by one thread
at a time.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlprobe import naming
from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.output import last_rows, read_block
from rlprobe.importers.console.repeats.sieve import Alike, live_block
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.steps import ConsoleRow, ConsoleRows, LiveSteps
from rlprobe.importers.steps import STEP_KEYS
from rlprobe.launcher.messages import OutputMessages
from rlprobe.launcher.settling import Settling
from rlprobe.numbers import plural
from rlprobe.store.table import TableRun
from rlprobe.values import FloatArray, Unread

TAIL_LINES = 400
GATHER_SECONDS, _GATHER_BYTES = 0.5, 4 * 1024 * 1024
_READ_BYTES = 1024 * 1024  # at once: what takes long shall not be waited for at the end
_MANY_BYTES = 100_000
_BREAKS = (b"\n", b"\r")
_LEARNING_BYTES = 64 * 1024  # of output at speed, in which each line is looked at
_LONGEST = 256 * 1024  # of a line that is looked at
_LINE_CHARACTERS = 2_000  # kept of a line in the tail
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_MOST_HELD = 10_000  # rows of a log in which no line is one by itself

Record = Callable[[int, dict[str, float]], None]


@dataclass
class Missed:
    """Bytes of output and line ends in them."""

    size: int = 0
    lines: int = 0

    def add(self, size: int, lines: int) -> None:
        """Count more."""
        self.size += size
        self.lines += lines

    def __str__(self) -> str:
        size = f"{self.size / 1e6:.1f} MB" if self.size >= _MANY_BYTES else f"{self.size} bytes"
        return f"{plural(self.lines, 'line')} ({size}) of the output"


class Lines:
    """Gathers output as whole lines, hands over many at once, and keeps the last ones.

    Args:
        take: called with bytes of whole lines.

    Attributes:
        deadline: until when lines are read, by the monotonic clock.
        interrupted: set where another thread is to read what is left.
        unread: what was not read: lost before it came here, or too late.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self.deadline = math.inf
        self.interrupted = threading.Event()
        self.unread = Missed()
        self._rest: dict[int, list[bytes]] = {}
        self._broken: set[int] = set()  # streams that go on in the middle of a line
        self._gathered: list[bytes] = []
        self._size, self._since = 0, 0.0
        self._seen = 0  # bytes of them whose last lines are in the tail
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def feed(self, stream: int, data: bytes) -> None:
        """Take bytes of one stream."""
        if stream in self._broken:
            data = data[_first_break(data) :]
            if not data:
                return
            self._broken.discard(stream)
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        rest = self._rest.setdefault(stream, [])
        if cut:
            self._gather(b"".join((*rest, data[:cut])))
            self._rest[stream] = rest = []
        if cut < len(data):
            rest.append(data[cut:])
            if len(rest) > 1_000 or sum(map(len, rest[-2:])) > _LONGEST:
                self._rest[stream] = [b"".join(rest)[:_LONGEST]]
        if self._size >= _GATHER_BYTES or self.due() == 0:
            self.flush()

    def lose(self, stream: int, size: int, lines: int) -> None:
        """Bytes of a stream are missing here: what is left of their lines says nothing."""
        self.unread.add(size, lines)
        self._rest.pop(stream, None)
        self._broken.add(stream)

    def due(self) -> float | None:
        """In how many seconds the lines are to be read; None while there are none."""
        if not self._gathered:
            return None
        return max(self._since + GATHER_SECONDS - time.monotonic(), 0.0)

    def flush(self) -> None:
        """Hand over the lines so far."""
        data, self._gathered, self._size = b"".join(self._gathered), [], 0
        self._tail += _last_lines(data[self._seen :])
        self._seen = start = 0
        while start < len(data) and time.monotonic() <= self.deadline:
            if self.interrupted.is_set():
                self._gathered, self._size = [data[start:]], len(data) - start
                self._seen = self._size
                return
            end = len(data)
            if end - start > _READ_BYTES:
                end = 1 + max(data.rfind(sign, start, start + _READ_BYTES) for sign in _BREAKS)
                end = end or len(data)
            self._take(data[start:end])
            start = end
        self.unread.add(len(data) - start, data.count(b"\n", start))

    def finish(self) -> list[str]:
        """The last lines, with what had no line end."""
        for rest in self._rest.values():
            self._gather(b"".join((*rest, b"\n")) if rest else b"")
        self._rest = {}
        self.flush()
        return list(self._tail)

    def _gather(self, data: bytes) -> None:
        if not self._gathered:
            self._since = time.monotonic()
        self._gathered.append(data)
        self._size += len(data)


def _first_break(data: bytes) -> int:
    ends = [at for at in map(data.find, _BREAKS) if at >= 0]
    return min(ends) + 1 if ends else len(data)


def _last_lines(data: bytes) -> list[str]:
    """The last lines that say something; a progress bar that redraws itself is no last word."""
    lines: list[str] = []
    end = len(data)
    while end > 0 and len(lines) < TAIL_LINES:
        start = data.rfind(b"\n", 0, end - 1) + 1
        line = data[start:end].rstrip(b"\r\n")
        line = line[line.rfind(b"\r") + 1 :][: 4 * _LINE_CHARACTERS]
        text = line.decode("utf-8", "replace")
        clean = _ANSI.sub("", text[: 2 * _LINE_CHARACTERS])[:_LINE_CHARACTERS].rstrip()
        if clean and data[end - 1 : end] == b"\n":
            lines.append(clean)
        end = start
    return lines[::-1]


class OutputRows:
    """Records the rows of metrics in output, as they are printed, and gives messages away.

    Args:
        record: called with the step and the metrics of each row, under canonical names.
        wanted: asked before rows are recorded; once it is False, none is any more.
        messages: told of messages, with the step of the last row that was recorded.

    Attributes:
        step: that of the last row that was recorded.
        settling: listens as a scan of the same output does.
        settled: what it has in the end; None where that is not for one recording.
    """

    def __init__(
        self, record: Record, wanted: Callable[[], bool], messages: OutputMessages | None = None
    ) -> None:
        self._record = record
        self._wanted = wanted
        self._messages = messages
        self._reader, self._alike = Reader(most=_MOST_HELD), Alike()
        self._bytes = self._lines = 0  # read so far
        self._recording, self._is_asked = True, False
        self._steps = LiveSteps()
        self._names = naming.LiveAliases()
        self.settling = Settling()
        self.settled: TableRun | None = None
        self.step: int | None = None

    @property
    def framework(self) -> str:
        """The one whose keys the rows have had so far; `generic` until one is known."""
        return self._names.framework

    @property
    def has_rows(self) -> bool:
        """Whether the output has rows of metrics, as far as it is read."""
        return self.step is not None or self.settled is not None

    def read(self, data: bytes) -> None:
        """Look at whole lines."""
        self.settling.keep(data)
        self._is_asked = False
        learning = 0
        if self._bytes < _LEARNING_BYTES < len(data):
            learning = max(data.rfind(end, 0, _LEARNING_BYTES) for end in _BREAKS) + 1
        for part in filter(None, (data[:learning], data[learning:])):
            block = live_block(part, self._lines, self._bytes, at_speed=len(part) > _LEARNING_BYTES)
            read_block(block, self._alike, self._reader, self)
            self._bytes += len(part)
            self._lines += block.ends

    def finish(self) -> None:
        """Record what waits for a line that does not come any more."""
        self._is_asked = False
        late = last_rows(self._reader, self)
        self._record_rows(late)
        self._may_record()  # else nothing is settled
        self.settled = self.settling.run(self._reader, late, self._alike)

    def unread(self) -> list[Unread]:
        """What looks like metrics and was not understood."""
        if self.settled is not None:
            return list(self.settled.info.unread)
        return self._reader.account.unread()

    def notes(self) -> list[str]:
        """What was done with what was read, and what was not looked at, in words."""
        if self.settled is not None:
            return list(self.settled.info.notes)
        account = (self._reader.note, *self._reader.notes(), *self._alike.notes())
        notes = (*account, self.settling.why_not)
        return [note for note in notes if note]

    # --- what the reader finds ------------------------------------------------------------------

    @property
    def alarmed(self) -> bool:
        """Whether lines are to be read one by one, because a failure was spoken of."""
        return self.settling.alarmed

    def add(self, rows: Iterable[ConsoleRow]) -> None:
        """Record rows."""
        every = list(rows)
        self.settling.add(every)
        self._record_rows(every)

    def _record_rows(self, rows: Iterable[ConsoleRow]) -> None:
        for row in rows:
            keys = [key for key in row.metrics if key not in STEP_KEYS]
            logged = {key: (row.metrics[key], True) for key in keys}
            step = self._steps.place(row)
            if self._may_record():
                named = self._names.of(keys).apply(logged)
                self._write(step, {name: float(v) for name, (v, there) in named.items() if there})

    def may_add_rows(self, first: ConsoleRow) -> bool:
        """Whether nothing was said of another training."""
        return self.settling.may_add_rows(first)

    def add_rows(self, rows: ConsoleRows) -> None:
        """Record many rows of the same names."""
        self.settling.add_rows(rows)
        before, steps = self._steps.last, self._steps.place_rows(rows)
        if not self._may_record():
            return
        if rows.beside is not None:
            self._write_columns([before, *steps], *rows.beside)
        self._write_columns(steps, rows.names, rows.values)

    def tell(self, message: Message) -> None:
        """A message, behind the rows before it."""
        self.settling.tell(message)
        if self._messages is not None:
            self._messages.hear(message, self.step)

    def say(self, lines: Sequence[str]) -> None:
        """Any lines: the launcher keeps the last ones itself."""
        self.settling.say(lines)

    def hear(self, line: str) -> None:
        """A line that tells of a training: all trainings of a command are one recording."""
        self.settling.hear(line)

    def move(self) -> None:
        """The output goes on."""
        self.settling.move()

    # --- recording ------------------------------------------------------------------------------

    def _may_record(self) -> bool:
        """Whether nobody records from the inside; asked once for what is read together."""
        if self._recording and not self._is_asked:
            self._recording, self._is_asked = self._wanted(), True
            if not self._recording:
                self.settling.stop()
        return self._recording

    def _write(self, step: int, metrics: dict[str, float]) -> None:
        if metrics:
            self._record(step, metrics)
            self.step = step

    def _write_columns(
        self, steps: Sequence[int], names: Sequence[str], values: FloatArray
    ) -> None:
        places = [place for place, name in enumerate(names) if name not in STEP_KEYS]
        every = np.ones(len(values), np.bool_)
        logged = {names[place]: (values[:, place], every) for place in places}
        named = self._names.of(logged).apply(logged)
        whole = all(there.all() for _, there in named.values())
        columns = [column.tolist() for column, _ in named.values()]
        valid = zip(*(there.tolist() for _, there in named.values()), strict=True)
        for step, numbers in zip(steps, zip(*columns, strict=True), strict=False):
            pairs = zip(named, numbers, strict=True)
            self._write(step, dict(pairs if whole else itertools.compress(pairs, next(valid))))
