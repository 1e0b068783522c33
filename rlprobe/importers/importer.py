"""What an importer is."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rlprobe.store.run import Run


class Importer(Protocol):
    """Reads one foreign format.

    Attributes:
        name: the format, as reports name it.
        description: one sentence for people.
    """

    name: str
    description: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file looks like this format, from its first bytes."""
        ...

    def read(self, path: Path) -> Run:
        """The run in the file.

        Raises:
            InputError: it is not readable as this format after all.
        """
        ...
