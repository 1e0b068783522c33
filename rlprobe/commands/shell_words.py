"""Shell text -> its simple commands, one by one, with what is known of variables filled in.

Nothing is run: what only running would tell (`$(…)`, unknown variables) stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_REDIRECTION = re.compile(r"(\d*|&)(<<<|<<-?|>>|>\||>&|<&|<>|>|<)")
_OPERATOR = re.compile(r"&&|\|\||;;&?|\|&|[;&|()\n]")
_BLANK = " \t\r"
_ENDS_WORD = frozenset(" \t\r\n;&|()<>")

Expand = Callable[[str], str | None]  # what stands behind `$` or in `${}` or `$()` -> its value


@dataclass(slots=True)
class SimpleCommand:
    """Words up to an operator.

    Attributes:
        line: where it begins, from 1.
        end: the operator behind it.
        redirections: (`2>`, `file`) pairs.
        document: a here-document for its standard input; None if there is none.
    """

    words: list[str] = field(default_factory=list)
    line: int = 1
    end: str = ""
    redirections: list[tuple[str, str]] = field(default_factory=list)
    document: str | None = None


class ShellText:
    """Reads the commands of a text; variables are asked for when a command is reached.

    Args:
        expand: called with what a `$` names; None for what is not known.
    """

    def __init__(self, text: str, expand: Expand) -> None:
        self._text = text.replace("\\\r\n", "\\\n")
        self._expand = expand
        self._at = 0
        self._documents: list[tuple[SimpleCommand, str, bool]] = []

    def commands(self) -> Iterator[SimpleCommand]:
        """Each simple command, as soon as it is read."""
        while self._at < len(self._text):
            command = self._command()
            if command.words or command.redirections or command.end in ("(", ")"):
                yield command

    def _command(self) -> SimpleCommand:
        command = SimpleCommand()
        while self._at < len(self._text):
            self._skip_blank()
            if not command.words:
                command.line = 1 + self._text.count("\n", 0, self._at)
            redirection = _REDIRECTION.match(self._text, self._at)
            operator = _OPERATOR.match(self._text, self._at)
            if redirection:
                self._redirect(command, redirection)
            elif operator:
                self._at = operator.end()
                command.end = operator[0]
                if operator[0] == "\n":
                    self._read_documents()
                return command
            elif self._at < len(self._text):
                command.words += self._word()
        return command

    def _skip_blank(self) -> None:
        while self._at < len(self._text):
            if self._text[self._at] in _BLANK:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    def _redirect(self, command: SimpleCommand, match: re.Match[str]) -> None:
        self._at = match.end()
        self._skip_blank()
        if self._text.startswith("(", self._at):  # `> >(tee log)`
            self._at += 1
            command.redirections.append((match[0], f"({self._enclosed('(', ')')})"))
            return
        start = self._at
        word = " ".join(self._word())
        if match[2] in ("<<", "<<-"):
            quoted = any(sign in self._text[start : self._at] for sign in "'\"\\")
            self._documents.append((command, word, quoted))
        else:
            command.redirections.append((match[0], word))

    def _read_documents(self) -> None:
        """Here-documents begin behind the line that names them."""
        for command, word, _ in self._documents:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                if line.strip("\t ") == word:
                    break
                lines.append(line)
            command.document = "\n".join(lines)
        self._documents = []

    # --- words ----------------------------------------------------------------------------------

    def _word(self) -> list[str]:
        """One word as it is written: several where a variable holds several, or none."""
        parts: list[str] = [""]
        quoted = False
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _ENDS_WORD:
            sign = self._text[self._at]
            self._at += 1
            if sign == "\\":
                parts[-1] += self._escaped()
            elif sign == "'":
                parts[-1] += self._until("'")
                quoted = True
            elif sign == '"':
                parts[-1] += self._quoted()
                quoted = True
            elif sign in "$`":
                first, *more = self._variable(sign).split() or [""]
                parts[-1] += first
                parts += more
            else:
                parts[-1] += sign
        if self._at == start:  # `<` and its like, where no word stands
            self._at += 1
        return parts if quoted or parts != [""] else []

    def _escaped(self) -> str:
        sign = self._text[self._at : self._at + 1]
        self._at += 1
        return "" if sign == "\n" else sign

    def _until(self, sign: str) -> str:
        end = self._text.find(sign, self._at)
        end = len(self._text) if end < 0 else end
        part = self._text[self._at : end]
        self._at = end + 1
        return part

    def _quoted(self) -> str:
        part = ""
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == '"':
                break
            if sign == "\\" and self._text[self._at : self._at + 1] in '$`"\\\n':
                part += self._escaped()
            elif sign in "$`":
                part += self._variable(sign)
            else:
                part += sign
        return part

    def _variable(self, sign: str) -> str:
        """The value of what begins with `$` or a back-tick; itself where it is not known."""
        start = self._at
        if sign == "`":
            name = f"({self._until('`')})"
        elif self._text.startswith("'", self._at):
            self._at += 1
            return self._until("'")
        elif self._text.startswith("(", self._at):
            self._at += 1
            name = f"({self._enclosed('(', ')')})"
        elif self._text.startswith("{", self._at):
            self._at += 1
            name = self._enclosed("{", "}")
        elif match := _NAME.match(self._text, self._at):
            self._at = match.end()
            name = match[0]
        else:
            return "$"
        value = self._expand(name)
        written = "".join((sign, self._text[start : self._at]))
        return "".join(written.split()) if value is None else value

    def _enclosed(self, opening: str, closing: str) -> str:
        """The text up to the bracket that closes the one before it."""
        start, depth = self._at, 1
        while self._at < len(self._text) and depth:
            sign = self._text[self._at]
            depth += (sign == opening) - (sign == closing)
            self._at += 1
        return self._text[start : self._at - (depth == 0)]
