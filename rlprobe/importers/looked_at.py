"""What became of each file of a directory: read, no log, not readable, or not looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlprobe.errors import EmptyRunError, InputError, UnknownFormatError
from rlprobe.importers.directory import MOST_FILES, Listing
from rlprobe.numbers import plural
from rlprobe.values import Problem

SAID_TWICE = "{} tells the same run as {}: not read once more"
_NAMED = 5  # files of one kind that are named, the others are counted
_MOST_PROBLEMS = 20


@dataclass
class LookedAt:
    """The account of one directory.

    Attributes:
        read: how many files were read, by format.
        empty: files that hold no metrics.
        failed: files that look like a log, or like metrics, and could not be read; and why.
        said: what else is to be said of single files.
    """

    root: Path
    read: Counter[str] = field(default_factory=Counter)
    empty: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, InputError]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def refuse(self, path: Path, error: InputError) -> None:
        """Take a file that gave no run."""
        telling = isinstance(error, UnknownFormatError) and error.telling
        if isinstance(error, UnknownFormatError | EmptyRunError) and not telling:
            self.empty.append(path)
        else:
            self.failed.append((path, error))

    def say_twice(self, path: Path, other: Path) -> None:
        """Say that one file tells what another tells."""
        self.said.append(SAID_TWICE.format(self._name(path), self._name(other)))

    def take(self, *paths: Path) -> None:
        """What was found to hold nothing tells something after all, beside another file."""
        self.empty = [path for path in self.empty if path not in paths]

    def problems(self) -> list[Problem]:
        """Files that look like logs and could not be read."""
        shown = [Problem(str(path), str(error)) for path, error in self.failed[:_MOST_PROBLEMS]]
        more = len(self.failed) - len(shown)
        told = f"{plural(more, 'more file')} could not be read"
        return [*shown, *([Problem(str(self.root), told)] if more else [])]

    def notes(self, listing: Listing) -> list[str]:
        """One line for each kind of file that is in no run."""
        return [*self.said, *(f"not read: {part}" for part in self._left_out(listing))]

    def whole(self, listing: Listing) -> str:
        """What lies there where nothing was read, in one sentence; empty if nothing does."""
        failed = [f"{self._name(path)} ({error})" for path, error in self.failed[:_NAMED]]
        more = len(self.failed) - len(failed)
        parts = [f"{said}" for said in failed] + ([f"{more:,} more that failed"] if more else [])
        return "; ".join([*parts, *self._left_out(listing)])

    def _left_out(self, listing: Listing) -> list[str]:
        parts = []
        if self.empty:
            parts.append(f"{self._files(self.empty)}: no metrics in it")
        if listing.archives:
            parts.append(f"{self._files(listing.archives)}: packed; give it by itself")
        if listing.notebooks and self.read.total() and "notebook" not in self.read:
            parts.append(f"{self._files(listing.notebooks)}: a notebook; give it by itself")
        if listing.passed:
            parts.append(f"{_counted(listing.passed)}: by the name")
        if listing.cut:
            parts.append(f"all after the first {MOST_FILES:,} files")
        return parts

    def _files(self, paths: Sequence[Path]) -> str:
        named = ", ".join(self._name(path) for path in paths[:_NAMED])
        more = len(paths) - _NAMED
        return f"{named} and {plural(more, 'other file')}" if more > 0 else named

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def beside(recordings: Sequence[Path], root: Path) -> str:
    """Which files that may be logs lie beside recordings, and are not read; empty if none do."""
    logs = [] if root in recordings else Listing(root, without=recordings).logs
    if not logs:
        return ""
    named = ", ".join(path.relative_to(root).as_posix() for path in logs[:_NAMED])
    more = f" and {plural(len(logs) - _NAMED, 'other file')}" if len(logs) > _NAMED else ""
    return f"not looked at: {named}{more}, beside recordings; give a log by itself"


def _counted(kinds: Counter[str]) -> str:
    shown = kinds.most_common(_NAMED)
    more = kinds.total() - sum(count for _, count in shown)
    parts = [name if count == 1 else f"{count:,} {name}" for name, count in shown]
    return ", ".join([*parts, *([f"{more:,} others"] if more else [])])
