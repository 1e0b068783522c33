"""A script of the shell, read and not run: its commands, each in the surroundings it would have.

Branches and loops are followed once, as if every one of them were taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlprobe.commands.shell_words import ShellText, SimpleCommand
from rlprobe.commands.starts import Surroundings
from rlprobe.commands.wrappers import assignment

MOST_TEXT = 1_000_000  # characters of a script
_MOST_COMMANDS = 5_000
_MOST_DEPTH = 5  # of scripts that read scripts
_CONTROL = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done", "esac"}
)
_DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly", "set"})
_STANDARD = ("/dev/stdout", "/dev/stderr", "/dev/tty", "&1", "&2", "1", "2")
_DEFAULT = re.compile(r"(\w+):?[-=](.*)", re.DOTALL)
_OWN_FOLDER = re.compile(r"dirname.*(\$0|BASH_SOURCE)", re.DOTALL)
_FINDS = re.compile(r"\((?:which|command -v|type -p)\s+(\S+)\)")

Found = tuple[list[str], Surroundings, str | None]  # words, where, a here-document


class Script:
    """One text of the shell.

    Args:
        text: what the shell would run.
        name: what it is called in words to people; empty for `sh -c`.
        folder: where it lies.
        arguments: `$1` and on.

    Attributes:
        around: where the next command would run.
        cut: whether more stands in it than was looked at.
        unfollowed: commands that may change the environment and were not followed.
    """

    def __init__(
        self,
        text: str,
        around: Surroundings,
        *,
        name: str = "",
        folder: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.around = around
        self.cut = len(text) > MOST_TEXT
        self.unfollowed: list[str] = []
        self._text = text[:MOST_TEXT]
        self._name, self._folder, self._arguments = name, folder, list(arguments)
        self._variables: dict[str, str] = {}
        self._nested: list[Surroundings] = []

    def commands(self) -> Iterator[Found]:
        """The words of each command that is no word of the shell itself."""
        for number, command in enumerate(ShellText(self._text, self._expand).commands()):
            if number >= _MOST_COMMANDS:
                self.cut = True
                return
            yield from self._read(command)
            if command.end == "(":
                self._nested.append(self.around)
            elif command.end == ")" and self._nested:
                self.around = self._nested.pop()

    def _read(self, command: SimpleCommand) -> Iterator[Found]:
        words = command.words
        while words and words[0] in _CONTROL:
            words = words[1:]
        if words[:1] == ["for"] and words[2:3] == ["in"] and words[3:]:
            self._variables[words[1]] = words[3]
            return
        own: dict[str, str] = {}
        while words and (pair := assignment(words[0])):
            own[pair[0]] = pair[1]
            words = words[1:]
        if not words:
            self._assign(own)
            return
        around = self._changed(own)
        where = f"{self._name}, line {command.line}" if self._name else self.around.where
        output = _output(command.redirections) or self.around.output
        around = replace(around, where=where, output=output)
        if not self._is_followed(words, around, command):
            yield from self._of_another(words, around, command)

    def _assign(self, own: dict[str, str]) -> None:
        exported = {name: value for name, value in own.items() if name in self.around.environ}
        self._variables |= own
        self.around = self._changed(exported)

    def _changed(self, own: dict[str, str]) -> Surroundings:
        """The surroundings with variables of the environment set."""
        if not own:
            return self.around
        before = self.around.environ.get("PYTHONPATH")
        changes = self.around.changes
        if "PYTHONPATH" in own and (not before or before not in own["PYTHONPATH"]):
            place = self._name or "the command"
            changes = (*changes, f"{place} sets PYTHONPATH anew: append `:$PYTHONPATH` there")
        environ = {**self.around.environ, **own}
        return replace(self.around, environ=environ, changes=changes)

    # --- words of the shell ---------------------------------------------------------------------

    def _is_followed(
        self, words: Sequence[str], around: Surroundings, command: SimpleCommand
    ) -> bool:
        """Whether a command is one of the shell itself, and what it changes."""
        name, *rest = words
        if name in _DECLARES:
            self._declare(rest)
        elif name == "unset":
            environ = {k: v for k, v in self.around.environ.items() if k not in rest}
            self.around = replace(self.around, environ=environ)
            self._variables |= dict.fromkeys(rest, "")
        elif name in ("cd", "pushd"):
            folder = next((word for word in rest if not word.startswith("-")), "")
            self.around = replace(self.around, directory=self.around.directory / folder)
        elif name == "exec" and not rest:
            self.around = replace(self.around, output=_output(command.redirections))
        elif name in ("conda", "mamba", "micromamba") and rest[:1] == ["activate"]:
            named = rest[1:] or ["base"]
            runner = (name, "run", "-p" if "/" in named[0] else "-n", named[0])
            outside = self.around.directory
            self.around = replace(self.around, runner=runner, outside=outside)
        elif name == "module" and rest[:1] in (["load"], ["switch"], ["use"]):
            self.unfollowed.append(" ".join(words[:3]))
        else:
            return False
        return True

    def _declare(self, words: Sequence[str]) -> None:
        exported: dict[str, str] = {}
        for word in words:
            if pair := assignment(word):
                exported[pair[0]] = pair[1]
            elif word in self._variables:
                exported[word] = self._variables[word]
        self._variables |= exported
        self.around = self._changed(exported)

    def _of_another(
        self, words: Sequence[str], around: Surroundings, command: SimpleCommand
    ) -> Iterator[Found]:
        """Texts that this one reads (`source`, `eval`), else the command as it is."""
        if words[0] in ("source", ".") and words[1:]:
            yield from self._sourced(around.directory / words[1], words[2:])
        elif words[0] == "eval":
            yield from self._inner(" ".join(words[1:]), self._name, self._folder, ())
        else:
            yield list(words), around, command.document

    def _sourced(self, path: Path, arguments: Sequence[str]) -> Iterator[Found]:
        if path.name == "activate" and path.is_file():
            folders = [str(path.parent), self.around.environ.get("PATH", "")]
            activated = {"VIRTUAL_ENV": str(path.parent.parent), "PATH": ":".join(folders)}
            self.around = replace(
                self.around, environ={**self.around.environ, **activated}, runner=()
            )
            return
        text = read_text(path)
        if text is None:
            self.unfollowed.append(f"source {path}")
            return
        yield from self._inner(text, path.name, path.parent, arguments)

    def _inner(
        self, text: str, name: str, folder: Path | None, arguments: Sequence[str]
    ) -> Iterator[Found]:
        if self.around.depth >= _MOST_DEPTH:
            self.cut = True
            return
        deeper = replace(self.around, depth=self.around.depth + 1)
        inner = Script(text, deeper, name=name, folder=folder, arguments=arguments)
        inner._variables = self._variables
        yield from inner.commands()
        self.around = replace(inner.around, depth=self.around.depth)
        self.cut |= inner.cut
        self.unfollowed += inner.unfollowed

    # --- variables ------------------------------------------------------------------------------

    def _expand(self, name: str) -> str | None:
        if name in ("@", "*"):
            return " ".join(self._arguments)
        if name.isdigit():
            own = str((self._folder or Path()) / (self._name or "sh"))
            return next(iter([own, *self._arguments][int(name) :]), "")
        if name.startswith("("):
            return self._command_output(name)
        if match := _DEFAULT.fullmatch(name):
            default = None if "$" in match[2] else match[2].strip("\"'")
            return self._expand(match[1]) or default
        return self._variables.get(name, self.around.environ.get(name))

    def _command_output(self, text: str) -> str | None:
        if match := _FINDS.fullmatch(text):
            return match[1]
        if _OWN_FOLDER.search(text) and self._folder is not None:
            return str(self._folder)
        return str(self.around.directory) if text == "(pwd)" else None


def _output(redirections: Sequence[tuple[str, str]]) -> str:
    """The file that standard output goes to; empty where it goes on to where it went."""
    for sign, target in reversed(redirections):
        if sign in (">", ">>", ">|", "1>", "1>>", "&>", "&>>") and target not in _STANDARD:
            return "" if target.startswith("(") else target
    return ""


def read_text(path: Path) -> str | None:
    """The text of a script; None where there is none to read."""
    try:
        if not path.is_file():
            return None
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_TEXT + 1)
    except OSError:
        return None
