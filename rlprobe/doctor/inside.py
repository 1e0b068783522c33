"""Whether anything is recorded inside a Python, and what stands in the way."""

from __future__ import annotations

import shlex
from pathlib import Path

import rlprobe
from rlprobe.commands.starts import Start
from rlprobe.doctor.interpreter import Answer

OLDEST = (3, 11)  # that runs this rlprobe
_OLDEST_HOOKED = (3, 8)  # that runs the hook alone
DEPENDENCIES = ("numpy", "pyarrow")  # of the recorder


class Inside:
    """What an answer means for recording from inside.

    Attributes:
        obstacle: why nothing is recorded from inside; empty if it is.
        lacks: why the recorder does not run there, so that calls are recorded by way of a file.
        remedies: what to do about the obstacle, or else what the recorder lacks.
        is_foreign: whether the rlprobe there is another program.
    """

    def __init__(self, start: Start, answer: Answer) -> None:
        self.lacks = ""
        self.is_foreign = False
        self.remedies: list[str] = []
        self.obstacle = self._of_the_hook(start, answer)
        if not self.obstacle:
            self._look_for_rlprobe(answer)

    def _of_the_hook(self, start: Start, answer: Answer) -> str:
        if answer.frozen:
            return "it is a frozen program, no hook gets in"
        if start.closed:
            self.remedies.append(f"leave `{start.closed.split()[0]}` out")
            return f"{start.closed}, so the hook does not get in"
        if not any(answer.version):
            return "it is a Python of before 3.6"
        if answer.version < _OLDEST_HOOKED:
            return f"Python {answer.python} is older than 3.8"
        if answer.hook is None:
            why = "; ".join(start.around.changes) or "PYTHONPATH did not reach this Python"
            return f"the hook does not get in: {why}"
        return ""

    def _look_for_rlprobe(self, answer: Answer) -> None:
        there = answer.has("rlprobe")
        if answer.version < OLDEST:
            self.lacks = f"Python {answer.python} is older than 3.11"
            return
        if there is None:
            self.lacks = f"rlprobe is not in {answer.executable}"
        elif not _is_ours(Path(there.origin)):
            self.is_foreign = True
            self.lacks = (
                f"the rlprobe there is another program ({_described(there.origin, answer)})"
            )
        else:
            absent = [name for name in DEPENDENCIES if not answer.has(name)]
            self.lacks = f"rlprobe is there without {' and '.join(absent)}" if absent else ""
        if self.lacks:
            self.remedies.append(_installation(answer.executable))


def _is_ours(origin: Path) -> bool:
    """Whether a package of our name is this program, or a copy of it."""
    return (origin.parent / "integrations" / "autoattach" / "sitecustomize.py").is_file()


def _described(origin: str, answer: Answer) -> str:
    there = answer.has("rlprobe")
    version = there.version if there is not None else ""
    place = Path(origin)
    shown = place.parent if place.name == "__init__.py" else place
    return f"{version} in {shown}" if version else str(shown)


def _installation(python: str) -> str:
    """How to get this rlprobe there; the package index holds another one of that name."""
    source = Path(rlprobe.__file__).parents[1]
    if (source / "pyproject.toml").is_file():
        return f"{shlex.quote(python)} -m pip install {shlex.quote(str(source))}"
    return f"install this rlprobe ({rlprobe.__version__}) in {python}"
