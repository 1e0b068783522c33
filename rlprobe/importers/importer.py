"""What an importer is, and what it hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlprobe.importers.rows import RowTable
from rlprobe.importers.source import Source
from rlprobe.values import Event, Problem, Rollout


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

    The class docstring is the format's page in the docs.

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
