"""What is asked of which Python: each is asked once for the same packages."""

from __future__ import annotations

import os
from pathlib import Path

from rlprobe.commands.starts import Start
from rlprobe.doctor import packages
from rlprobe.doctor.imports import Look, Sources, resolved
from rlprobe.doctor.inside import DEPENDENCIES
from rlprobe.doctor.interpreter import Answer, ask
from rlprobe.integrations import autoattach

_MOST_ASKED = 8  # Pythons of one command


class Questions:
    """Puts questions about the starts of one command."""

    def __init__(self) -> None:
        self._answers: dict[object, Answer] = {}

    def put(self, start: Start) -> tuple[Sources, Answer]:
        """What stands in the code of a start, and what its Python says."""
        around = start.around
        given = around.environ.get("PYTHONPATH", "").split(os.pathsep)
        search = [Path(entry) for entry in given if entry and entry != str(autoattach.FOLDER)]
        sources = Look(around.directory, search).at(start.target)
        answer = self._ask(start, sources)
        if sources.missing and start.target.kind == "module" and answer.path:
            installed = Look(around.directory, [*search, *map(Path, answer.path)])
            again = installed.at_module_alone(start.target.text)
            if not again.missing:
                return again, self._ask(start, again)
        return sources, answer

    def _ask(self, start: Start, sources: Sources) -> Answer:
        around = start.around
        beside = around.directory
        if start.target.kind == "script":
            beside = resolved(beside / start.target.text).parent
        asked = _asked_for(sources)
        environ = tuple(sorted(around.environ.items()))
        key = (start.interpreter, beside, tuple(asked), environ)
        if key not in self._answers:
            if len(self._answers) >= _MOST_ASKED:
                return Answer(problem="more Pythons in one command than are asked")
            self._answers[key] = ask(start, beside, asked)
        return self._answers[key]


def _asked_for(sources: Sources) -> dict[str, list[str]]:
    """Import name -> names of the distributions it may come from."""
    asked = {name: [name] for name in (*sources.roots(), "rlprobe", *DEPENDENCIES)}
    for package in packages.PACKAGES:
        asked |= {name: [name] for name in package.needs}
        asked |= {root: list(package.distributions) for root in package.roots}
    return dict(sorted(asked.items()))
