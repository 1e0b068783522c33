"""Programs that run another program as it is, in the same environment or a changed one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlprobe import environment
from rlprobe.commands import options
from rlprobe.commands.options import one_each
from rlprobe.commands.starts import Surroundings


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the words of a wrapper are read.

    Attributes:
        takes: words that follow its options.
        own: words of its own between its options and the command.
        subcommands: words after which the command comes; empty where it follows at once.
    """

    takes: dict[str, int] = field(default_factory=dict)
    own: int = 0
    subcommands: tuple[str, ...] = ()


_PLAIN = Wrapper()
WRAPPERS: dict[str, Wrapper] = {
    **dict.fromkeys(("nohup", "setsid", "exec", "command", "builtin", "catchsegv"), _PLAIN),
    **dict.fromkeys(("unbuffer", "caffeinate", "chronic", "dumb-init", "winpty"), _PLAIN),
    "time": Wrapper(one_each("-f", "--format", "-o", "--output")),
    "nice": Wrapper(one_each("-n", "--adjustment")),
    "ionice": Wrapper(one_each("-c", "--class", "-n", "--classdata")),
    "stdbuf": Wrapper(one_each("-i", "--input", "-o", "--output", "-e", "--error")),
    "timeout": Wrapper(one_each("-k", "--kill-after", "-s", "--signal"), own=1),
    "taskset": Wrapper(own=1),
    "chrt": Wrapper(one_each("-T", "-P", "-D"), own=1),
    "numactl": Wrapper(
        one_each("-m", "--membind", "-N", "--cpunodebind", "-C", "--physcpubind", "-i", "-p")
    ),
    "prlimit": Wrapper(),
    "flock": Wrapper(one_each("-w", "--timeout", "-E"), own=1),
    "xvfb-run": Wrapper(one_each("-n", "--server-num", "-s", "--server-args", "-e", "-f", "-w")),
    "tini": Wrapper(one_each("-p", "-e")),
    "strace": Wrapper(one_each("-e", "-o", "-s", "-p", "-E")),
    "nsys": Wrapper(one_each("-o", "--output", "-t", "--trace"), subcommands=("profile", "launch")),
    "py-spy": Wrapper(
        one_each("-o", "--output", "-r", "--rate", "-d", "-f", "--format"), subcommands=("record",)
    ),
    "dotenv": Wrapper(one_each("-f", "--file"), subcommands=("run",)),
    "direnv": Wrapper(own=1, subcommands=("exec",)),
}
_ENV = one_each("-u", "--unset", "-C", "--chdir", "-S", "--split-string")
_SUDO = one_each("-u", "-g", "-C", "-h", "-p", "-r", "-t", "-T", "-D", "--user", "--group")
_OURS = ("PYTHONPATH", environment.RUN, environment.STATUS, environment.LAUNCH, environment.TAPS)


def unwrapped(
    name: str, words: Sequence[str], around: Surroundings
) -> tuple[list[str], Surroundings] | None:
    """The command that a wrapper runs, and where; None if it is no wrapper.

    Args:
        name: the program's own name.
        words: its arguments.
    """
    if name == "env":
        return _env(words, around)
    if name in ("sudo", "doas"):
        return _sudo(name, words, around)
    wrapper = WRAPPERS.get(name)
    if wrapper is None:
        return None
    _, rest = options.leading(words, wrapper.takes)
    if wrapper.subcommands:
        if not rest or rest[0] not in wrapper.subcommands:
            return None
        _, rest = options.leading(rest[1:], wrapper.takes)
    rest = rest[wrapper.own :]
    return (rest[1:] if rest[:1] == ["--"] else rest), around


def assignment(word: str) -> tuple[str, str] | None:
    """The name and value of `NAME=value`; None for any other word."""
    name, equals, value = word.partition("=")
    return (name, value) if equals and name.isidentifier() and name.isascii() else None


def _env(words: Sequence[str], around: Surroundings) -> tuple[list[str], Surroundings]:
    given, rest = options.leading(words, _ENV)
    environ = dict(around.environ)
    directory = around.directory
    if rest[:1] == ["-"]:
        given, rest = [*given, ("-i", "")], rest[1:]
    for option, value in given:
        if option in ("-i", "--ignore-environment"):
            environ = {}
        elif option in ("-u", "--unset"):
            environ.pop(value, None)
        elif option in ("-C", "--chdir"):
            directory = directory / value
        elif option in ("-S", "--split-string"):
            rest = [*_split(value), *rest]
    while rest and (pair := assignment(rest[0])):
        environ[pair[0]] = pair[1]
        rest = rest[1:]
    changed = any(environ.get(key) != around.environ.get(key) for key in _OURS)
    changes = (*around.changes, "`env` takes PYTHONPATH away") if changed else around.changes
    return rest, replace(around, environ=environ, directory=Path(directory), changes=changes)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _sudo(name: str, words: Sequence[str], around: Surroundings) -> tuple[list[str], Surroundings]:
    """Both drop PYTHONPATH, whatever else they are told to keep."""
    _, rest = options.leading(words, _SUDO)
    environ = {key: value for key, value in around.environ.items() if key not in _OURS}
    while rest and (pair := assignment(rest[0])):
        environ[pair[0]] = pair[1]
        rest = rest[1:]
    changes = (*around.changes, f"`{name}` drops it: put `{name}` before `rlprobe record`")
    return rest, replace(around, environ=environ, changes=changes)
