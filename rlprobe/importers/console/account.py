"""What looks like metrics in a line and was not understood: counted, and a few quoted."""

from __future__ import annotations

import re

from rlprobe import _visible, naming
from rlprobe.importers.console import line as console_line
from rlprobe.importers.console.pairs import pairs_in, words_beside
from rlprobe.importers.console.prefixes import ANSI
from rlprobe.importers.faults import FAULT, described
from rlprobe.importers.unread import UnreadCount
from rlprobe.numbers import plural
from rlprobe.values import Unread

_QUOTED = 200  # characters
_IN_NOTE = 60  # characters of these
_LONGEST = 4_000
_HINT = re.compile(r"[\w)\]%'\"]\s{0,3}[:=|]\s{0,3}(?:[-+]?\.?\d|nan|-?inf)", re.IGNORECASE)
_FEW_WORDS = 4


class Account:
    """Counts the lines that hold metrics.

    Attributes:
        read: those that were understood.
        repeats: rows that said again what the one before said.
        missed: counts those that were not.
        samples: numbers that came several times between two rows: of single samples, left out.
    """

    def __init__(self) -> None:
        self.read = self.repeats = 0
        self.missed = UnreadCount("line")
        self.samples = 0
        self._sample = (0, "")
        self._failures = 0
        self._failure = ""

    def miss(self, number: int, text: str, count: int = 1) -> None:
        """Lines of metrics that were not understood, or only in part, and the first of them."""
        self.missed.add(number, _quoted(text), count)

    def failed(self, number: int, text: str, error: Exception) -> None:
        """A line that could not be read because of a fault of ours."""
        self.miss(number, text)
        if not self._failures:
            self._failure = f"line {number}: {described(error)}"
        self._failures += 1

    def sampled(self, number: int, text: str, count: int) -> None:
        """Lines with numbers of single samples, and the first of them."""
        if not self.samples:
            self._sample = (number, _quoted(text))
        self.samples += count

    def notes(self) -> list[str]:
        """What was left out on purpose, in words."""
        notes: list[str] = []
        if self.repeats:
            notes.append(f"{plural(self.repeats, 'row')} said again: counted once")
        if self._failures:
            notes.append(
                f"{plural(self._failures, 'line')} left out because of {FAULT}: {self._failure}"
            )
        if self.samples:
            number, text = self._sample
            notes.append(
                f"{self.samples:,} lines with numbers that came several times between rows (single "
                f'samples) left out, e.g. line {number}: "{_visible.start(text, _IN_NOTE)}"'
            )
        return notes

    def unread(self) -> list[Unread]:
        """What was missed, if anything."""
        return self.missed.unread(self.read)


def _quoted(text: str) -> str:
    return (ANSI.sub("", text) if "\x1b" in text else text).strip()[:_QUOTED]


def looks_like_metrics(text: str) -> bool:
    """Whether a line has a number under a name that is known as a measurement, and is no prose."""
    if len(text) > _LONGEST or not _HINT.search(text):
        return False
    pairs = [pair for pair in pairs_in(text) if pair.of is None]
    names = [pair for pair in pairs if not (pair.blank and pair.key.lower() in naming.prose())]
    known = [
        pair for pair in names if console_line.is_measurement(console_line.shortened(pair.key))
    ]
    return bool(known) and words_beside(text, pairs) <= _FEW_WORDS + len(pairs)
