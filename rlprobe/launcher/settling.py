"""The output as a scan of it would have it, known when the command has ended.

Rows are recorded as they are printed, with the steps that are known by then. A scan of the same
text knows more: whether a progress bar told the steps, which rows repeat each other, what a
framework left out, that all of it is JSON lines. Where that differs, it takes the place of what was
recorded. Output of ordinary length is kept, and opened as a scan opens it; of more, what the reader
found has been gathered meanwhile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlprobe.errors import InputError, first_line
from rlprobe.importers.console.messages import Message
from rlprobe.importers.console.output import readings_at_end
from rlprobe.importers.console.repeats.sieve import Alike
from rlprobe.importers.console.rows import Reader
from rlprobe.importers.console.steps import ConsoleRow, ConsoleRows
from rlprobe.importers.console.trainings import Trainings
from rlprobe.store.table import TableRun

_MOST_CELLS = 20_000_000  # numbers that are held: 160 MB
_MOST_BYTES = 4 * 1024 * 1024  # of output that is kept


class Settling:
    """Listens to what the reader finds, as a scan does.

    Attributes:
        why_not: why nothing is settled; empty if it is.
    """

    def __init__(self) -> None:
        self.why_not = ""
        self._trainings: Trainings | None = Trainings()
        self._cells = 0
        self._output: bytearray | None = bytearray()

    def stop(self, why: str = "") -> None:
        """Listen no longer."""
        self.why_not = self.why_not or why
        self._trainings = self._output = None

    def keep(self, data: bytes) -> None:
        """Take whole lines, before they are read."""
        if self._output is not None and len(self._output) + len(data) <= _MOST_BYTES:
            self._output += data
        else:
            self._output = None

    @property
    def alarmed(self) -> bool:
        """Whether lines are to be read one by one, because a failure was spoken of."""
        return self._trainings is not None and self._trainings.alarmed

    def add(self, rows: Sequence[ConsoleRow]) -> None:
        """Take rows."""
        if self._trainings is not None:
            self._trainings.add(rows)
            self._count(sum(len(row.metrics) for row in rows))

    def may_add_rows(self, first: ConsoleRow) -> bool:
        """Whether many rows like this one may be given at once."""
        return self._trainings is None or self._trainings.may_add_rows(first)

    def add_rows(self, rows: ConsoleRows) -> None:
        """Take many rows at once."""
        if self._trainings is not None:
            self._trainings.add_rows(rows)
            self._count(rows.size * len(rows.names))

    def say(self, lines: Sequence[str]) -> None:
        """Any lines, in order."""
        if self._trainings is not None:
            self._trainings.say(lines)

    def hear(self, line: str) -> None:
        """A line that tells of a training."""
        if self._trainings is not None:
            self._trainings.hear(line)

    def tell(self, message: Message) -> None:
        """A message of the framework."""
        if self._trainings is not None:
            self._trainings.tell(message)

    def move(self) -> None:
        """The output goes on."""
        if self._trainings is not None:
            self._trainings.move()

    def _count(self, cells: int) -> None:
        self._cells += cells
        if self._cells > _MOST_CELLS:
            self.stop("more rows than are gone through again: their steps are as they came")

    def run(self, reader: Reader, late: Sequence[ConsoleRow], alike: Alike) -> TableRun | None:
        """The run in the output; None where there is none, or several.

        Args:
            reader: that has read all of it.
            late: rows that it knew only in the end.
            alike: lines that were like others.
        """
        runs: list[TableRun] | None = []
        try:
            runs = self._kept_runs()
            if runs is None:
                runs = self._gathered_runs(reader, late, alike)
        except Exception as error:  # the rows as they came are recorded
            self.why_not = f"the output could not be gone through again: {first_line(error)}"
        runs = runs or []
        self.stop()
        if len(runs) > 1:
            self.why_not = f"{len(runs)} trainings in this output, recorded as one"
        return runs[0] if len(runs) == 1 else None

    def _kept_runs(self) -> list[TableRun] | None:
        """The runs in output that was kept, as in a file; None where that is not all of it."""
        from rlprobe.importers.open import open_runs

        if self._output is None:
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="rlprobe-", ignore_cleanup_errors=True) as name:
                path = Path(name) / "output.log"
                path.write_bytes(self._output)
                return [run for run in open_runs(path) if isinstance(run, TableRun)]
        except InputError:
            return []
        except OSError:  # no room for a copy
            return None

    def _gathered_runs(
        self, reader: Reader, late: Sequence[ConsoleRow], alike: Alike
    ) -> list[TableRun]:
        from rlprobe.importers.open import runs_of

        if self._trainings is None:
            return []
        self._trainings.add_late(late)
        readings = readings_at_end(reader, self._trainings, alike)
        return runs_of(Path("output"), "console", readings)
