"""What the Python processes below the command left in the status folder.

`python-<pid>.json` is what `autoattach/sitecustomize.py` says of a process; `attached-<pid>` holds
the run directories of one that records itself; `sources-<pid>` the calls that it records, each with
the directory; `helper-<pid>` is one that logs, and was started by one that records; `failed-<pid>`
tells what a tap could not do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rlprobe
from rlprobe.commands import unreached
from rlprobe.numbers import plural

_MOST_REMARKS = 5
_SHOWN = 80  # characters of a command


def attached(status: Path, run_dir: Path) -> bool:
    """Whether a process records into this recording, or one of its trainers beside it.

    A helper that records elsewhere says nothing of the training.
    """
    return any(True for _ in _of_training(status, run_dir))


def beside(status: Path, run_dir: Path) -> list[Path]:
    """The directories of further trainings, beside that of the first."""
    first = os.path.realpath(run_dir)
    return [Path(place) for place in dict.fromkeys(_of_training(status, run_dir)) if place != first]


def _of_training(status: Path, run_dir: Path) -> Iterator[str]:
    own = re.compile(re.escape(os.path.realpath(run_dir)) + r"(-\d+)?")
    places = map(os.path.realpath, run_dirs(status))
    return (place for place in places if own.fullmatch(place))


def run_dirs(status: Path) -> list[str]:
    """The run directories of processes that record themselves."""
    return list(_lines(status, "attached"))


def sources(status: Path) -> dict[str, list[str]]:
    """The calls that processes record, by run directory."""
    calls: dict[str, list[str]] = {}
    for line in _lines(status, "sources"):
        source, tab, place = line.partition("\t")
        if tab and source not in calls.setdefault(place, []):
            calls[place].append(source)
    return calls


def remarks(status: Path) -> list[str]:
    """What processes of the command could not record, or were not to, in words."""
    helpers = list(_lines(status, "helper"))
    failed = dict.fromkeys(_lines(status, "failed"))
    notes = [f"could not record {text}" for text in itertools.islice(failed, _MOST_REMARKS)]
    if helpers:
        named = helpers[0].partition(" ")[2][:_SHOWN]
        notes.append(
            f"{plural(len(helpers), 'process', 'processes')} that a recorded one started logged "
            f"metrics of their own, which are not recorded: '{named}'"
        )
    return notes


def _lines(status: Path, what: str) -> Iterator[str]:
    for path in sorted(status.glob(f"{what}-*")):
        with contextlib.suppress(OSError, ValueError):
            yield from path.read_text(encoding="utf-8").splitlines()


def why_outside(status: Path, command: Sequence[str] = ()) -> tuple[str, str]:
    """Why no process records itself, and what to do about it (or an empty string).

    Args:
        status: where processes left word.
        command: whose words tell more, where none did.
    """
    pythons = _pythons(status)
    if not pythons:
        no_python = "the command starts no Python that could be recorded from the inside"
        return unreached.why(command) or no_python, ""
    failed = next((entry for entry in pythons if entry.get("error")), None)
    if failed is None:
        return "no Hugging Face Trainer was trained and no known tracker called", ""
    python, reason = str(failed.get("executable")), failed["error"]
    if failed.get("foreign"):
        reason = f"the rlprobe there is another program ({_described(Path(failed['foreign']))})"
    return f"cannot record inside {python}: {reason}", _remedy(python, failed)


def _pythons(status: Path) -> list[dict[str, Any]]:
    pythons = []
    for path in sorted(status.glob("python-*.json")):
        with contextlib.suppress(OSError, ValueError):
            pythons.append(json.loads(path.read_text(encoding="utf-8")))
    return pythons


def _described(place: Path) -> str:
    """Version and place of a program that is not ours; the version only where pip wrote it down."""
    infos = sorted(place.parent.glob("rlprobe-*.dist-info"))
    version = infos[0].name.removesuffix(".dist-info").partition("-")[2] if infos else ""
    return f"{version} in {place}" if version else str(place)


def _remedy(python: str, failed: dict[str, Any]) -> str:
    """How to get this rlprobe there; the package index holds another one of that name."""
    source = Path(rlprobe.__file__).parents[1]
    if not (failed.get("foreign") or failed.get("missing")):
        return ""
    if not (source / "pyproject.toml").is_file():
        return f". To record from the inside, install this rlprobe ({rlprobe.__version__}) there"
    return f". To record from the inside: {python} -m pip install {shlex.quote(str(source))}"
