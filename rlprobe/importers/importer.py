"""What an importer is, and what it hands over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rlprobe.errors import EmptyRunError, InputError
from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import Source
from rlprobe.importers.steps import STEP_KEYS
from rlprobe.values import Event, Problem, Rollout, Unread

_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Told:
    """An event that stands between two rows: their steps and their launch tell its own.

    Attributes:
        row: the number of the row before it in its reading, -1 before the first.
        event: its step is what it names itself, None where it names none.
    """

    row: int
    event: Event


@dataclass
class Reading:
    """What one file holds; several readings may become one run.

    Attributes:
        rows: global metrics, under the keys of the file.
        framework: where the format itself tells; else the keys decide.
        rank: the rank whose file this is, for files that hold one rank's own metrics.
        run: distinguishes several runs in one file (an mlflow store); empty otherwise.
        step_key: the key that the rows are numbered by, where they are by one of their own.
        told: events that get their step from the rows around them.
        launches: numbers of rows with which a later launch of the run begins, as the log tells.
        notes: assumptions made while reading.
        unread: what looks like metrics in the file and was not understood.
    """

    rows: RowTable = field(default_factory=RowTable)
    framework: str | None = None
    algorithm: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    run: str = ""
    events: Sequence[Event] = ()
    told: Sequence[Told] = ()
    launches: Sequence[int] = ()
    rollouts: Sequence[Rollout] = ()
    step_key: str | None = None
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    unread: Sequence[Unread] = ()


class Importer(ABC):
    """Reads one foreign format. A class of this kind in a module of a wing is all it takes.

    The class docstring is the format's page in the docs.

    Attributes:
        name: the format, as reports name it.
        description: a few words for people.
        priority: the lower is asked first. Those that know their files by a mark at the start come
            before those that know them by their shape.
        step_keys: where its rows have their step, the better first.
        folder: whether the files of one directory are parts of one run, in order of their names.
        rollouts: whether it holds rollouts, to be laid beside a log of metrics.
        final: whether its errors are the last word, where others would read the file as text.
        fallback: whether it takes what no other format knows: that it finds nothing tells nothing.
        whole_run: the name of a file that holds its whole run: other logs beside it tell the run
            once more, and of those in checkpoints the furthest counts.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    priority: ClassVar[int] = 50
    step_keys: ClassVar[tuple[str, ...]] = STEP_KEYS
    folder: ClassVar[bool] = False
    rollouts: ClassVar[bool] = False
    final: ClassVar[bool] = False
    fallback: ClassVar[bool] = False
    whole_run: ClassVar[str] = ""

    @abstractmethod
    def recognises(self, source: Source) -> bool:
        """Whether a file looks like this format, by its first bytes and its name."""

    @abstractmethod
    def read(self, source: Source) -> list[Reading]:
        """What the file holds.

        Raises:
            CutDocumentError: it is cut off; as text it may be read up to the cut.
            InputError: it is not readable as this format after all.
        """

    def claims(self, directory: Path) -> list[Path]:
        """The files of a directory that is read as a whole, the most telling first; [] if none."""
        return []

    def read_folder(self, directory: Path) -> list[Reading]:
        """What a directory holds whose files it claims; InputError if it cannot be read."""
        raise InputError(f"Couldn't read '{directory}' as {self.name}: it is a directory")


class FolderImporter(Importer):
    """Reads directories as a whole, and no single file: by `claims` and `read_folder`."""

    def recognises(self, source: Source) -> bool:
        """Never a single file."""
        return False

    def read(self, source: Source) -> list[Reading]:
        """Nothing: see `read_folder`."""
        raise EmptyRunError(f"Couldn't find metrics in '{source.path}'")


class CutDocumentError(InputError):
    """The document ends before its end; as text it may still be read up to the cut."""


class Complaints:
    """What could not be read in one file: the first few by name, the rest by number."""

    def __init__(self, source: Source, thing: str = "line") -> None:
        self._path, self._thing = str(source.path), thing
        self._problems: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._problems) + self._more

    def add(self, where: int, why: str) -> None:
        """One line that is left out, by its number."""
        self.say(f"{self._thing} {where} left out: {why}")

    def say(self, message: str) -> None:
        """Anything else about the file."""
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(Problem(self._path, message))
        else:
            self._more += 1

    def extend(self, messages: Iterable[str]) -> None:
        """Several messages."""
        for message in messages:
            self.say(message)

    def all(self) -> list[Problem]:
        """All of it, bounded."""
        if not self._more:
            return self._problems
        return [
            *self._problems,
            Problem(self._path, f"{self._more:,} more {self._thing}s left out"),
        ]
