"""A Python that a command would start, asked what is there: nothing of it is imported."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlprobe import environment
from rlprobe.commands.environments import has_dependencies, unready
from rlprobe.commands.starts import Start

SECONDS = 30.0  # for an answer; `conda run` alone takes several
_PROBE = Path(__file__).with_name("probe.py")
_MOST_OUTPUT = 4_000_000
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Installed:
    """A package as a Python would find it.

    Attributes:
        origin: its file.
        version: what its distribution says; empty where there is none.
    """

    origin: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Python says of itself.

    Attributes:
        problem: why it said nothing; the rest is empty then.
        hook: what the hook of `record` left behind in it; None where it did not get in.
        customize: files of the `sitecustomize` and `usercustomize` that ran.
        path: where it looks for modules.
    """

    problem: str = ""
    executable: str = ""
    version: tuple[int, ...] = ()
    frozen: bool = False
    hook: Mapping[str, Any] | None = None
    customize: Mapping[str, str | None] | None = None
    packages: Mapping[str, Installed] | None = None
    path: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """`3.11.7`."""
        return ".".join(map(str, self.version)) if any(self.version) else "of before 3.6"

    def has(self, name: str) -> Installed | None:
        """A package, if it is there."""
        return (self.packages or {}).get(name)


def ask(start: Start, beside: Path, packages: Mapping[str, Sequence[str]]) -> Answer:
    """Ask the Python of a start; it is waited for half a minute.

    Args:
        start: whose Python is asked, in the environment that the command would give it.
        beside: the folder of the script, in which Python looks for modules first.
        packages: import name -> names of the distributions it may come from.
    """
    around = start.around
    interpreter, problem = _interpreter(start)
    if problem:
        return Answer(problem=problem)
    mark = f"rlprobe-{secrets.token_hex(8)}:"
    status = around.environ.get(environment.STATUS, "")
    asked = json.dumps({"beside": str(beside), "packages": packages, "status": status})
    words = [*interpreter, str(_PROBE), mark, asked]  # `conda run` takes no argument of two lines
    code, output, errors = _run(words, around.environ, around.outside or around.directory)
    _, _, reply = output.partition(mark)
    if not reply and "SyntaxError" in errors:
        return Answer(executable=start.interpreter[0], version=(0,))
    if not reply:
        return Answer(problem=_why(code, errors))
    try:
        return _answer(json.loads(reply.split("\n")[0]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Answer(problem="its answer makes no sense")


def _interpreter(start: Start) -> tuple[Sequence[str], str]:
    """The words that start a Python, and why they are not to be used."""
    around = start.around
    runner = around.runner
    script = around.directory / start.target.text if start.target.kind == "script" else None
    if script is None or not (runner and has_dependencies(script)):
        return start.interpreter, unready(runner, around)
    find = [runner[0], "python", "find", "--offline", "--script", str(script)]
    python = Path(_run(find, around.environ, around.outside or around.directory)[1].strip())
    if not any(part.startswith("environments") for part in python.parts):  # of the cache of uv
        made = f"uv would make an environment for '{start.target.text}' first"
        return (), f"{made}: ask again after `uv sync --script {start.target.text}`"
    return [str(python), *start.interpreter[len(runner) + 1 :]], ""


def _run(words: list[str], environ: Mapping[str, str], directory: Path) -> tuple[int, str, str]:
    """Exit code, output and errors; a command that takes too long is ended with what it started."""
    try:
        process = subprocess.Popen(
            words,
            env=dict(environ),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return -1, "", f"{getattr(error, 'strerror', None) or error}"
    with process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -1, "", f"no answer within {SECONDS:.0f} s"
    text = output[-_MOST_OUTPUT:].decode("utf-8", "replace")
    return process.returncode, text, errors[-_MOST_OUTPUT:].decode("utf-8", "replace")


def _why(code: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = lines[-1:] if "Traceback" in errors else lines[:1]
    reason = "".join(telling)[:_SHOWN]
    return reason if code == -1 else f"exit code {code}" + (f": {reason}" if reason else "")


def _answer(reply: dict[str, Any]) -> Answer:
    return Answer(
        executable=str(reply["executable"]),
        version=tuple(int(part) for part in reply["version"]),
        frozen=bool(reply["frozen"]),
        hook=reply["hook"] if isinstance(reply["hook"], dict) else None,
        customize=reply["customize"],
        packages={
            str(name): Installed(str(item["origin"]), str(item["version"] or ""))
            for name, item in reply["packages"].items()
        },
        path=tuple(map(str, reply["path"])),
    )
