"""The programs that a command starts, as far as its words tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["script", "module", "code", "stdin", "notebook", "nothing"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a Python runs.

    Attributes:
        kind: what `text` is; `nothing` for `python --version`.
        text: a path, the name of a module, or code.
        names: paths among its arguments that a console script may run in turn.
    """

    kind: Kind
    text: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the words of a command would run.

    Attributes:
        environ: the environment.
        directory: the working directory.
        runner: words before a program that choose its environment: `uv run`.
        outside: the working directory of the runner; None where there is none.
        ranks: processes that are started of it; None where the words do not tell.
        launcher: who starts them.
        where: the place of the words in a script of the shell: `run.sh, line 3`.
        output: where its output goes, if not to the terminal.
        apart: why the command runs out of our reach.
        remarks: what else is to be known of it.
        changes: who changed the environment, for who asks why the hook does not get in.
        depth: programs around it.
    """

    environ: Mapping[str, str]
    directory: Path
    runner: tuple[str, ...] = ()
    outside: Path | None = None
    ranks: int | None = 1
    launcher: str = ""
    where: str = ""
    output: str = ""
    apart: str = ""
    remarks: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A program that a command starts.

    Attributes:
        words: the program and its arguments.
        interpreter: the words that start its Python, options included; empty if it is none.
        target: what that Python runs.
        closed: the option of Python that keeps the hook out: `-I`, `-E` or `-S`.
        problem: why it cannot be started or looked into.
    """

    words: tuple[str, ...]
    around: Surroundings
    interpreter: tuple[str, ...] = ()
    target: Target = field(default_factory=lambda: Target("nothing"))
    closed: str = ""
    problem: str = ""
