"""Programs that choose a Python environment for a command: it is theirs to say which Python."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlprobe.commands import options
from rlprobe.commands.options import Options, one_each
from rlprobe.commands.starts import Surroundings


@dataclass(frozen=True, slots=True)
class Runner:
    """How the words of such a program are read.

    Attributes:
        subcommand: the word after which the command comes.
        takes: words that follow its options.
        asks: words that keep it from changing anything, put behind its own.
        environ: the same, as variables.
        scripts: whether `run x.py` means `python x.py`.
    """

    subcommand: str = "run"
    takes: dict[str, int] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    scripts: bool = False


_UV = one_each(
    *("--extra", "--no-extra", "--group", "--no-group", "--only-group", "--env-file", "--with"),
    *("-w", "--with-editable", "--with-requirements", "--package", "--python-platform"),
    *("--index", "--default-index", "-i", "--index-url", "--extra-index-url", "-f", "--find-links"),
    *("--index-strategy", "--keyring-provider", "-P", "--upgrade-package", "--resolution"),
    *("--prerelease", "--fork-strategy", "--exclude-newer", "--reinstall-package", "--link-mode"),
    *("-C", "--config-setting", "--cache-dir", "--refresh-package", "-p", "--python", "--color"),
    *("--directory", "--project", "--config-file", "--allow-insecure-host", "--no-build-package"),
)
_CONDA = one_each("-n", "--name", "-p", "--prefix", "--cwd")
_HEAD = 65_536  # bytes of a script
_CLOSED = {"UV_NO_SYNC": "1", "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
RUNNERS = {
    "uv": Runner(takes=_UV, asks=("--no-sync", "--offline"), environ=_CLOSED, scripts=True),
    "poetry": Runner(takes=one_each("-C", "--directory", "-P", "--project")),
    "pipenv": Runner(),
    "pdm": Runner(takes=one_each("-p", "--project", "--venv"), scripts=True),
    "hatch": Runner(takes=one_each("-e", "--env", "-p", "--project")),
    "rye": Runner(),
    "pixi": Runner(takes=one_each("-e", "--environment", "--manifest-path"), asks=("--frozen",)),
    **dict.fromkeys(("conda", "mamba", "micromamba"), Runner(takes=_CONDA)),
}


def entered(
    name: str, words: Sequence[str], around: Surroundings
) -> tuple[list[str], Surroundings] | None:
    """The command that runs in the environment, and where; None if nothing is run in one.

    Args:
        name: the program's own name.
        words: the program and its arguments.
    """
    runner = RUNNERS.get(name)
    if runner is None:
        return None
    first, rest = options.leading(words[1:], runner.takes)
    if rest[:1] != [runner.subcommand]:
        return None
    second, command = options.leading(rest[1:], runner.takes)
    prefix = words[: len(words) - len(command)]
    if runner.scripts:
        command = _as_python(second, command)
        prefix = [word for word in prefix if word not in ("-m", "--module", "-s", "--script")]
    prefix = [word for word in prefix if word != "--"]
    environ = {**around.environ, **runner.environ}
    given = [*first, *second]
    directory = options.value_of(given, "--directory", "--cwd", "-C") or ""
    return command, replace(
        around,
        runner=(*around.runner, *prefix, *runner.asks),
        outside=around.outside or around.directory,
        environ=environ,
        directory=around.directory / directory,
        remarks=(*around.remarks, *_remarks(name, given)),
    )


def _as_python(given: Options, command: list[str]) -> list[str]:
    """`uv run x.py`, `uv run -m x` and `uv run -` as the Python they start."""
    names = {name for name, _ in given}
    if names & {"-m", "--module"}:
        return ["python", "-m", *command]
    if names & {"-s", "--script"} or command[:1] == ["-"]:
        return ["python", *command]
    if command and command[0].endswith((".py", ".pyw")):
        return ["python", *command]
    return command


def _remarks(name: str, given: Options) -> tuple[str, ...]:
    live = {"--no-capture-output", "--live-stream", "-s"} & {option for option, _ in given}
    if name in ("conda", "mamba") and not live:
        return (f"{name} run shows what is printed at its end only: add --no-capture-output",)
    return ()


def has_dependencies(script: Path) -> bool:
    """Whether a script names its own dependencies, for which `uv run` makes an environment."""
    try:
        with script.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return re.search(rb"^# /// script\s*$", head, re.MULTILINE) is not None


def unready(runner: Sequence[str], around: Surroundings) -> str:
    """Why an environment is not asked: it would have to be made first; empty if it is there."""
    name = Path(runner[0]).name if runner else ""
    if name != "uv" or "--no-project" in runner or around.environ.get("UV_NO_PROJECT"):
        return ""
    project = next(
        (
            folder
            for folder in (around.directory, *around.directory.parents)
            if (folder / "pyproject.toml").is_file()
        ),
        None,
    )
    if project is None:
        return ""
    place = project / around.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")
    if place.is_dir() or "--active" in runner or not os.access(project, os.R_OK):
        return ""
    return f"uv would make the environment '{place}' first: ask again after `uv sync`"
