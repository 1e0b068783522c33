"""What an importer is, and what it hands over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import Source
from rlprobe.values import Event, Problem, Rollout

_MOST_PROBLEMS = 20


@dataclass
class Reading:
    """What one file holds; several readings may become one run.

    Attributes:
        rows: global metrics, under the keys of the file.
        framework: where the format itself tells; else the keys decide.
        rank: the rank whose file this is, for files that hold one rank's own metrics.
        run: distinguishes several runs in one file (an mlflow store); empty otherwise.
        notes: assumptions made while reading.
    """

    rows: RowTable = field(default_factory=RowTable)
    framework: str | None = None
    algorithm: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    run: str = ""
    events: Sequence[Event] = ()
    rollouts: Sequence[Rollout] = ()
    notes: Sequence[str] = ()
    problems: Sequence[Problem] = ()


class Importer(Protocol):
    """Reads one foreign format.

    The class docstring is the format's page in the docs. An importer whose format spreads one run
    over several files of one directory (TensorBoard's event files) says so with a class attribute
    `one_run_per_directory = True`: its readings are then assembled in order of their names.

    Attributes:
        name: the format, as reports name it.
        description: one sentence for people.
    """

    name: str
    description: str

    def recognises(self, source: Source) -> bool:
        """Whether a file looks like this format, by its first bytes and its name."""
        ...

    def read(self, source: Source) -> list[Reading]:
        """What the file holds.

        Raises:
            InputError: it is not readable as this format after all.
        """
        ...


class Complaints:
    """What could not be read in one file: the first few by name, the rest by number."""

    def __init__(self, source: Source, thing: str = "line") -> None:
        self._path, self._thing = str(source.path), thing
        self._said: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._said) + self._more

    def add(self, where: int, why: str) -> None:
        """One line that is left out, by its number."""
        self.say(f"{self._thing} {where} left out: {why}")

    def say(self, message: str) -> None:
        """Anything else about the file."""
        if len(self._said) < _MOST_PROBLEMS:
            self._said.append(Problem(self._path, message))
        else:
            self._more += 1

    def extend(self, messages: Iterable[str]) -> None:
        """Several messages."""
        for message in messages:
            self.say(message)

    def all(self) -> list[Problem]:
        """Everything said, bounded."""
        if not self._more:
            return self._said
        return [*self._said, Problem(self._path, f"{self._more:,} more {self._thing}s left out")]
