"""What a recorder could not keep or do: counted by kind, warned of once, told by the recording."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Mapping

from rlprobe.store.text import text_of

_FIRST_PAUSE = 60.0  # seconds between two reports into the recording; doubled each time
_LONGEST_PAUSE = 3600.0
_MOST_WARNINGS = 100


class Health:
    """Counts and warnings of one recorder; any thread may call it."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Begin anew, in a forked child; what the parent warned of is not said again."""
        # By thread, and without a lock: a signal handler that interrupts whoever has it, and waits
        # for the writer, would wait for itself.
        self._counts: dict[int, dict[str, int]] = {}
        self._reported: dict[str, int] = {}
        self._next_report = 0.0
        self._pause = _FIRST_PAUSE

    def count(self, kind: str, number: int = 1) -> None:
        """Count something lost or left out."""
        own = self._counts.setdefault(threading.get_ident(), {})
        own[kind] = own.get(kind, 0) + number

    def drop(self, table: str, number: int, why: str) -> None:
        """Count rows that could not be kept, and say it once."""
        self.count(f"dropped_{table}_rows", number)
        self.warn(f"dropped {table}", f"rlprobe: rows of {table} are dropped: {why}")

    def fail(self, what: str, error: BaseException) -> None:
        """Count a failure of the recorder's own, and warn once per kind and reason."""
        kind = f"{what}_failures"
        self.count(kind)
        name = type(error).__name__
        reason = f"{name} {getattr(error, 'errno', None)}"
        self.warn(
            f"{kind} {reason}",
            f"rlprobe: could not {what}: {name}: {text_of(error)}",
        )

    def no_number(self, name: object, count: int = 1) -> None:
        """Values of a metric are no numbers and left out."""
        self.count("values_that_are_no_numbers", count)
        text = text_of(name)[:80]
        self.warn(f"metric {text}", f"rlprobe: metric {text!r} is no number; left out")

    def warn(self, kind: str, message: str) -> None:
        """Warn, once per kind; nothing that listens to warnings can reach training."""
        if kind in self._warned or len(self._warned) > _MOST_WARNINGS:
            return
        self._warned.add(kind)
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        except Exception:  # warnings are errors here, or whoever shows them fails
            self.count("silenced_warnings")
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{message}\n")

    def dropped(self, table: str | None = None) -> int:
        """Rows dropped so far, of one table or of all."""
        kinds = "dropped_" if table is None else f"dropped_{table}_rows"
        return sum(count for kind, count in self.totals().items() if kind.startswith(kinds))

    def totals(self) -> dict[str, int]:
        """Everything counted so far, by kind."""
        totals: dict[str, int] = {}
        for counts in list(self._counts.values()):
            for kind, count in counts.copy().items():
                totals[kind] = totals.get(kind, 0) + count
        return totals

    def include(self, counts: Mapping[str, int]) -> None:
        """Add what an earlier process could not tell itself; it is reported by the caller."""
        for kind, count in counts.items():
            self.count(kind, count)
            self._reported[kind] = self._reported.get(kind, 0) + count

    def unreported(self) -> dict[str, int]:
        """What the recording does not tell yet, by kind."""
        return {
            kind: count - self._reported.get(kind, 0)
            for kind, count in self.totals().items()
            if count > self._reported.get(kind, 0)
        }

    def due(self) -> bool:
        """Whether the recording should be told now: at once, and later ever more rarely."""
        return time.monotonic() >= self._next_report and bool(self.unreported())

    def report(self) -> dict[str, int]:
        """What the recording does not tell yet; counts as told from now on."""
        new = self.unreported()
        for kind, count in new.items():
            self._reported[kind] = self._reported.get(kind, 0) + count
        self._next_report = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return new
